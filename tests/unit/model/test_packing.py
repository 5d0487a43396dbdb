"""Packed rows: each sentence is computed as if it were alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.kernels.plain_code import plain_code
from clearhead.model import Transformer
from clearhead.model.packing import PackedSide, Packing

SIZES = {"vocab_size": 53, "d_model": 32, "d_ff": 40, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 3}
SOURCES, TARGETS = (7, 1, 5, 11), (3, 6, 2, 9)
MOST_SENTENCES, FILL = 6, 13
VARIANTS = {
    "paper": {},
    "learned": {"positions": "learned", "norm": "pre"},
    "rotary": {"positions": "rotary", "attention_bias": True},
    "relative": {"positions": "relative"},  # their biases are a mask's, so equation 1 is computed step by step
    "widths of heads": {"d_k": 16, "d_v": 8},
    "unscaled": {"attention_scale": False},
}


def drawn_ids(lengths: Sequence[int]) -> list[Tensor]:
    return [torch.randint(3, SIZES["vocab_size"], (length,)) for length in lengths]


def packed(sentences: Sequence[Tensor]) -> tuple[Tensor, PackedSide]:
    """Return the ids of a side with fill in one row, and where its sentences lie."""
    starts = [0, *accumulate(map(len, sentences))]
    numbers = [torch.full_like(ids, number) for number, ids in enumerate(sentences)]
    numbers.append(torch.full((FILL,), MOST_SENTENCES))
    starts += [starts[-1]] * (MOST_SENTENCES - len(sentences)) + [starts[-1] + FILL]
    side = PackedSide(torch.cat(numbers).int(), torch.tensor(starts, dtype=torch.int32))
    return torch.cat([*sentences, torch.zeros(FILL, dtype=torch.long)]), side


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("is_plain", [False, True], ids=["packed attention", "equation 1"])
def test_packed_states_and_gradients_are_those_of_single_sentences(values, is_plain):
    model = Transformer(ModelConfig(**SIZES, **values)).double().eval()
    sources, targets = drawn_ids(SOURCES), drawn_ids(TARGETS)
    (source, source_side), (target, target_side) = packed(sources), packed(targets)
    packing = Packing.of(source_side, target_side)
    with plain_code(is_plain):
        states = model.packed_states(source, target, packing)[: sum(TARGETS)]
    alone = [model.states(t[None], *model.encode(s[None]))[0] for s, t in zip(sources, targets, strict=True)]
    torch.testing.assert_close(states, torch.cat(alone), rtol=1e-10, atol=1e-10)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    direction = torch.randn_like(states)
    gradients, expected = (
        torch.autograd.grad((output * direction).sum(), weights, allow_unused=True)
        for output in (states, torch.cat(alone))
    )
    torch.testing.assert_close(gradients, expected, rtol=1e-9, atol=1e-9)


def test_queries_keys_and_values_of_packed_rows_are_one_product():
    """Their projections are not called, except for the queries of cross-attention, which has two inputs."""
    model = Transformer(ModelConfig(**SIZES)).eval()
    called = []
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    (source, source_side), (target, target_side) = packed(drawn_ids(SOURCES)), packed(drawn_ids(TARGETS))
    model.packed_states(source, target, Packing.of(source_side, target_side))
    assert {name.rpartition(".")[2] for name in called if "self_attn" in name} == {"out_proj"}
    assert {name.rpartition(".")[2] for name in called if "cross_attn" in name} == {"q_proj", "out_proj"}


def test_fill_sees_nothing_and_is_seen_by_nothing():
    (_, source), (_, target) = packed(drawn_ids(SOURCES)), packed(drawn_ids(TARGETS))
    packing = Packing.of(source, target)
    for ranges, queries, keys in (
        (packing.encoder, SOURCES, SOURCES),
        (packing.decoder, TARGETS, TARGETS),
        (packing.cross, TARGETS, SOURCES),
    ):
        mask = ranges.mask()
        assert not mask[sum(queries) :].any()
        assert not mask[:, sum(keys) :].any()
        assert mask[: sum(queries)].any(dim=1).all()
    assert packing.target_places.tolist() == [*(place for length in TARGETS for place in range(length)), *[0] * FILL]

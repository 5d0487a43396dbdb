"""The closed formulas are what the models are: weights for every option, operations as PyTorch counts them."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.config import ModelConfig
from clearhead.config.presets import PRESETS, bert_base, bert_large
from clearhead.model import Transformer
from clearhead.paper.counts import forward_flops, parameter_count, training_flops
from every_run import slow

SIZES = {"vocab_size": 97, "d_model": 22, "num_heads": 11, "d_ff": 19, "num_encoder_layers": 3, "num_decoder_layers": 2}
SIDES = {
    "both": {},
    "encoder alone": {"num_decoder_layers": 0},
    "decoder alone": {"num_encoder_layers": 0},
}
OPTIONS = [
    {},
    {"norm": "pre"},
    {"norm": "pre", "final_norm": False},
    {"norm": "post", "final_norm": True},
    {"norm_kind": "rms"},
    {"norm_kind": "rms", "final_norm": True, "embedding_norm": True},
    {"d_k": 5},
    {"d_v": 3},
    {"d_k": 4, "d_v": 7, "attention_bias": True},
    {"attention_bias": True},
    {"feed_forward_bias": False},
    {"gated": True, "activation": "silu"},
    {"gated": True, "feed_forward_bias": False},
    {"output_bias": True},
    {"positions": "learned", "max_positions": 31},
    {"positions": "rotary"},
    {"positions": "relative", "relative_attention_num_buckets": 10, "num_heads": 11},
    {"positions": "none", "embedding_scale": False},
    {"num_segments": 2},
    {"num_target_segments": 3, "output_transform": True},
    {"output_transform": True, "norm_kind": "rms"},
    {"embedding_norm": True},
    *({"tying": tying} for tying in ("decoder", "embeddings", "none")),
    *({"tying": tying, "output_bias": True, "norm": "pre", "d_k": 2} for tying in ("decoder", "embeddings", "none")),
    *({"tying": tying, "source_vocab_size": 53} for tying in ("decoder", "none")),
]


def built(config: ModelConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("side", SIDES)
def test_the_formula_counts_the_weights_of_every_option(side, options):
    of_the_other_side = {
        "decoder alone": {"num_segments", "source_vocab_size"},
        "encoder alone": {"num_target_segments", "output_transform"},
    }
    options = {name: options[name] for name in options.keys() - of_the_other_side.get(side, set())}
    config = ModelConfig(**{**SIZES, **SIDES[side], **options})
    assert parameter_count(config) == built(config)


def test_options_do_not_hide_each_other():
    bools, norms = (False, True), ("layer", "rms")
    names = ("norm_kind", "gated", "attention_bias", "feed_forward_bias", "final_norm", "embedding_norm")
    for values in itertools.product(norms, bools, bools, bools, bools, bools):
        config = ModelConfig(**{**SIZES, **dict(zip(names, values, strict=True))})
        assert parameter_count(config) == built(config), config


@pytest.mark.parametrize("vocab_size", [slow(5), 997, slow(32_000), slow(37_001)])
@pytest.mark.parametrize("name", PRESETS)
def test_the_formula_counts_every_preset_with_any_vocabulary(name, vocab_size):
    config = PRESETS[name](vocab_size=vocab_size)
    assert parameter_count(config) == built(config)


@pytest.mark.parametrize(
    ("preset", "shape", "weights"),
    [
        (bert_base, {}, 108_891_648),
        (
            bert_large,
            {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
            334_092_288,
        ),
    ],
)
def test_bert_presets_have_as_many_weights_as_hugging_faces(preset, shape, weights):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library that is not ours, while it is imported
        import transformers

        config = transformers.BertConfig(**shape)
        with torch.device("meta"):
            theirs = transformers.BertModel(config, add_pooling_layer=False)
    assert sum(parameter.numel() for parameter in theirs.parameters()) == weights
    assert parameter_count(preset()) == weights
    assert config.hidden_act == preset().activation
    assert config.layer_norm_eps == preset().norm_eps
    assert config.attention_probs_dropout_prob == preset().attention_dropout
    assert config.hidden_dropout_prob == preset().dropout


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"d_k": 5, "d_v": 3},
        {"gated": True},
        {"tying": "none", "attention_bias": True},
        {"num_encoder_layers": 0},
        {"num_decoder_layers": 0},
    ],
    ids=str,
)
def test_forward_flops_equals_the_count_of_pytorch(options):
    config = ModelConfig(**{**SIZES, **options})
    source, target = (13 if config.num_encoder_layers else 0), (7 if config.num_decoder_layers else 0)
    with torch.device("meta"), torch.no_grad():
        model = Transformer(config).eval()
        ids = {length: torch.ones(1, length, dtype=torch.long) for length in (source, target)}
        with FlopCounterMode(display=False) as counter:
            if target:
                model(ids[source] if source else None, ids[target])
            else:
                model.encode(ids[source])
    assert counter.get_total_flops() == forward_flops(config, source, target)


def test_a_run_is_three_forward_passes_of_every_batch():
    config = ModelConfig(**SIZES)
    one = training_flops(config, batch_tokens=50, length=10, steps=1)
    assert one == 3 * 5 * forward_flops(config, 10, 10)
    assert training_flops(config, batch_tokens=50, length=10, steps=7) == 7 * one

"""Mistakes in study notes about masks: which positions a position may see (section 3.2.3).

Shapes: T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model.attention import scaled_dot_product_attention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.masks import causal_mask
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import EXACT, build, compared, standard_normal
from clearhead.paper.plain import attention


def _hides_completely(attend: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> CheckResult:
    """Two hidden positions of six receive no weight and do not change the outputs of the other four.

    These are the outputs of equation 1 for a sentence of the other four words, calculated number by number.
    """
    x = standard_normal(6, 8, seed=40)
    shown = torch.tensor([True, True, False, True, False, True])
    output, weights = attend(x, shown)
    share = weights[shown][:, ~shown].sum(dim=-1).mean().item()
    rest = x[shown].tolist()
    return compared(
        output[shown],
        attention(rest, rest, rest)[0],
        to="equation 1 for the other words",
        holds=share == 0,
        figures=f"hidden positions receive {100 * share:.0f} % of the weight",
    )


def _embeddings_set_to_zero(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    zeroed = x * shown[:, None]
    return scaled_dot_product_attention(zeroed, zeroed, zeroed)


def _with_scores(x: Tensor, shown: Tensor, hidden: float) -> tuple[Tensor, Tensor]:
    """Attend with hidden positions' scores set to a number."""
    weights = (x @ x.T / 8**0.5).masked_fill(~shown, hidden).softmax(dim=-1)
    return weights @ x, weights


def _weights_set_to_zero(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    weights = scaled_dot_product_attention(x, x, x)[1] * shown
    return weights @ x, weights


def _weights_set_to_zero_and_rescaled(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    output, weights = _weights_set_to_zero(x, shown)
    return output / weights.sum(dim=-1, keepdim=True), weights / weights.sum(dim=-1, keepdim=True)


def _masked(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return scaled_dot_product_attention(x, x, x, mask)


Run = Callable[[DecoderLayer, Tensor, Tensor], Tensor]
"""Maps a decoder layer without cross-attention, its input [B, T, D] and the padding mask to the layer's output."""


def _decoder_layer() -> DecoderLayer:
    config = ModelConfig(d_model=16, d_ff=24, num_heads=2, dropout=0.0, num_encoder_layers=0)
    return build(lambda: DecoderLayer(config))


def _as_it_is(layer: DecoderLayer, x: Tensor, is_token: Tensor) -> Tensor:
    output: Tensor = layer(x)
    return output


def masked_by(layer: DecoderLayer, x: Tensor, mask: Tensor) -> Tensor:
    """Run the same sub-layers with another mask in self-attention."""
    x = layer.self_attn_residual.add_and_norm(x, lambda x: layer.self_attn(x, x, mask))
    return layer.feed_forward_residual.add_and_norm(x, layer.feed_forward)


def _alone(layer: DecoderLayer, x: Tensor) -> Tensor:
    """Return each position's output for a sentence that ends with it, in which nothing is hidden."""
    every = torch.ones(1, 1, dtype=torch.bool)
    ends = [masked_by(layer, x[:, : length + 1], every)[:, -1] for length in range(x.size(1))]
    return torch.stack(ends, dim=1)


def _shows_what_came_before(run: Run) -> CheckResult:
    """In a decoder layer, each output has a gradient for every earlier input and for no later one.

    It is the last output, without a mask, for the sentence that ends there.
    """
    length, layer = 6, _decoder_layer()
    x = standard_normal(1, length, 16, seed=41).requires_grad_()
    output = run(layer, x, torch.ones(1, length, dtype=torch.bool))
    gradients = [torch.autograd.grad(row.sum(), x, retain_graph=True)[0] for row in output[0]]
    feels = torch.cat(gradients).abs().sum(dim=-1) > 0  # (T, T)
    later = int(feels.triu(1).sum())
    earlier = int(feels.tril(-1).sum())
    return compared(
        output.detach(),
        _alone(layer, x.detach()),
        to="that of shorter sentences",
        holds=later == 0 and earlier == length * (length - 1) // 2,
        figures=f"outputs depend on {later} of 15 later positions and {earlier} of 15 earlier ones",
    )


def _later_tokens_change_nothing(run: Run) -> CheckResult:
    """Replacing all tokens after the second leaves a decoder layer's first two outputs unchanged.

    The sentence ends in padding. Every other output is the last one, without a mask, for the sentence that ends there.
    """
    is_token, layer = torch.tensor([[True] * 5 + [False]]), _decoder_layer()
    before, other = standard_normal(1, 6, 16, seed=42), standard_normal(1, 6, 16, seed=43)
    after = torch.cat([before[:, :2], other[:, 2:]], dim=1)
    output = run(layer, before, is_token)
    first = (output - run(layer, after, is_token))[:, :2].abs().max().item()
    return compared(
        output[is_token],
        _alone(layer, before)[is_token],
        to="that of shorter sentences",
        holds=first < EXACT,
        figures=f"replacing the later tokens changes the first two outputs by {first:.2f}",
    )


def _strictly_before(length: int) -> Tensor:
    mask = causal_mask(length).tril(-1)
    mask[0, 0] = True
    return mask


def _first_two(length: int) -> Tensor:
    mask = torch.ones(length, length, dtype=torch.bool)
    mask[:2] = causal_mask(length)[:2]
    return mask


def _without_the_first(length: int) -> Tensor:
    mask = causal_mask(length)
    mask[1:, 0] = False
    return mask


MASKS_ERRATA = (
    erratum(
        "Masking by zeroing embeddings",
        wrong_version=_embeddings_set_to_zero,
        right_version=lambda x, shown: _masked(x, shown[None, :]),
        test=_hides_completely,
        mutants={
            "scores set to 0": lambda x, shown: _with_scores(x, shown, 0.0),
            "scores set to -2": lambda x, shown: _with_scores(x, shown, -2.0),
            "weights set to 0 after the softmax": _weights_set_to_zero,
            "rows hidden in place of columns": lambda x, shown: _masked(x, (shown[:, None] | ~shown).expand(6, 6)),
        },
        also_right={
            "scores set to -10^9": lambda x, shown: _with_scores(x, shown, -1e9),
            "weights set to 0, and scaled to the sum 1": _weights_set_to_zero_and_rescaled,
        },
    ),
    erratum(
        "The mask hides the past",
        wrong_version=lambda layer, x, is_token: masked_by(layer, x, causal_mask(x.size(1)).T),
        right_version=_as_it_is,
        test=_shows_what_came_before,
        mutants={
            "itself hidden but at the first position": lambda layer, x, _: masked_by(layer, x, _strictly_before(6)),
            "one later position visible": lambda layer, x, _: masked_by(layer, x, torch.ones(6, 6).tril(1).bool()),
            "the first position always hidden": lambda layer, x, _: masked_by(layer, x, _without_the_first(6)),
        },
        also_right={
            "each prefix alone": lambda layer, x, is_token: _alone(layer, x),
            "an explicit mask": lambda layer, x, is_token: masked_by(layer, x, causal_mask(x.size(1))),
        },
    ),
    erratum(
        "Masks only hide padding",
        wrong_version=lambda layer, x, is_token: masked_by(layer, x, is_token[:, None, None, :]),
        right_version=_as_it_is,
        test=_later_tokens_change_nothing,
        mutants={
            "itself alone": lambda layer, x, is_token: masked_by(layer, x, torch.eye(6).bool()),
            "a window of two": lambda layer, x, is_token: masked_by(layer, x, causal_mask(6).triu(-1)),
            "the future hidden from the first two alone": lambda layer, x, _: masked_by(layer, x, _first_two(6)),
        },
        also_right={
            "the causal mask and that of padding": lambda layer, x, is_token: masked_by(
                layer, x, causal_mask(6) & is_token[:, None, None, :]
            )
        },
    ),
)

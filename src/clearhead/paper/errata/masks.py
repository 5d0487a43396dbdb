"""Mistakes in study notes about masks: which positions a position may see (section 3.2.3).

Shapes: T length, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.model.attention import scaled_dot_product_attention
from clearhead.model.decoder import DecoderLayer
from clearhead.model.masks import causal_mask
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import build, standard_normal

_SECTION = "Section 3.2.3: masking out (setting to minus infinity) all values in the input of the softmax"
_EXACT = 1e-5
"""Maximum difference between values that should be equal."""


def _hides_completely(attend: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> CheckResult:
    """Two hidden positions of six receive no weight and do not change the outputs of the other four."""
    x = standard_normal(6, 8, seed=40)
    shown = torch.tensor([True, True, False, True, False, True])
    output, weights = attend(x, shown)
    share = weights[shown][:, ~shown].sum(dim=-1).mean().item()
    rest = x[shown]
    alone = (rest @ rest.T / 8**0.5).softmax(dim=-1) @ rest
    distance = (output[shown] - alone).abs().max().item()
    return CheckResult(
        share == 0 and distance < _EXACT,
        f"hidden positions receive {100 * share:.0f} % of the weight and change the other outputs by {distance:.2f}",
    )


def _embeddings_set_to_zero(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    zeroed = x * shown[:, None]
    return scaled_dot_product_attention(zeroed, zeroed, zeroed)


def _scores_set_to_minus_infinity(x: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    return scaled_dot_product_attention(x, x, x, shown[None, :])


Run = Callable[[DecoderLayer, Tensor, Tensor], Tensor]
"""Maps a decoder layer without cross-attention, its input [B, T, D] and the padding mask to the layer's output."""


def _decoder_layer() -> DecoderLayer:
    config = ModelConfig(d_model=16, d_ff=24, num_heads=2, dropout=0.0, num_encoder_layers=0)
    return build(lambda: DecoderLayer(config))


def _as_it_is(layer: DecoderLayer, x: Tensor, is_token: Tensor) -> Tensor:
    output: Tensor = layer(x)
    return output


def _masked_by(layer: DecoderLayer, x: Tensor, mask: Tensor) -> Tensor:
    """Run the same sub-layers with another mask in self-attention."""
    x = layer.self_attn_residual.add_and_norm(x, lambda x: layer.self_attn(x, x, mask))
    return layer.feed_forward_residual.add_and_norm(x, layer.feed_forward)


def _shows_what_came_before(run: Run) -> CheckResult:
    """In a decoder layer, each output has a gradient for every earlier input and for no later one."""
    length = 6
    x = standard_normal(1, length, 16, seed=41).requires_grad_()
    output = run(_decoder_layer(), x, torch.ones(1, length, dtype=torch.bool))[0]
    gradients = [torch.autograd.grad(row.sum(), x, retain_graph=True)[0] for row in output]
    feels = torch.cat(gradients).abs().sum(dim=-1) > 0  # (T, T)
    later = int(feels.triu(1).sum())
    earlier = int(feels.tril(-1).sum())
    return CheckResult(
        later == 0 and earlier == length * (length - 1) // 2,
        f"outputs depend on {later} of 15 later positions and {earlier} of 15 earlier ones",
    )


def _later_tokens_change_nothing(run: Run) -> CheckResult:
    """Replacing all tokens after the second leaves a decoder layer's first two outputs unchanged.

    The sentence ends in padding.
    """
    is_token = torch.tensor([[True] * 5 + [False]])
    before, other = standard_normal(1, 6, 16, seed=42), standard_normal(1, 6, 16, seed=43)
    after = torch.cat([before[:, :2], other[:, 2:]], dim=1)
    moved = run(_decoder_layer(), before, is_token) - run(_decoder_layer(), after, is_token)
    first = moved[:, :2].abs().max().item()
    return CheckResult(first < _EXACT, f"replacing the later tokens changes the first two outputs by {first:.2f}")


MASKS_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=19,
        title="Masking by zeroing embeddings",
        wrong="Masking sets part of the input embeddings to zeros.",
        right="Masking sets scores to minus infinity before the softmax. An embedding of zeros still has the score 0, "
        "and since e^0 = 1 it still receives weight.",
        source=_SECTION,
        wrong_version=_embeddings_set_to_zero,
        right_version=_scores_set_to_minus_infinity,
        test=_hides_completely,
    ),
    Erratum(
        number=20,
        title="The mask hides the past",
        wrong="The mask of the decoder hides the preceding words.",
        right="It hides the following words: a position sees itself and the positions before it.",
        source="Section 3.2.3: preserve the auto-regressive property; section 3.1: position i depends only on the "
        "known outputs at positions less than i",
        wrong_version=lambda layer, x, is_token: _masked_by(layer, x, causal_mask(x.size(1)).T),
        right_version=_as_it_is,
        test=_shows_what_came_before,
    ),
    Erratum(
        number=21,
        title="Masks only hide padding",
        wrong="Masks are there to hide padding.",
        right="The decoder's self-attention mask hides later positions; otherwise, in training, each position would "
        "see the token that it has to predict. (Padding is at the end of a target, so the same mask hides it.)",
        source="Section 3.2.3; figure 2 left, Mask (opt.)",
        wrong_version=lambda layer, x, is_token: _masked_by(layer, x, is_token[:, None, None, :]),
        right_version=_as_it_is,
        test=_later_tokens_change_nothing,
    ),
)

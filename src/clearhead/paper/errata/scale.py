"""Mistakes in study notes about the factor 1 / sqrt(d_k) in equation 1.

Shapes: T query length, S key length, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import standard_normal

Weigh = Callable[[Tensor, Tensor], Tensor]
"""Maps queries [T, K] and keys [S, K] to attention weights [T, S]."""

_QUERIES, _KEYS = 256, 64
_WIDTHS = (16, 64, 256)
_TOLERANCE = 0.05
"""Tolerance in nats; the compared mean entropies of 256 queries vary by about 0.03."""

_DEMANDS = (
    "With queries and keys of variance 1, of 16, 64 and 256 components, the weights over 64 keys are as spread (their "
    "entropy differs by less than 0.05 nats) as if the scores had been drawn with variance 1."
)
_SOURCE = "Equation 1, section 3.2.1 and its footnote: q · k has mean 0 and variance d_k"


def _entropy(weights: Tensor) -> float:
    """Return the mean entropy of the rows, in nats."""
    logs = weights.double().clamp_min(1e-300).log()
    # Rounding can make the entropy slightly negative.
    return max(0.0, -(weights.double() * logs).sum(dim=-1).mean().item())


def _is_as_spread_as_unit_scores(weigh: Weigh) -> CheckResult:
    """The weights have the entropy of a softmax over random scores of variance 1.

    256 random queries attend to 64 random keys, all with components of variance 1, at d_k = 16, 64 and 256; the mean
    entropy of the weights may differ by less than 0.05 nats.
    """
    wanted = _entropy(standard_normal(_QUERIES, _KEYS, seed=3).softmax(dim=-1))
    found = {}
    for width in _WIDTHS:
        q, k = standard_normal(_QUERIES, width, seed=1), standard_normal(_KEYS, width, seed=2)
        found[width] = weigh(q, k)
    entropies = {width: _entropy(weights) for width, weights in found.items()}
    largest = found[64].amax(dim=-1).mean().item()
    return CheckResult(
        max(abs(entropy - wanted) for entropy in entropies.values()) < _TOLERANCE,
        "entropy "
        + ", ".join(f"{entropies[width]:.2f}" for width in _WIDTHS)
        + f" nats at d_k = 16, 64, 256 (scores of variance 1: {wanted:.2f}, equal weights: {math.log(_KEYS):.2f}), "
        f"mean largest weight at d_k = 64 {largest:.2f}",
    )


def _divided_by(divisor: Callable[[int], float]) -> Weigh:
    """Return an attention function whose scores are divided by a function of the head width."""
    return lambda q, k: (q @ k.T / divisor(q.size(-1))).softmax(dim=-1)


def _ours(q: Tensor, k: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, k)[1]


SCALE_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=1,
        title="Dividing the scores by d^-2",
        wrong="`scale = num / Q.shape[1]**-2`.",
        right="Divide the scores by `d_k ** 0.5`. Dividing by d^-2 multiplies them by d^2, and the softmax puts almost "
        "all weight on one key.",
        source=_SOURCE,
        wrong_version=_divided_by(lambda width: width**-2),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
    ),
    Erratum(
        number=2,
        title="Dividing the scores by sqrt(512)",
        wrong="The scores are divided by the square root of d_model = 512.",
        right="They are divided by sqrt(d_k), where d_k is the width of one head: sqrt(64) = 8 in the base model. "
        "sqrt(512) is right only for the single head in row A of Table 3; for narrower heads it makes the weights too "
        "uniform.",
        source=_SOURCE + "; section 3.2.2 for d_k = 64",
        wrong_version=_divided_by(lambda _: math.sqrt(512)),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
    ),
    Erratum(
        number=3,
        title="No scale at all",
        wrong="Attention is softmax(Q K^T) V; the division is a detail that can be left out.",
        right="Without the division the scores have variance d_k, so the softmax becomes sharper as heads get wider, "
        "and the gradients through it become extremely small.",
        source=_SOURCE,
        wrong_version=_divided_by(lambda _: 1.0),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
    ),
    Erratum(
        number=4,
        title="Scaling by sqrt(d_k) instead of 1 / sqrt(d_k)",
        wrong="We scale the dot products by sqrt(d_k).",
        right="We scale them by 1 / sqrt(d_k), which makes them smaller, not larger.",
        source=_SOURCE,
        wrong_version=_divided_by(lambda width: 1 / math.sqrt(width)),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
    ),
)

"""Mistakes in study notes about the factor 1 / sqrt(d_k) in equation 1.

Shapes: T query length, S key length, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.func import jacrev, vmap
from torch.nn import functional

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import compared, standard_normal
from clearhead.paper.plain import attention

Weigh = Callable[[Tensor, Tensor], Tensor]
"""Maps queries [T, K] and keys [S, K] to attention weights [T, S]."""

_QUERIES, _KEYS = 256, 64
_WIDTHS = (16, 64, 256)
_TOLERANCE = 0.05
"""Tolerance in nats; the compared mean entropies of 256 queries vary by about 0.03."""


def _entropy(weights: Tensor) -> float:
    """Return the mean entropy of the rows, in nats."""
    logs = weights.double().clamp_min(1e-300).log()
    # Rounding can make the entropy slightly negative.
    return max(0.0, -(weights.double() * logs).sum(dim=-1).mean().item())


def _compared_with_equation_1(weigh: Weigh, holds: bool, figures: str) -> CheckResult:
    q, k = standard_normal(5, 6, seed=4), standard_normal(4, 6, seed=5)
    wanted = attention(q.tolist(), k.tolist(), k.tolist())[1]
    return compared(weigh(q, k), wanted, to="equation 1", figures=figures, holds=holds)


def _is_as_spread_as_unit_scores(weigh: Weigh) -> CheckResult:
    """The weights have the entropy of a softmax over random scores of variance 1.

    256 random queries attend to 64 random keys, all with components of variance 1, at d_k = 16, 64 and 256; the mean
    entropy of the weights may differ by less than 0.05 nats. Other queries and keys give the weights of equation 1,
    calculated number by number.
    """
    wanted = _entropy(standard_normal(_QUERIES, _KEYS, seed=3).softmax(dim=-1))
    by_width = _weights_by_width(weigh, _WIDTHS)
    entropies = {width: _entropy(weights) for width, weights in by_width.items()}
    largest = by_width[64].amax(dim=-1).mean().item()
    return _compared_with_equation_1(
        weigh,
        max(abs(entropy - wanted) for entropy in entropies.values()) < _TOLERANCE,
        "entropy "
        + ", ".join(f"{entropies[width]:.2f}" for width in _WIDTHS)
        + f" nats at d_k = 16, 64, 256 (scores of variance 1: {wanted:.2f}, equal weights: {math.log(_KEYS):.2f}), "
        f"mean largest weight at d_k = 64 {largest:.2f}",
    )


def _weights_by_width(weigh: Weigh, widths: tuple[int, ...]) -> dict[int, Tensor]:
    return {
        width: weigh(standard_normal(_QUERIES, width, seed=1), standard_normal(_KEYS, width, seed=2))
        for width in widths
    }


def _jacobian_trace(weights: Tensor) -> float:
    """Return the trace of the softmax's Jacobian where it gives these weights; the median of the rows."""
    scores = weights.double().clamp_min(1e-300).log()
    jacobians = vmap(jacrev(partial(functional.softmax, dim=-1)))(scores)  # (T, S, S)
    return jacobians.diagonal(dim1=1, dim2=2).sum(dim=-1).median().item()


def _keeps_the_softmax_steep(weigh: Weigh) -> CheckResult:
    """The derivatives of the weights with respect to the scores do not vanish as heads get wider.

    256 random queries attend to 64 random keys, all with components of variance 1, at d_k = 16, 64, 256 and 1024. The
    trace of the softmax's Jacobian, for the median query, is at least 0.9 times that for random scores of variance 1.
    Other queries and keys give the weights of equation 1, calculated number by number.
    """
    wanted = _jacobian_trace(standard_normal(_QUERIES, _KEYS, seed=3).softmax(dim=-1))
    traces = [_jacobian_trace(weights) for weights in _weights_by_width(weigh, (*_WIDTHS, 1024)).values()]
    return _compared_with_equation_1(
        weigh,
        min(traces) > 0.9 * wanted,
        f"trace {', '.join(f'{trace:.3f}' for trace in traces)} at d_k = 16, 64, 256, 1024 (scores of variance 1: "
        f"{wanted:.3f})",
    )


def _divided_by(divisor: Callable[[int], float]) -> Weigh:
    """Return an attention function whose scores are divided by a function of the head width."""
    return lambda q, k: (q @ k.T / divisor(q.size(-1))).softmax(dim=-1)


def _ours(q: Tensor, k: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, k)[1]


def _cosine(q: Tensor, k: Tensor) -> Tensor:
    """Return weights that ignore how long queries and keys are; random ones all have about the length sqrt(d_k)."""
    return functional.cosine_similarity(q[:, None], k, dim=-1)


SCALE_ERRATA = (
    erratum(
        "Dividing the scores by d^-2",
        wrong_version=_divided_by(lambda width: width**-2),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
        mutants={
            "cosine times sqrt(d_k)": lambda q, k: (_cosine(q, k) * q.size(-1) ** 0.5).softmax(dim=-1),
            "sqrt(number of queries)": lambda q, k: (q @ k.T / q.size(0) ** 0.5).softmax(dim=-1),
            "d_k^-0.5": _divided_by(lambda width: width**-0.5),
        },
        also_right={
            "queries divided first": lambda q, k: ((q / q.size(-1) ** 0.5) @ k.T).softmax(dim=-1),
            "queries and keys each divided by d_k^0.25": lambda q, k: (
                q / q.size(-1) ** 0.25 @ (k / q.size(-1) ** 0.25).T
            ).softmax(dim=-1),
        },
    ),
    erratum(
        "Dividing the scores by sqrt(512)",
        wrong_version=_divided_by(lambda _: math.sqrt(512)),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
        mutants={
            "8 whatever d_k": _divided_by(lambda _: 8.0),
            "sqrt(2 d_k)": _divided_by(lambda width: math.sqrt(2 * width)),
        },
    ),
    erratum(
        "No scale at all",
        wrong_version=_divided_by(lambda _: 1.0),
        right_version=_ours,
        test=_keeps_the_softmax_steep,
        mutants={
            "cosine": lambda q, k: _cosine(q, k).softmax(dim=-1),
            "scores of variance 1 for each query": lambda q, k: functional.layer_norm(q @ k.T, k.shape[:1]).softmax(-1),
            "d_k^0.25": _divided_by(lambda width: width**0.25),
        },
    ),
    erratum(
        "Scaling by sqrt(d_k) instead of 1 / sqrt(d_k)",
        wrong_version=_divided_by(lambda width: 1 / math.sqrt(width)),
        right_version=_ours,
        test=_is_as_spread_as_unit_scores,
        mutants={
            "d_k in place of sqrt(d_k)": _divided_by(float),
            "the weights divided, not the scores": lambda q, k: (q @ k.T).softmax(dim=-1) / q.size(-1) ** 0.5,
        },
    ),
)

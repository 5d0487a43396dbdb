"""Statistics of attention heads: entropy, distance, and shares of the weight.

Shapes: L layers, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


STATISTICS = {
    "entropy": "Mean over the rows of -sum w ln w, in nats: 0 if one token has all the weight, ln S "
    "if all have the same.",
    "peak": "Mean over the rows of the largest weight (the confidence of Voita et al. 2019).",
    "distance": "Mean distance |key - query| in tokens, weighted.",
    "diagonality": "Mean of exp(-(key / S - query / T)^2 / (2 * 0.2^2)), weighted: 1 on the diagonal "
    "(Tachibana et al. 2018).",
    "first_share": "Mean weight of the first key, which is the start token in decoder self-attention.",
    "last_share": "Mean weight of the last key, which is the end token of the source; not in decoder self-attention, "
    "where only the last query sees the last key.",
    "previous_share": "Mean weight of the key before the query, over rows that have one; self-attention only.",
    "same_share": "Mean weight of the query's own position; self-attention only.",
    "next_share": "Mean weight of the key after the query, over rows that have one; encoder only.",
}
"""Name and definition of each statistic."""

DIAGONAL_WIDTH = 0.2


def head_statistics(
    weights: Float[np.ndarray, "L H T S"], *, is_self: bool, is_causal: bool
) -> Mapping[str, Float[np.ndarray, "L H"]]:
    """Return `STATISTICS` of every head; statistics without meaning for the attention are left out.

    Args:
        weights: Attention weights; rows sum to 1.
        is_self: Whether queries and keys are the same tokens.
        is_causal: Whether queries attend only to keys up to their own position.
    """
    weights = weights.astype(np.float64)
    num_queries, num_keys = weights.shape[2:]
    query, key = np.arange(num_queries)[:, None], np.arange(num_keys)[None, :]
    logs = np.log(np.where(weights > 0, weights, 1.0))
    nearness = np.exp(-((key / num_keys - query / num_queries) ** 2) / (2 * DIAGONAL_WIDTH**2))
    statistics = {
        "entropy": -(weights * logs).sum(axis=-1).mean(axis=-1),
        "peak": weights.max(axis=-1).mean(axis=-1),
        "distance": (weights * np.abs(key - query)).sum(axis=-1).mean(axis=-1),
        "diagonality": (weights * nearness).sum(axis=-1).mean(axis=-1),
        "first_share": weights[..., 0].mean(axis=-1),
    }
    if not is_causal:
        statistics["last_share"] = weights[..., -1].mean(axis=-1)
    if is_self:
        statistics["same_share"] = _share(weights, 0)
        if num_keys > 1:
            statistics["previous_share"] = _share(weights, -1)
            if not is_causal:
                statistics["next_share"] = _share(weights, 1)
    return statistics


def _share(weights: Float[np.ndarray, "L H T T"], offset: int) -> Float[np.ndarray, "L H"]:
    return np.diagonal(weights, offset, axis1=2, axis2=3).mean(axis=-1)

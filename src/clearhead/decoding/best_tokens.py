"""The best tokens after each hypothesis, from the log-probabilities of all.

Shapes: R rows (hypotheses), V vocabulary, C best tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BLOCK = 64
"""Tokens of which only the maximum is looked at first."""


def best_tokens(
    scores: Float[np.ndarray, "R V"], count: int
) -> tuple[Float[np.ndarray, "R C"], Int[np.ndarray, "R C"]]:
    """Return scores and ids of the `count` best tokens of each row, best first; of equal ones the first.

    Tokens of minus infinity or NaN are no candidates. Where there are fewer, the score is minus infinity and the id -1.

    Of the maxima of all blocks the `count`-th best is a bound: as many tokens are no worse, and few more, so only these
    are sorted.
    """
    num_rows, vocab_size = scores.shape
    maxima = np.maximum.reduceat(scores, np.arange(0, vocab_size, BLOCK), axis=1)  # (R, blocks)
    least = np.full(num_rows, np.finfo(scores.dtype).min)
    if count < maxima.shape[1]:
        least = np.maximum(least, np.partition(maxima, -count, axis=1)[:, -count])
    rows, tokens = np.divmod(np.flatnonzero(scores >= least[:, None]), vocab_size)
    values = scores[rows, tokens]
    order = np.lexsort((-values, rows))
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)  # `rows` ascends, before and after sorting
    order, at = order[ranks < count], (rows[ranks < count], ranks[ranks < count])
    best, ids = np.full((num_rows, count), -np.inf, scores.dtype), np.full((num_rows, count), -1)
    best[at], ids[at] = values[order], tokens[order]
    return best, ids

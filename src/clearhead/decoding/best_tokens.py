"""The best tokens after each hypothesis, from the log-probabilities of all.

Shapes: R rows (hypotheses), V vocabulary, C best tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clearhead.decoding.engine import rows_of
from clearhead.decoding.rules import candidates_of_row, candidates_of_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float, Int

    from clearhead.decoding.engine import Beams, Candidates

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


def best_continuations(
    active: Sequence[Beams], log_probs: Float[np.ndarray, "R V"], beam_size: int, most: int | None = None
) -> Iterator[Candidates]:
    """Yield the best continuations of each sentence; see `engine.Slots.step`.

    Args:
        active: The open hypotheses of each sentence.
        log_probs: Log-probability of every next token of each hypothesis, sentence by sentence.
        beam_size: Maximum hypotheses of a sentence.
        most: Continuations of a sentence, of any of its hypotheses; as many as can matter if None.
    """
    gains, tokens = best_tokens(log_probs, most or candidates_of_row(beam_size))
    for beams, rows in zip(active, rows_of(active), strict=True):
        gain, token = gains[rows], tokens[rows]
        if np.isnan(log_probs[rows].max()):
            gain = np.full_like(gain, np.nan)
        scores = (np.array(beams.scores, dtype=np.float32)[:, None] + gain).ravel()
        places = np.argsort(-scores, kind="stable")[: most or candidates_of_sentence(beam_size)]
        numbers = (places // gain.shape[1]).tolist()
        yield zip(scores[places].tolist(), numbers, token.ravel()[places].tolist(), strict=True)

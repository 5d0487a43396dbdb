"""Diverse beam search: n-best translations that differ in more than a comma (Vijayakumar et al. 2018).

The paper splits the beam into groups that choose one after the other at every step. A token is penalized for each
earlier group that has just written it (Hamming diversity). Here each group has one hypothesis, the setting that the
paper found most diverse. So the first hypothesis is that of greedy search. Each other one writes the token with the
highest log-probability minus `diversity` nats per earlier hypothesis that writes it at this step. Scores and ranks use
the model's log-probabilities without the penalty.

Shapes: R rows (the open hypotheses of all slots), N sentences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodeConfig
from clearhead.decoding.independent_hypotheses import SeparateHypotheses
from clearhead.decoding.rules import rank_penalty

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def advance_diverse(
    active: Sequence[SeparateHypotheses],
    log_probs: Float[np.ndarray, "R V"],
    diversity: float,
    config: DecodeConfig,
    eos_id: int,
) -> None:
    """Choose the next token of every open hypothesis."""
    chosen = choose_diverse(log_probs, [len(searched.scores) for searched in active], diversity)
    gains, tokens, first = log_probs[np.arange(len(chosen)), chosen].tolist(), chosen.tolist(), 0
    for searched in active:
        last = first + len(searched.scores)
        scores = [score + gain for score, gain in zip(searched.scores, gains[first:last], strict=True)]
        searched.advance(scores, tokens[first:last], eos_id, rank_penalty(searched.length + 1, config))
        first = last


def choose_diverse(
    log_probs: Float[np.ndarray, "R V"], sizes: Sequence[int], diversity: float
) -> Int[np.ndarray, " R"]:
    """Return the next token of each row.

    Args:
        log_probs: Log-probabilities of all tokens after each row. Rows of a sentence are adjacent, in the order in
            which they choose.
        sizes: Number of rows of each sentence.
        diversity: Penalty in nats on a token for each earlier row of the sentence that has chosen it.
    """
    chosen = np.empty(len(log_probs), dtype=np.int64)
    firsts = np.cumsum([0, *sizes[:-1]])
    penalties = np.zeros((len(sizes), log_probs.shape[1]), dtype=np.float32)  # (N, V)
    for place in range(max(sizes)):
        sentences = np.flatnonzero(np.greater(sizes, place))
        rows = firsts[sentences] + place
        chosen[rows] = tokens = (log_probs[rows] - penalties[sentences]).argmax(axis=1)
        penalties[sentences, tokens] += diversity
    return chosen

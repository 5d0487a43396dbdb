"""Finished translations in tokens, and the length penalty that ranks them (paper section 6.1)."""

from __future__ import annotations

from typing import NamedTuple

from clearhead.config.choices import PenaltyForm


class Hypothesis(NamedTuple):
    """One output of a search."""

    tokens: tuple[int, ...]
    """Target ids; the last one is `eos_id`."""
    log_prob: float
    """Sum of the log-probabilities of all tokens, in nats, as the search added them. In fp32 the compiled core's sum
    equals the score of the same tokens. Other precisions round it, and a shortlist normalizes over fewer tokens. NaN if
    it was not asked for (`SearchOptions.scores`)."""
    rank_score: float
    """The ranking score: `log_prob`, divided by the length penalty in beam search."""
    was_ended: bool = False
    """Whether the length limit or the repetition rule ended it, not the model."""


def length_penalty(length: int, alpha: float, form: PenaltyForm = "gnmt") -> float:
    """Return the divisor of a log-probability by which hypotheses are compared.

    Args:
        length: Target tokens, the end token included.
        alpha: Exponent; 0 ranks by probability alone (paper: 0.6).
        form: `gnmt` is ((5 + length) / (5 + 1)) ** alpha (Wu et al. 2016, equation 14; the paper's); `power` is
            length ** alpha (Hugging Face, fairseq).

    >>> round(length_penalty(5, 0.6), 4)
    1.3587
    """
    return float(((5 + length) / 6 if form == "gnmt" else length) ** alpha)

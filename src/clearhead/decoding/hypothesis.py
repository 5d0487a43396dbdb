"""A finished translation in tokens, and the length penalty that ranks it (paper section 6.1)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Hypothesis", "length_penalty"]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output of a search."""

    tokens: tuple[int, ...]
    """Target ids; the last one is `eos_id`."""
    log_prob: float
    """Sum of the log-probabilities of all tokens, in nats; what scoring the same tokens gives."""
    rank_score: float
    """What the search ranked by: `log_prob`, divided by the length penalty in beam search."""


def length_penalty(length: int, alpha: float) -> float:
    """Return the GNMT length penalty ((5 + length) / (5 + 1)) ** alpha (Wu et al. 2016, equation 14).

    Args:
        length: Target tokens, the end token included.
        alpha: Exponent; 0 ranks by probability alone (paper: 0.6).

    >>> round(length_penalty(5, 0.6), 4)
    1.3587
    """
    return ((5 + length) / 6) ** alpha

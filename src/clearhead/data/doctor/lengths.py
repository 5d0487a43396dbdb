"""How long the texts of a side are: counted by length, so that millions take as little room as there are lengths."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lengths", "histogram", "histogram_step"]

_SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
_MOST_BARS = 12


class Lengths:
    """Lengths of some texts, in characters or words."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """Length to the number of texts."""

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count the lengths of some texts."""
        values, counts = np.unique(lengths, return_counts=True)
        self.counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def quantile(self, share: float) -> int:
        """Return the least length that so large a share of the texts does not exceed; 0 if there are none."""
        wanted = share * self.counts.total()
        values = sorted(self.counts)
        reached = accumulate(self.counts[value] for value in values)
        return next((value for value, number in zip(values, reached, strict=True) if number >= wanted), 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the sum of all lengths and some quantiles."""
        return {
            "total": sum(length * count for length, count in self.counts.items()),
            "shortest": min(self.counts, default=0),
            **{name: self.quantile(share) for name, share in _SHARES.items()},
            "longest": max(self.counts, default=0),
        }


def histogram(lengths: Lengths, step: int) -> list[tuple[int, int | None, int]]:
    """Return how many texts are how long: first length, last one (None: all longer ones), and their number.

    Args:
        lengths: Of the texts.
        step: Lengths that are counted together.
    """
    if not lengths.counts:
        return []
    bars = [0] * _MOST_BARS
    for length, count in lengths.counts.items():
        bars[min(length // step, _MOST_BARS - 1)] += count
    last = max(place for place, count in enumerate(bars) if count)
    return [
        (place * step, None if place == _MOST_BARS - 1 else (place + 1) * step - 1, count)
        for place, count in enumerate(bars[: last + 1])
    ]


def histogram_step(*sides: Lengths) -> int:
    """Return a round number of lengths to count together, such that 99 of 100 texts stand in all bars but the last."""
    rough = max(1, *(one.quantile(0.99) / (_MOST_BARS - 1) for one in sides))
    size = 10 ** math.floor(math.log10(rough))
    return int(next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough))

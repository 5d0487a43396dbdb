"""Length statistics of texts: counts per length, their quantiles, and the bars of a histogram.

Memory grows with the number of different lengths, not of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.text.line_statistics import quantile

_SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
_MOST_BARS = 12


class Lengths:
    """Lengths of some texts, in characters or words."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """Number of texts by length."""

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count the lengths of some texts."""
        values, counts = np.unique(lengths, return_counts=True)
        self.counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the sum of all lengths and some quantiles."""
        return {
            "total": sum(length * count for length, count in self.counts.items()),
            "shortest": min(self.counts, default=0),
            **{name: quantile(self.counts, share) for name, share in _SHARES.items()},
            "longest": max(self.counts, default=0),
        }


def histogram(lengths: Lengths, step: int) -> list[tuple[int, int | None, int]]:
    """Return the bars of a histogram: first length, last length (None: all longer ones), and number of texts.

    Args:
        lengths: Lengths of the texts.
        step: Number of lengths per bar.
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
    """Return a round bar width such that the bars before the last one hold 99 of 100 texts."""
    rough = max(1, *(quantile(one.counts, 0.99) / (_MOST_BARS - 1) for one in sides))
    size = 10 ** math.floor(math.log10(rough))
    return int(next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough))

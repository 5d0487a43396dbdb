"""Where the sides of a corpus are shifted against each other: rows whose sources belong to targets some rows away.

Translations are about as long as their sources (Gale and Church 1993), and share numbers, names and some signs. How
much that tells in this corpus is learned from its beginning; then each row is asked how much better its source would go
with the target a few rows up or down than with its own. Where that is so for row after row, the sum of it rises (CUSUM,
Page 1954), and the place where it began to rise is where the shift begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import Batch
from clearhead.formats import SentencePair
from clearhead.text.line_statistics import RATIO_FLOOR

__all__ = ["MOST_SHIFT", "ShiftSearch", "ShiftWeights", "ShiftedRows"]

MOST_SHIFT = 20
"""Rows by which the sides may be shifted."""

CLEAR_GAIN = 20.0
"""Nats by which all rows of a block must fit better with the shift than without, before it is named. In eight clean
corpora, each also in three random orders, none gained more than 10.6."""

MOST_GAIN = 5.0
"""Nats that one row adds or takes away at most: a few rows that go with others by chance are no block."""

LEAST_GAIN = 0.1
"""Nats by which they must do so on average."""

FEWEST_PAIRS = 50
"""A corpus of fewer is not searched."""

_LARGEST = 1.5
"""Differences of the logarithms of lengths beyond that count as so much."""
_LEAST_DIFFERENCE = 0.02
"""What is taken for the average difference where it is smaller."""
_STRONGEST = 3.0
"""Nats that one shared name or sign tells at most."""

_ONES = np.array([value.bit_count() for value in range(256)], dtype=np.int64)
_SHIFTS = [shift for shift in range(-MOST_SHIFT, MOST_SHIFT + 1) if shift]


@dataclass(frozen=True)
class ShiftedRows:
    """Consecutive pairs whose sources go with the targets of other pairs."""

    shift: int
    """How many rows further down the target of a source stands; below zero, further up."""
    rows: int
    """How many pairs."""
    first: SentencePair
    last_origin: str
    """Where the last one stands."""
    fitting: str
    """The target that fits the first source better."""
    gain: float
    """Nats by which they fit better with the shift, all together."""
    start: int
    """Pairs before them."""


@dataclass(frozen=True)
class _Rows:
    """What is compared of rows; a target's may be shorter by what has not come yet."""

    source_lengths: NDArray[np.float64]
    """Logarithms."""
    target_lengths: NDArray[np.float64]
    source_names: NDArray[np.uint64]
    target_names: NDArray[np.uint64]
    source_signs: NDArray[np.uint8]
    target_signs: NDArray[np.uint8]

    @classmethod
    def of(cls, batch: Batch) -> _Rows:
        source, target = batch.source, batch.target
        return cls(
            np.log(source.lengths + float(RATIO_FLOOR)),
            np.log(target.lengths + float(RATIO_FLOOR)),
            source.names,
            target.names,
            source.punctuation,
            target.punctuation,
        )

    @classmethod
    def joined(cls, rows: Iterable[_Rows]) -> _Rows:
        return cls(*(np.concatenate(part) for part in zip(*map(_Rows.parts, rows), strict=True)))

    def parts(self) -> tuple[NDArray[Any], ...]:
        return (
            *(self.source_lengths, self.target_lengths, self.source_names),
            *(self.target_names, self.source_signs, self.target_signs),
        )

    def since(self, start: int) -> _Rows:
        return _Rows(*(part[start:] for part in self.parts()))

    def compared(
        self, start: int, end: int, shift: int, usual: float
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Compare sources with the targets `shift` rows further down, which must be there.

        Returns:
            Difference of the lengths, names that are shared, and signs that are not, of each row.
        """
        here, there = slice(start, end), slice(start + shift, end + shift)
        difference = np.abs(self.target_lengths[there] - self.source_lengths[here] - usual)
        shared = (self.source_names[here] & self.target_names[there]).view(np.uint8).reshape(-1, 8)
        return (
            np.minimum(difference, _LARGEST),
            _ONES[shared].sum(axis=1),
            _ONES[self.source_signs[here] ^ self.target_signs[there]],
        )


@dataclass(frozen=True)
class ShiftWeights:
    """How much lengths, names and signs tell in a corpus about which sides belong together."""

    usual: float
    """Logarithm of how many times longer a target is than its source."""
    length: float
    """Nats that a difference of 1 in that logarithm tells."""
    name: float
    """Nats that a name on both sides tells."""
    sign: float
    """Nats that a sign on one side alone tells against."""

    @classmethod
    def learn(cls, batches: Sequence[Batch]) -> ShiftWeights | None:
        """Compare sides that belong together with others; None if there are too few.

        What belongs together are the sides under that shift, none included, under which they agree best; the median of
        all shifts stands for what does not.
        """
        if sum(len(batch.pairs) for batch in batches) < FEWEST_PAIRS:
            return None
        rows = _Rows.joined(map(_Rows.of, batches))
        # Medians of each side, not of the pairs: they are right even while the pairs are not.
        usual = float(np.median(rows.target_lengths) - np.median(rows.source_lengths))
        start, end = MOST_SHIFT, rows.source_lengths.size - MOST_SHIFT
        means = np.array(
            [
                [part.mean() for part in rows.compared(start, end, shift, usual)]
                for shift in range(-MOST_SHIFT, MOST_SHIFT + 1)
            ]
        )
        length, name, sign = means.T
        least, median = (max(float(value), _LEAST_DIFFERENCE) for value in (length.min(), np.median(length)))
        return cls(
            usual,
            1 / least - 1 / median,  # of two Laplace distributions
            _nats(name.max(), np.median(name)),
            _nats(np.median(sign), sign.min()),
        )


class ShiftSearch:
    """Takes the batches of a corpus one after the other, and finds the rows that are shifted."""

    def __init__(self, weights: ShiftWeights) -> None:
        self._weights = weights
        self._sums = {shift: _Sum(shift) for shift in _SHIFTS}
        self._rows: _Rows | None = None
        self._pairs: list[SentencePair] = []
        self._before = 0
        """Pairs before the first of those that are kept."""
        self._done = 0
        """How many of those that are kept have been looked at."""
        self._found: list[ShiftedRows] = []

    def add(self, batch: Batch) -> None:
        """Look at the rows whose neighbours are known by now."""
        rows = _Rows.of(batch)
        self._rows = rows if self._rows is None else _Rows.joined([self._rows, rows])
        self._pairs += batch.pairs
        self._advance(len(self._pairs) - MOST_SHIFT)

    def finish(self) -> list[ShiftedRows]:
        """Look at the last rows, and return all that were found, in order."""
        self._advance(len(self._pairs))
        self._found += [found for one in self._sums.values() if (found := one.close()) is not None]
        kept: list[ShiftedRows] = []
        for found in sorted(self._found, key=lambda one: -one.gain):  # a shift by 2 where it is by 1 is worse
            if not any(_overlap(found, other) for other in kept):
                kept.append(found)
        return sorted(kept, key=lambda one: one.start)

    def _advance(self, end: int) -> None:
        start = self._done
        if end <= start or self._rows is None:
            return
        own = self._cost(start, end, 0)
        for shift, one in self._sums.items():
            low, high = max(start, -shift), min(end, len(self._pairs) - shift)
            gains = np.zeros(end - start)
            if low < high:
                gains[low - start : high - start] = own[low - start : high - start] - self._cost(low, high, shift)
            np.clip(gains, -MOST_GAIN, MOST_GAIN, out=gains)
            self._found += one.add(gains, start, self._pairs, self._before)
        drop = max(0, end - MOST_SHIFT)
        self._rows, self._pairs = self._rows.since(drop), self._pairs[drop:]
        self._before += drop
        self._done = end - drop

    def _cost(self, start: int, end: int, shift: int) -> NDArray[np.float64]:
        """Return how badly each source goes with the target `shift` rows further down, in nats."""
        assert self._rows is not None
        weights = self._weights
        difference, shared, unshared = self._rows.compared(start, end, shift, weights.usual)
        return weights.length * difference - weights.name * shared + weights.sign * unshared


class _Sum:
    """What rows gained under one shift, all together, since they began to gain."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._sum = 0.0
        self._best: ShiftedRows | None = None
        """The rows from where the sum began to rise to where it was highest; None while it does not rise."""

    def add(
        self, gains: NDArray[np.float64], start: int, pairs: Sequence[SentencePair], before: int
    ) -> list[ShiftedRows]:
        """Add the gains of consecutive rows, and return what is known to have ended.

        Args:
            gains: Of the rows from `start` on.
            start: Place in `pairs` of the first.
            pairs: Those that are kept, as many after the last row as the shift needs, but at the corpus's end.
            before: Pairs before the first of these.
        """
        found = []
        at = 0
        while at < gains.size:
            rest = gains[at:] - LEAST_GAIN
            path = self._sum + np.cumsum(rest)
            sums = path - np.minimum.accumulate(np.minimum(path, 0.0))
            # It ends where it is back at zero, or where more is lost again than chance would take.
            highest = np.maximum.accumulate(np.maximum(sums, self._best.gain if self._best else 0.0))
            ends = np.flatnonzero((highest >= CLEAR_GAIN) & ((sums <= 0.0) | (sums < highest - CLEAR_GAIN)))
            size = int(ends[0]) if ends.size else rest.size
            if size:
                self._rise(sums[:size], start + at, pairs, before)
            if ends.size and (ended := self.close()) is not None:
                found.append(ended)
            at += size + bool(ends.size)
        return found

    def _rise(self, sums: NDArray[np.float64], start: int, pairs: Sequence[SentencePair], before: int) -> None:
        """Take note of where the sum of some rows last began to rise, and of where it was highest since then."""
        zeros = np.flatnonzero(sums <= 0.0)
        begin = int(zeros[-1]) + 1 if zeros.size else 0
        if zeros.size:
            self._best = None
        self._sum = float(sums[-1])
        if begin == sums.size:
            return
        top = begin + int(np.argmax(sums[begin:]))
        place = start + begin
        best = self._best or ShiftedRows(
            self._shift, 0, pairs[place], "", pairs[place + self._shift].target, 0.0, before + place
        )
        if sums[top] > best.gain:
            rows = before + start + top - best.start + 1
            best = replace(best, rows=rows, gain=float(sums[top]), last_origin=pairs[start + top].origin)
        self._best = best

    def close(self) -> ShiftedRows | None:
        """End the rows where the sum was highest, and return them if the gain is clear."""
        ended, self._best, self._sum = self._best, None, 0.0
        return ended if ended is not None and ended.gain >= CLEAR_GAIN else None


def _overlap(one: ShiftedRows, other: ShiftedRows) -> bool:
    return one.start < other.start + other.rows and other.start < one.start + one.rows


def _nats(more: float, fewer: float) -> float:
    """Return what one of a thing tells that is there so often on average, against one that is there so often."""
    return float(min(max(0.0, math.log((more + 0.01) / (fewer + 0.01))), _STRONGEST))

"""Detection of misaligned rows: blocks in which sources belong to targets some rows away.

Translations are about as long as their sources (Gale and Church 1993), and share numbers, names and some punctuation.
The weight of this evidence is learned from the beginning of the corpus. For each row, the gain is how much better its
source fits a target a few rows up or down than its own. If row after row gains, the cumulative sum rises (CUSUM, Page
1954), and the shift begins where it began to rise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import TextBatch
from clearhead.formats import SentencePair
from clearhead.text.line_statistics import RATIO_FLOOR

MOST_SHIFT = 20
"""Largest shift that is searched, in rows."""

CLEAR_GAIN = 20.0
"""Least total gain in nats for a block to be reported.

In eight clean corpora, each also in three random orders, none gained more than 10.6.
"""

MOST_GAIN = 5.0
"""Most nats that one row adds or subtracts, so that a few rows that fit others by chance are not reported."""

LEAST_GAIN = 0.1
"""Least average gain per row, in nats."""

FEWEST_PAIRS = 50
"""Fewest pairs of a corpus that is searched."""

_LARGEST = 1.5
"""Upper bound on differences of log lengths."""
_LEAST_DIFFERENCE = 0.02
"""Lower bound on the average difference."""
_STRONGEST = 3.0
"""Most nats that one shared name or sign contributes."""

_ONES = np.array([value.bit_count() for value in range(256)], dtype=np.int64)
_SHIFTS = [shift for shift in range(-MOST_SHIFT, MOST_SHIFT + 1) if shift]


@dataclass(frozen=True)
class ShiftedRows:
    """A block of consecutive pairs whose sources fit the targets of other pairs."""

    shift: int
    """Number of rows by which the targets are further down; negative for further up."""
    rows: int
    """Number of pairs."""
    first: SentencePair
    last_origin: str
    """Origin of the last pair."""
    fitting: str
    """The target that fits the first source better."""
    gain: float
    """Total gain in nats over all pairs of the block."""
    start: int
    """Number of pairs before them."""

    @property
    def where(self) -> str:
        """Where the target of each of its sources is."""
        far = abs(self.shift)
        return f"the target is {far} row{'s' * (far > 1)} further {'down' if self.shift > 0 else 'up'}"

    @property
    def description(self) -> str:
        """The block in words."""
        return (
            f"{self.rows:,} rows from here to {self.last_origin}: {self.where}; this source fits better with: "
            f"{self.fitting}"
        )


class _Rows(NamedTuple):
    """Features of rows for the comparison."""

    source_lengths: NDArray[np.float64]
    """Logarithms of the lengths."""
    target_lengths: NDArray[np.float64]
    source_names: NDArray[np.uint64]
    target_names: NDArray[np.uint64]
    source_signs: NDArray[np.uint8]
    target_signs: NDArray[np.uint8]

    @classmethod
    def of(cls, batch: TextBatch) -> _Rows:
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
        return cls(*map(np.concatenate, zip(*rows, strict=True)))

    def since(self, start: int) -> _Rows:
        return _Rows._make(part[start:] for part in self)

    def compared(
        self, start: int, end: int, shift: int, usual: float
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Compare sources with the targets `shift` rows further down, which must exist.

        Returns:
            For each row the difference of the lengths, the number of shared names, and the number of signs on one side
            only.
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
    """Weights of lengths, names and signs as evidence for a match, learned from a corpus."""

    usual: float
    """Typical log ratio of target to source length."""
    length: float
    """Nats per unit of difference from that log ratio."""
    name: float
    """Nats for a name on both sides."""
    sign: float
    """Nats against a match for a sign on one side only."""

    @classmethod
    def learn(cls, batches: Sequence[TextBatch]) -> ShiftWeights | None:
        """Learn the weights by comparing matching with other sides; None if there are too few pairs.

        The shift (possibly none) with the best agreement represents matching sides; the median over all shifts
        represents others.
        """
        if sum(len(batch.pairs) for batch in batches) < FEWEST_PAIRS:
            return None
        rows = _Rows.joined(map(_Rows.of, batches))
        # Medians of each side, not of the pairs: they are right even if the pairs are misaligned.
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
            1 / least - 1 / median,  # log ratio of two Laplace distributions
            _nats(name.max(), np.median(name)),
            _nats(np.median(sign), sign.min()),
        )


class ShiftSearch:
    """Streaming search for misaligned rows, batch by batch."""

    def __init__(self, weights: ShiftWeights) -> None:
        self._weights = weights
        self._sums = {shift: _Sum(shift) for shift in _SHIFTS}
        self._rows: _Rows | None = None
        self._pairs: list[SentencePair] = []
        self._before = 0
        """Number of pairs before the first one kept."""
        self._done = 0
        """Number of kept pairs that have been processed."""
        self._found: list[ShiftedRows] = []

    def add(self, batch: TextBatch) -> None:
        """Process the rows whose neighbours are already known."""
        rows = _Rows.of(batch)
        self._rows = rows if self._rows is None else _Rows.joined([self._rows, rows])
        self._pairs += batch.pairs
        self._advance(len(self._pairs) - MOST_SHIFT)

    def finish(self) -> list[ShiftedRows]:
        """Process the last rows, and return all blocks found, in order."""
        self._advance(len(self._pairs))
        self._found += [found for one in self._sums.values() if (found := one.close()) is not None]
        kept: list[ShiftedRows] = []
        for found in sorted(self._found, key=lambda one: -one.gain):  # a wrong shift gains less
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
        """Return the cost of matching each source with the target `shift` rows further down, in nats."""
        assert self._rows is not None
        weights = self._weights
        difference, shared, unshared = self._rows.compared(start, end, shift, weights.usual)
        return weights.length * difference - weights.name * shared + weights.sign * unshared


class _Sum:
    """Cumulative sum (CUSUM) of the gains under one shift."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._sum = 0.0
        self._best: ShiftedRows | None = None
        """The rows from where the sum began to rise to its maximum; None while it does not rise."""

    def add(
        self, gains: NDArray[np.float64], start: int, pairs: Sequence[SentencePair], before: int
    ) -> list[ShiftedRows]:
        """Add the gains of consecutive rows, and return the blocks that have ended.

        Args:
            gains: Gains of the rows from `start` on.
            start: Index in `pairs` of the first row.
            pairs: The pairs kept; after the last row they include as many as the shift needs, except at the corpus's
                end.
            before: Number of pairs before the first of `pairs`.
        """
        found = []
        at = 0
        while at < gains.size:
            rest = gains[at:] - LEAST_GAIN
            path = self._sum + np.cumsum(rest)
            sums = path - np.minimum.accumulate(np.minimum(path, 0.0))
            # A block ends if the sum is back at zero, or if more has been lost than chance explains.
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
        """Update the start of the last rise of the sum, and the position of its maximum since then."""
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
        """End the block at the maximum of the sum, and return it if the gain is clear."""
        ended, self._best, self._sum = self._best, None, 0.0
        return ended if ended is not None and ended.gain >= CLEAR_GAIN else None


def _overlap(one: ShiftedRows, other: ShiftedRows) -> bool:
    return one.start < other.start + other.rows and other.start < one.start + one.rows


def _nats(more: float, fewer: float) -> float:
    """Return the log ratio of two average counts, at least 0 and at most `_STRONGEST`."""
    return float(min(max(0.0, math.log((more + 0.01) / (fewer + 0.01))), _STRONGEST))

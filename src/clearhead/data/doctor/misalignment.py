"""Detection of misaligned rows: blocks in which sources belong to targets some rows away.

Translations are about as long as their sources (Gale and Church 1993), share numbers, names and some punctuation, and
mean the same, where sentence embeddings are compared. The weight of this evidence is learned from the beginning of the
corpus. For each row, the gain is how much better its source fits a target a few rows up or down than its own. If row
after row gains, the cumulative sum rises (CUSUM, Page 1954), and the shift begins where it began to rise.

Rows whose own targets are unusual, such as longer by a comment, fit nearly any other target better. So a block must
also fit with its shift better than with every other shift, and better than unrelated texts do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import TextBatch
from clearhead.data.doctor.meaning import Meaning
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

CLEAR_MARGIN = 8.0
"""Least margin in nats over every other shift, and over unrelated texts, for a block to be reported."""

LEAST_GAIN = 0.1
"""Least average gain per row, in nats."""

FEWEST_PAIRS = 50
"""Fewest pairs of a corpus that is searched."""

MOST_ROWS = 100
"""Where a block needs more rows than this to be found, lengths, names and signs are too weak as evidence."""

_LARGEST = 1.5
"""Upper bound on differences of log lengths."""
_LEAST_DIFFERENCE = 0.02
"""Lower bound on the average difference."""
_LOOSE = 0.1
"""Share of translations for which a fit is no likelier than for unrelated texts."""
_MEANING_PAIRS = 1_000
"""Most pairs from which the weight of meanings is learned."""
_NUM_QUANTILES = 32
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


class Rows(NamedTuple):
    """Features of rows for the comparison."""

    source_lengths: NDArray[np.float64]
    """Logarithms of the lengths."""
    target_lengths: NDArray[np.float64]
    source_names: NDArray[np.uint64]
    target_names: NDArray[np.uint64]
    source_signs: NDArray[np.uint8]
    target_signs: NDArray[np.uint8]

    source_meanings: NDArray[np.float32]
    """Embeddings, whose products are similarities; of no dimension if meanings are not compared."""
    target_meanings: NDArray[np.float32]

    @classmethod
    def of(cls, batch: TextBatch, meaning: Meaning | None = None) -> Rows:
        """Return the features of a batch; without meanings if they are not compared."""
        source, target = batch.source, batch.target
        none = np.zeros((len(batch), 0), dtype=np.float32)
        return cls(
            np.log(source.lengths + float(RATIO_FLOOR)),
            np.log(target.lengths + float(RATIO_FLOOR)),
            source.names,
            target.names,
            source.punctuation,
            target.punctuation,
            *((none, none) if meaning is None else meaning.embeddings(batch)),
        )

    @classmethod
    def joined(cls, rows: Iterable[Rows]) -> Rows:
        """Join consecutive rows."""
        return cls(*map(np.concatenate, zip(*rows, strict=True)))

    def since(self, start: int) -> Rows:
        """Return the rows from an index on."""
        return Rows._make(part[start:] for part in self)

    def compared(self, start: int, end: int, shift: int, usual: float) -> NDArray[np.float64]:
        """Compare sources with the targets `shift` rows further down, which must exist.

        Returns:
            An array of four rows: for each source the difference of the lengths, the number of shared names, the number
            of signs on one side only, and the similarity of the meanings.
        """
        here, there = slice(start, end), slice(start + shift, end + shift)
        difference = np.abs(self.target_lengths[there] - self.source_lengths[here] - usual)
        shared = self.source_names[here] & self.target_names[there]
        have_some = np.flatnonzero(shared)  # few, unless the sides belong to each other
        num_shared = np.zeros(shared.size)
        num_shared[have_some] = _ONES[shared[have_some].view(np.uint8).reshape(-1, 8)].sum(axis=1)
        return np.stack(
            (
                np.minimum(difference, _LARGEST),
                num_shared,
                _ONES[self.source_signs[here] ^ self.target_signs[there]],
                np.einsum("rd,rd->r", self.source_meanings[here], self.target_meanings[there]),
            )
        )


@dataclass(frozen=True)
class ShiftWeights:
    """Weights of lengths, names, signs and meanings as evidence for a match, learned from a corpus."""

    usual: float
    """Typical log ratio of target to source length."""
    weights: NDArray[np.float64]
    """Nats per unit of difference from that log ratio, per name on both sides, per sign on one side only, and per unit
    of similarity; negative if it is evidence against a match."""
    by_chance: NDArray[np.float64]
    """The average of each between unrelated texts; for the similarity, the middle between unrelated and matching."""
    target_lengths: NDArray[np.float64]
    """Quantiles of the log lengths of targets."""
    row_gain: float
    """Average nats that a row of a misaligned block gains, without its meaning."""

    @classmethod
    def learn(cls, batches: Sequence[TextBatch]) -> ShiftWeights | None:
        """Learn the weights by comparing matching with other sides; None if there are too few pairs.

        The shift (possibly none) with the best agreement represents matching sides; the median over all shifts
        represents others.
        """
        if sum(len(batch) for batch in batches) < FEWEST_PAIRS:
            return None
        rows = Rows.joined(map(Rows.of, batches))
        usual = _usual_ratio(rows)
        length, name, sign, _ = _means(rows, usual)
        least, median = (max(float(value), _LEAST_DIFFERENCE) for value in (length.min(), np.median(length)))
        weights = np.array(
            [
                1 / median - 1 / least,  # log ratio of two Laplace distributions
                _nats(name.max(), np.median(name)),
                -_nats(np.median(sign), sign.min()),
                0.0,
            ]
        )
        by_chance = np.array([median, np.median(name), np.median(sign), 0.0])
        matching = np.array([least, name.max(), sign.min(), 0.0])
        return cls(
            usual,
            weights,
            by_chance,
            np.quantile(rows.target_lengths, np.linspace(0.0, 1.0, _NUM_QUANTILES)),
            float(weights @ (matching - by_chance)),
        )

    def with_meaning(self, batch: TextBatch, meaning: Meaning) -> ShiftWeights:
        """Return the weights with that of meanings, learned from some of the first pairs."""
        if len(batch) < FEWEST_PAIRS:
            return self
        rows = Rows.of(batch.first_pairs(_MEANING_PAIRS), meaning)
        similarity = _means(rows, self.usual)[3]
        matching, other = float(similarity.max()), float(np.median(similarity))
        spread = float(np.std(rows.compared(0, rows.source_lengths.size - 1, 1, self.usual)[3]))
        weights, by_chance = self.weights.copy(), self.by_chance.copy()
        weights[3] = (matching - other) / spread**2  # log ratio of two normal distributions
        by_chance[3] = (matching + other) / 2
        return replace(self, weights=weights, by_chance=by_chance)

    @property
    def fewest_rows(self) -> int | None:
        """Fewest rows of a block that is found by lengths, names and signs; None if none is."""
        gain = self.row_gain - LEAST_GAIN
        return math.ceil(CLEAR_GAIN / gain) if gain > 0 else None

    @property
    def are_weak(self) -> bool:
        """Whether lengths, names and signs find no blocks of `MOST_ROWS` rows."""
        return self.fewest_rows is None or self.fewest_rows > MOST_ROWS

    def by_chance_in(self, rows: Rows, start: int, end: int) -> NDArray[np.float64]:
        """Return the evidence in nats that an unrelated target gives for each source."""
        # A short or long source differs from most targets, so chance is computed for its own length.
        lengths = self.target_lengths - rows.source_lengths[start:end, None] - self.usual
        others = float(self.weights[1:] @ self.by_chance[1:])
        return self.weights[0] * np.minimum(np.abs(lengths), _LARGEST).mean(axis=1) + others

    def features(self, rows: Rows, start: int, end: int, shift: int) -> NDArray[np.float64]:
        """Return the nats of each feature as evidence for sources and the targets `shift` rows further down."""
        return self.weights[:, None] * rows.compared(start, end, shift, self.usual)

    def evidence(
        self, rows: Rows, start: int, end: int, shift: int, by_chance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return by how many nats sources fit the targets `shift` rows further down better than unrelated ones."""
        gain = self.features(rows, start, end, shift).sum(axis=0) - by_chance
        # Some translations are unlike their sources, so that two targets which do not fit are about as unlikely.
        return np.logaddexp(np.log(_LOOSE), np.log(1 - _LOOSE) + np.minimum(gain, MOST_GAIN))


class ShiftSearch:
    """Streaming search for misaligned rows, batch by batch.

    Args:
        weights: The weights of the evidence, with the weight of meanings if the rows have meanings.
        first: Number of pairs before those that are added.
    """

    def __init__(self, weights: ShiftWeights, first: int = 0) -> None:
        self._weights = weights
        self._sums = {shift: _Sum(shift) for shift in _SHIFTS}
        self._rows: Rows | None = None
        self._pairs: list[SentencePair] = []
        self._before = first
        """Number of pairs before the first one kept."""
        self._done = 0
        """Number of kept pairs that have been processed."""
        self._totals = np.zeros(2 * MOST_SHIFT + 2)
        """Total evidence of all rows so far for each shift, and for unrelated texts, which is 0."""
        self._shifted: list[ShiftedRows] = []

    def add(self, rows: Rows, pairs: Sequence[SentencePair]) -> None:
        """Add consecutive pairs, and process the rows whose neighbours are already known."""
        self._rows = rows if self._rows is None else Rows.joined([self._rows, rows])
        self._pairs += pairs
        self._advance(len(self._pairs) - MOST_SHIFT)

    def finish(self) -> list[ShiftedRows]:
        """Process the last rows, and return all blocks found, in order."""
        self._advance(len(self._pairs))
        self._shifted += [shifted for own in self._sums.values() if (shifted := own.close()) is not None]
        kept: list[ShiftedRows] = []
        for shifted in sorted(self._shifted, key=lambda rows: -rows.gain):  # a wrong shift gains less
            if not any(_overlap(shifted, other) for other in kept):
                kept.append(shifted)
        return sorted(kept, key=lambda rows: rows.start)

    def _advance(self, end: int) -> None:
        start = self._done
        if end <= start or self._rows is None:
            return
        evidence = np.zeros((self._totals.size, end - start))
        by_chance = self._weights.by_chance_in(self._rows, start, end)
        for shift in range(-MOST_SHIFT, MOST_SHIFT + 1):
            low, high = max(start, -shift), min(end, len(self._pairs) - shift)
            if low < high:
                here = slice(low - start, high - start)
                gain = self._weights.evidence(self._rows, low, high, shift, by_chance[here])
                evidence[shift + MOST_SHIFT, here] = gain
        totals = self._totals[:, None] + np.pad(np.cumsum(evidence, axis=1), ((0, 0), (1, 0)))
        self._totals = totals[:, -1]
        for shift, own in self._sums.items():
            low, high = max(start, -shift) - start, min(end, len(self._pairs) - shift) - start
            gains = np.clip(evidence[shift + MOST_SHIFT] - evidence[MOST_SHIFT], -MOST_GAIN, MOST_GAIN)
            gains[: max(0, low)] = gains[max(0, high) :] = 0.0
            self._shifted += own.add(gains, totals, start, self._pairs, self._before)
        drop = max(0, end - MOST_SHIFT)
        self._rows, self._pairs = self._rows.since(drop), self._pairs[drop:]
        self._before += drop
        self._done = end - drop


class _Sum:
    """Cumulative sum (CUSUM) of the gains under one shift."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._sum = 0.0
        self._first = self._last = np.zeros(2 * MOST_SHIFT + 2)
        """Total evidence for each shift before the rows of `_best`, and with them."""
        self._best: ShiftedRows | None = None
        """The rows from where the sum began to rise to its maximum; None while it does not rise."""

    def add(
        self,
        gains: NDArray[np.float64],
        totals: NDArray[np.float64],
        start: int,
        pairs: Sequence[SentencePair],
        before: int,
    ) -> list[ShiftedRows]:
        """Add the gains of consecutive rows, and return the blocks that have ended.

        Args:
            gains: Gains of the rows from `start` on.
            totals: Total evidence for each shift before each of these rows, and after the last.
            start: Index in `pairs` of the first row.
            pairs: The pairs kept; after the last row they include as many as the shift needs, except at the corpus's
                end.
            before: Number of pairs before the first of `pairs`.
        """
        all_ended = []
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
                self._rise(sums[:size], totals[:, at:], start + at, pairs, before)
            if ends.size and (ended := self.close()) is not None:
                all_ended.append(ended)
            at += size + bool(ends.size)
        return all_ended

    def _rise(
        self,
        sums: NDArray[np.float64],
        totals: NDArray[np.float64],
        start: int,
        pairs: Sequence[SentencePair],
        before: int,
    ) -> None:
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
        best = self._best
        if best is None:
            fitting = pairs[place + self._shift].target
            best = ShiftedRows(self._shift, 0, pairs[place], "", fitting, 0.0, before + place)
            self._first = totals[:, begin]
        if sums[top] > best.gain:
            self._last = totals[:, top + 1]
            rows = before + start + top - best.start + 1
            best = replace(best, rows=rows, gain=float(sums[top]), last_origin=pairs[start + top].origin)
        self._best = best

    def close(self) -> ShiftedRows | None:
        """End the block at the maximum of the sum, and return it if the gain is clear, also over other shifts."""
        ended, self._best, self._sum = self._best, None, 0.0
        if ended is None or ended.gain < CLEAR_GAIN:
            return None
        evidence = self._last - self._first
        others = np.delete(evidence, self._shift + MOST_SHIFT)
        return ended if evidence[self._shift + MOST_SHIFT] - others.max() >= CLEAR_MARGIN else None


def _overlap(left: ShiftedRows, right: ShiftedRows) -> bool:
    return left.start < right.start + right.rows and right.start < left.start + left.rows


def _usual_ratio(rows: Rows) -> float:
    """Return the typical log ratio of lengths, under the shift with which it is most alike: pairs may be misaligned."""
    candidates = []
    for shift in range(-MOST_SHIFT, MOST_SHIFT + 1):
        sources = rows.source_lengths[max(0, -shift) : rows.source_lengths.size - max(0, shift)]
        ratios = rows.target_lengths[max(0, shift) :][: sources.size] - sources
        usual = float(np.median(ratios))
        candidates.append((float(np.minimum(np.abs(ratios - usual), _LARGEST).mean()), usual))
    return min(candidates)[1]


def _means(rows: Rows, usual: float) -> NDArray[np.float64]:
    """Return for each shift the average of each feature."""
    start, end = MOST_SHIFT, rows.source_lengths.size - MOST_SHIFT
    shifts = range(-MOST_SHIFT, MOST_SHIFT + 1)
    return np.array([rows.compared(start, end, shift, usual).mean(axis=1) for shift in shifts]).T


def _nats(more: float, fewer: float) -> float:
    """Return the log ratio of two average counts, at least 0 and at most `_STRONGEST`."""
    return float(min(max(0.0, math.log((more + 0.01) / (fewer + 0.01))), _STRONGEST))

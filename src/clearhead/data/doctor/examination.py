"""Examination of a corpus in one pass: all checks, duplicates, leakage, row counts and lengths; its results.

It takes at most 114 bytes of memory per pair. That of lengths grows with the number of different ones.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.batch_examination import BatchExaminer, ExaminedBatch, Lengths, SideStatistics, keys_of
from clearhead.data.doctor.checks import Found, Usual
from clearhead.data.doctor.code_points import PairBatch, Sides, batches_of
from clearhead.data.doctor.findings import KINDS, NUM_EXAMPLES, Finding, shown
from clearhead.data.doctor.meaning import Meaning
from clearhead.data.doctor.misalignment import ShiftedRows, ShiftSearch, ShiftWeights
from clearhead.data.first_seen import FirstRows, digests_of, mixed
from clearhead.formats import SKIPS, SentencePair
from clearhead.runtime.shards import FEWER_PROCESSES, run_shards
from clearhead.text.line_statistics import quantile

_MOST_BARS = 12


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
    rough = max(1, *(quantile(side.counts, 0.99) / (_MOST_BARS - 1) for side in sides))
    size = 10 ** math.floor(math.log10(rough))
    return int(next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough))


HEAD_BATCHES = 3
"""Batches at the beginning of a corpus from which typical properties are learned: some 25,000 pairs at most."""

ALONE_BATCHES = 8
"""Batches that one process examines before others are started, which takes each about as long."""

BITS = {name: 1 << place for place, name in enumerate(KINDS)}
"""The bit of each finding in `Examination.kinds_of_pairs`."""

REPEATED = {"duplicate", "several_targets"}
"""Findings of a pair that depend on earlier pairs."""

OnFound = Callable[[PairBatch, str, Found], None]
"""Called with a batch, the name of a finding, and its pairs that have it."""

MOST_UNASKED = 100_000
"""Most pairs whose meanings are compared without being asked for: a few minutes."""

MALFORMED = "malformed"
"""Reason of rows that are no pairs; the others are `SKIPS`."""


@dataclass
class RowCounts:
    """Counts of all rows read: pairs, and other rows by reason."""

    read: int = 0
    pairs: int = 0
    others: Counter[str] = field(default_factory=Counter)
    """Rows that are no pairs, by reason: `malformed`, or one of `SKIPS`."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Origins and defects of the first of them, by reason."""

    def pairs_of(self, rows: Iterable[SentencePair], on_rows: Callable[[int], None] | None) -> Iterator[SentencePair]:
        """Count rows, and yield those that are pairs."""
        for row in rows:
            self.read += 1
            if on_rows is not None and self.read % 1_000 == 0:
                on_rows(1_000)
            if row.is_pair:
                self.pairs += 1
                yield row
                continue
            reason = MALFORMED if row.defect is not None else str(row.skipped)
            self.others[reason] += 1
            if len(examples := self.examples.setdefault(reason, [])) < NUM_EXAMPLES:
                examples.append(f"{row.origin}: {shown(row.defect)}" if row.defect is not None else row.origin)

    def check(self) -> None:
        """Check that every row is counted.

        Raises:
            AssertionError: If the counts do not add up, which is a bug of ours.
        """
        assert self.read == self.pairs + self.others.total(), f"{self.read} rows read, but counted are {self}"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain values, every reason included."""
        reasons = dict.fromkeys((MALFORMED, *SKIPS), 0) | self.others
        return {"read": self.read, "pairs": self.pairs, **reasons, "examples": self.examples}


@dataclass
class Examination:
    """The results of an examination."""

    rows: RowCounts = field(default_factory=RowCounts)
    source: SideStatistics = field(default_factory=SideStatistics)
    target: SideStatistics = field(default_factory=SideStatistics)
    findings: dict[str, Finding] = field(default_factory=lambda: {name: Finding(name) for name in KINDS})
    kinds_of_pairs: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))
    """The findings of every pair, as the sum of their `BITS`."""
    shifted: list[ShiftedRows] = field(default_factory=list)
    """Blocks of misaligned pairs, in order."""
    shift_weights: ShiftWeights | None = None
    """How misaligned pairs are told; None if there are too few to learn it from."""
    usual: Usual | None = None
    """What is usual in the corpus; None before it is examined."""
    held_out: dict[str, RowCounts] = field(default_factory=dict)
    """The rows of each other split, such as `valid`."""

    def add_unequal_files(self, origin: str, problem: str) -> None:
        """Record line-aligned files that differ in their number of lines.

        Args:
            origin: The first line without a partner, as `file:line`.
            problem: Description of the difference.
        """
        self.findings["unequal_files"].add(SentencePair("", "", origin), problem)

    def add_shifted(self, blocks: Iterable[ShiftedRows]) -> None:
        """Record the blocks of misaligned pairs, once the other findings of all pairs are."""
        self.shifted = [*blocks]
        for block in self.shifted:
            self.findings["shifted"].add(block.first, block.description, pairs=block.rows)
            self.kinds_of_pairs[block.start : block.start + block.rows] |= BITS["shifted"]

    @property
    def without_findings(self) -> int:
        """Number of pairs without any finding."""
        return self.rows.pairs - int(np.count_nonzero(self.kinds_of_pairs))

    def found(self) -> list[Finding]:
        """Return the findings with at least one pair, the most important first."""
        order = {severity: place for place, severity in enumerate(("serious", "moderate", "mild"))}
        some = [finding for finding in self.findings.values() if finding.count]
        return sorted(some, key=lambda finding: (order[finding.kind.severity], -finding.count))

    def sizes(self) -> dict[str, Any]:
        """Return rows and lengths as plain values."""
        sides = {"source": self.source, "target": self.target}
        values: dict[str, Any] = {"rows": self.rows.to_dict()}
        for name, side in sides.items():
            values[name] = {"scripts": side.script_shares()}
            for unit in ("characters", "words"):
                lengths: Lengths = getattr(side, unit)
                bars = histogram(lengths, histogram_step(*(getattr(other, unit) for other in sides.values())))
                values[name][unit] = {**lengths.to_dict(), "histogram": [list(bar) for bar in bars]}
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values (docs/data-doctor.md)."""
        return {
            **self.sizes(),
            "held_out": {name: rows.to_dict() for name, rows in self.held_out.items()},
            "without_findings": self.without_findings,
            "findings": [finding.to_dict(self.rows.pairs) for finding in self.findings.values()],
        }


def measure(rows: Iterable[SentencePair], on_rows: Callable[[int], None] | None = None) -> Examination:
    """Count rows and measure lengths, without any checks.

    Args:
        rows: Rows as the readers yield them.
        on_rows: Called with a number of rows each time that many more have been read.
    """
    result = Examination()
    for batch in batches_of(result.rows.pairs_of(rows, on_rows)):
        result.source.add(SideStatistics.of(batch.texts.source))
        result.target.add(SideStatistics.of(batch.texts.target))
    result.rows.check()
    return result


def examine(
    rows: Iterable[SentencePair],
    held_out: Mapping[str, Iterable[SentencePair]] | None = None,
    on_rows: Callable[[int], None] | None = None,
    on_found: OnFound | None = None,
    kinds: Collection[str] = KINDS,
    with_meaning: bool | None = False,
    processes: int = 1,
) -> Examination:
    """Run all checks of `KINDS` that are possible.

    Args:
        rows: Rows as the readers yield them.
        held_out: Rows of each other split by its name, such as `valid`; they are read first.
        on_rows: Called with a number of rows each time that many more have been read.
        on_found: Called for every batch with every finding but `shifted`, whose pairs are known only at the end
            (`Examination.shifted`).
        kinds: The only findings that are needed; the others may be left out.
        with_meaning: Whether to compare meanings, for `shifted` and `no_translation`, which takes a hundred times as
            long as all else. If None, those of the first `MOST_UNASKED` pairs are, where lengths and names cannot tell
            which rows are shifted.
        processes: Processes that share the work, as far as the size of the corpus repays their start; the result is the
            same.
    """
    result = Examination()
    leakage = _Leakage()
    for name, others in (held_out or {}).items():
        split = result.held_out[name] = RowCounts()
        for batch in batches_of(split.pairs_of(others, on_rows)):
            keys = keys_of(batch.sides)
            in_common = leakage.look_up(keys, batch.texts.blank, but=name)
            result.findings["overlap"].add_all(batch.pairs, *in_common)
            if on_found is not None:
                on_found(batch, "overlap", in_common)
            leakage.remember(name, batch, keys)
        split.check()
    if not held_out:
        result.findings["leakage"].unchecked = "no validation or test text is named"
    if len(held_out or {}) < 2:
        result.findings["overlap"].unchecked = "not both validation and test text are named"
    batches = batches_of(result.rows.pairs_of(rows, on_rows))
    _examine(batches, leakage if held_out else None, result, on_found, kinds, with_meaning, processes)
    result.rows.check()
    return result


def _examine(
    batches: Iterator[PairBatch],
    leakage: _Leakage | None,
    result: Examination,
    on_found: OnFound | None,
    wanted: Collection[str],
    with_meaning: bool | None,
    processes: int,
) -> None:
    head = list(islice(batches, HEAD_BATCHES))
    texts = [batch.texts for batch in head]
    weights = result.shift_weights = ShiftWeights.learn(texts) if "shifted" in wanted else None
    are_weak = weights is not None and weights.are_weak
    usual = result.usual = Usual.learn(texts, with_meaning=are_weak if with_meaning is None else with_meaning)
    meaning = None if isinstance(usual.meaning, str) else usual.meaning
    for name, reason in usual.unchecked().items():
        result.findings[name].unchecked = reason
    if weights is not None and weights.are_weak:
        result.findings["shifted"].note = _told_by(weights, usual.meaning, is_asked=with_meaning is not None)
    shifts: list[ShiftSearch] = []
    if weights is not None:
        result.shift_weights = weights if meaning is None else weights.with_meaning(texts[0], meaning)
        shifts.append(ShiftSearch(result.shift_weights))
    del texts  # each is freed after use
    repeated = _Repeated() if REPEATED & {*wanted} else None
    kinds: list[NDArray[np.uint32]] = []
    make_examiner = partial(
        BatchExaminer, usual, (*wanted,), weights is not None, leakage is not None, on_found is not None
    )
    most_compared = 0 if meaning is None else MOST_UNASKED if with_meaning is None else sys.maxsize
    is_compared = meaning is not None
    for batch, own in _examined(make_examiner, head, batches, most_compared, processes):
        if is_compared and batch.first >= most_compared:
            is_compared = False
            shifts += [ShiftSearch(weights, first=batch.first)] if weights is not None else []
            result.findings["no_translation"].note = f"the first {batch.first:,} pairs were compared"
        result.source.add(own.source)
        result.target.add(own.target)
        kinds.append(np.zeros(len(batch.pairs), dtype=np.uint32))
        of_leakage = () if leakage is None or own.keys is None else (("leakage", leakage.look_up(own.keys, own.blank)),)
        of_repeated = () if repeated is None else repeated.look_up(batch, own.blank)
        for name, pairs in chain(own.found(), of_repeated, of_leakage):
            result.findings[name].add_all(batch.pairs, *pairs)
            kinds[-1][pairs.places] |= BITS[name]
            if on_found is not None:
                on_found(batch, name, pairs)
        if own.rows is not None:
            shifts[-1].add(own.rows, batch.pairs)
    if kinds:
        result.kinds_of_pairs = np.concatenate(kinds)
    if not shifts:
        result.findings["shifted"].unchecked = "there are too few pairs to learn from"
        return
    result.add_shifted(block for search in shifts for block in search.finish())


def _examined(
    make_examiner: Callable[[], BatchExaminer],
    head: list[PairBatch],
    rest: Iterator[PairBatch],
    most_compared: int,
    processes: int,
) -> Iterator[tuple[PairBatch, ExaminedBatch]]:
    """Examine each batch by itself, and yield all in order.

    Args:
        make_examiner: Makes what examines them.
        head: The first batches; each is dropped from the list so that it is freed after use.
        rest: The others.
        most_compared: The meanings of batches that begin before this pair are compared.
        processes: Number of processes at most.
    """
    batches = chain(_handed_over(head), rest)
    num_alone = None if processes == 1 or len(head) == 1 else 0 if most_compared else ALONE_BATCHES
    for batch in islice(batches, num_alone):
        yield batch, make_examiner().examined(batch.texts, batch.first < most_compared)
    if (following := next(batches, None)) is None:
        return
    waiting = deque[PairBatch]()

    def shards() -> Iterator[tuple[Sides, bool]]:
        for batch in chain([following], batches):
            waiting.append(batch)
            yield batch.sides, batch.first < most_compared

    with closing(run_shards(make_examiner, shards(), workers=processes, advice=FEWER_PROCESSES)) as results:
        for own in results:
            yield waiting.popleft(), own


def _told_by(weights: ShiftWeights, meaning: Meaning | str, *, is_asked: bool) -> str:
    """Return how misaligned rows are told where lengths, names and signs are weak evidence."""
    fewest = weights.fewest_rows
    words = "they show none" if fewest is None else f"they show only blocks of about {fewest:,} rows and more"
    weak = f"lengths, names and punctuation tell little in this corpus: {words}"
    if isinstance(meaning, str):
        return f"{weak}, and meanings are not compared: {meaning}"
    limit = "" if is_asked else f", those of the first {MOST_UNASKED:,} pairs (all with --meaning)"
    return f"{weak}; so meanings are compared{limit}"


def _handed_over(batches: list[PairBatch]) -> Iterator[PairBatch]:
    """Yield batches in order, and drop each from the list so that it is freed after use."""
    batches.reverse()
    while batches:
        yield batches.pop()


class _Origins:
    """The origins of the pairs of a corpus, in four bytes each."""

    def __init__(self) -> None:
        self._lines: list[NDArray[np.uint32]] = []
        self._starts: list[int] = []
        self._files: list[tuple[int, str]] = []
        """Number of the first pair of each file, and its name."""

    def add(self, batch: PairBatch) -> None:
        self._starts.append(batch.first)
        self._lines.append(batch.lines)
        if self._files and all(batch.pairs[place].origin.startswith(self._files[-1][1]) for place in (0, -1)):
            return  # files are read one after the other, so the pairs between are from the same file
        for place, pair in enumerate(batch.pairs):
            if not self._files or not pair.origin.startswith(self._files[-1][1]):
                self._files.append((batch.first + place, pair.origin.rpartition(":")[0] + ":"))

    def of(self, row: int) -> str:
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        name = next(name for first, name in reversed(self._files) if first <= row)
        return f"{name}{self._lines[batch][row - self._starts[batch]]}"


class _Repeated:
    """Duplicate pairs, and sources with several targets."""

    def __init__(self) -> None:
        self._pairs, self._sources, self._origins = FirstRows(), FirstRows(), _Origins()

    def look_up(self, batch: PairBatch, blank: NDArray[np.bool_]) -> Iterator[tuple[str, Found]]:
        """Yield the repeated pairs, and the repeated sources with other targets."""
        self._origins.add(batch)
        sources, targets = map(digests_of, batch.sides)
        pairs = self._pairs.add(mixed(sources, targets), batch.first)
        same = self._sources.add(sources, batch.first)
        yield "duplicate", Found(np.flatnonzero((pairs >= 0) & ~blank), partial(self._first, pairs))
        is_other = (same >= 0) & (pairs < 0) & ~blank
        yield "several_targets", Found(np.flatnonzero(is_other), partial(self._first, same))

    def _first(self, rows: NDArray[np.int64], place: int) -> str:
        return f"first at {self._origins.of(int(rows[place]))}"


class _Leakage:
    """Sides that also occur in validation or test text, compared as in cleaning."""

    def __init__(self) -> None:
        self._splits: dict[str, tuple[FirstRows, _Origins]] = {}

    def remember(self, name: str, batch: PairBatch, keys: Sides) -> None:
        """Remember the keys of both sides of the pairs of a split."""
        table, origins = self._splits.setdefault(name, (FirstRows(), _Origins()))
        origins.add(batch)
        for side in keys:
            table.add(digests_of(side), batch.first)

    def look_up(self, keys: Sides, blank: NDArray[np.bool_], *, but: str = "") -> Found:
        """Return the pairs with a side, by its key, in a split other than `but`."""
        is_one = np.zeros(blank.size, dtype=bool)
        splits = {name: split for name, split in self._splits.items() if name != but}
        repeated = [
            (side, name, origins, table.find(digests))
            for side, digests in zip(("source", "target"), map(digests_of, keys), strict=True)
            for name, (table, origins) in splits.items()
        ]
        for *_, rows in repeated:
            is_one |= rows >= 0
        is_one &= ~blank

        def detail(place: int) -> str:
            return "; ".join(
                f"the {side} is at {origins.of(int(rows[place]))} ({name})"
                for side, name, origins, rows in repeated
                if rows[place] >= 0
            )

        return Found(np.flatnonzero(is_one), detail)

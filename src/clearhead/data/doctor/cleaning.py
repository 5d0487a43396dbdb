"""Cleaning by the findings of the data doctor: what can be mended is mended, what is wrong is dropped, all is counted.

The corpus is read twice. The first time it is examined, which decides what to do with each row, in a few bytes a row.
The second time the rows are mended, checked again, and passed on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from clearhead.config.choices import DropKind, FixKind
from clearhead.data.doctor.checks import found_in, without_entities
from clearhead.data.doctor.code_points import BATCH_PAIRS, batches_of
from clearhead.data.doctor.examination import BITS, HEAD_BATCHES, MALFORMED, Examination, examine
from clearhead.data.doctor.findings import KINDS
from clearhead.data.doctor.meaning import Meaning
from clearhead.data.doctor.misalignment import MOST_SHIFT, ShiftedRows
from clearhead.data.doctor.mojibake import garbled, repaired_text
from clearhead.data.doctor.shift_borders import find_borders
from clearhead.data.first_seen import FirstRows, digests_of, mixed
from clearhead.errors import DataError
from clearhead.formats import SentencePair

FIXABLE: tuple[str, ...] = get_args(FixKind)
"""Findings that can be mended."""

DROPPABLE: tuple[str, ...] = get_args(DropKind)
"""Findings whose pairs can be dropped."""

DEFAULT_DROP = ("empty", "duplicate", "wrong_language", "other_language", "wrong_script", "length_ratio")
"""Findings, beside those that can be mended, that are nearly always mistakes (docs/data-doctor.md)."""

_NO_PARTNER = -128


class CleanedRow(NamedTuple):
    """A row of the corpus, and what became of it."""

    before: SentencePair
    after: SentencePair | None
    """None if it is dropped."""
    reasons: tuple[str, ...]
    """Findings that were mended; for a dropped row the one finding for which it is dropped, `malformed`, or one of
    `SKIPS`."""


class Cleaning:
    """A corpus that has been examined and can now be cleaned.

    Args:
        rows: Rows as the readers yield them; they are read now, and once more by `cleaned`.
        fix: Findings to mend, of `FIXABLE`. A pair that still has one of them afterwards is dropped.
        drop: Findings whose pairs are dropped, of `DROPPABLE`.
        on_rows: Called with a number of rows each time that many more have been examined.
        processes: Processes that share the examination, as for `examine`.
    """

    def __init__(
        self,
        rows: Iterable[SentencePair],
        fix: Collection[str],
        drop: Collection[str],
        on_rows: Callable[[int], None] | None = None,
        *,
        processes: int = 1,
    ) -> None:
        self._rows, self._fix = rows, fix
        self._reasons = [name for name in KINDS if name in fix or name in drop]
        self._looked_for = [name for name in self._reasons if name != "duplicate"]  # those of what is kept
        self.examination: Examination = examine(
            rows,
            on_rows=on_rows,
            kinds=self._looked_for,
            with_meaning="no_translation" in self._looked_for or None,
            processes=processes,
        )
        """What was found of the kinds named; duplicates are not looked for."""
        self.unmended: list[ShiftedRows] = []
        """Blocks that look misaligned by only some of the evidence; they are left as they are."""
        self._shifted = self._certain_blocks() if "shifted" in fix else []
        self.rows_in = self.rows_out = self.num_changed = 0
        self.changed: Counter[str] = Counter()
        """Rows that were mended and kept, by finding; a row may have several."""
        self.dropped: Counter[str] = Counter()
        """Rows dropped, by reason."""
        self._seen, self._num_seen = FirstRows(), 0

    def cleaned(self) -> Iterator[CleanedRow]:
        """Yield every row, in order.

        Raises:
            DataError: If the corpus is not the one that was examined.
        """
        rows = self._mended()
        while some := list(islice(rows, BATCH_PAIRS)):
            for row in self._decided(some):
                self.rows_in += 1
                if row.after is None:
                    self.dropped[row.reasons[0]] += 1
                else:
                    self.rows_out += 1
                    self.num_changed += bool(row.reasons)
                    self.changed.update(row.reasons)
                yield row
        if self.rows_in != self.examination.rows.read:
            raise DataError(
                f"the corpus has {self.rows_in:,} rows, and had {self.examination.rows.read:,} when it was examined; "
                f"clean it when nothing writes to its files"
            )
        assert self.rows_in == self.rows_out + self.dropped.total(), f"rows are lost: {vars(self)}"

    def unchecked_lines(self) -> list[str]:
        """Return which findings cannot be looked for, and why, as lines to print."""
        findings = self.examination.findings
        return [
            *(f"{name} is not looked for: {why}" for name in self._looked_for if (why := findings[name].unchecked)),
            *(f"{name}: {note}" for name in self._looked_for if (note := findings[name].note)),
            *(
                f"{block.rows:,} rows from {block.first.origin} to {block.last_origin} are left as they are: not "
                f"all of lengths, names and meanings show that {block.where}"
                for block in self.unmended
            ),
        ]

    def lines(self) -> list[str]:
        """Return the counts as lines to print, once all rows are cleaned."""
        changed = "".join(f"; {count:,} {name}" for name, count in self.changed.most_common())
        return [
            f"{self.rows_in:,} rows read",
            f"{self.rows_out:,} pairs written, {self.num_changed:,} of them changed{changed}",
            f"{self.dropped.total():,} rows dropped",
            *(f"{count:>12,} {name}" for name, count in self.dropped.most_common()),
        ]

    def _pairs(self) -> Iterator[SentencePair]:
        return (row for row in self._rows if row.is_pair)

    def _certain_blocks(self) -> list[ShiftedRows]:
        """Return the misaligned rows that are certain, and correct what the examination says of the others."""
        blocks, kinds = self.examination.shifted, self.examination.kinds_of_pairs
        weights, usual = self.examination.shift_weights, self.examination.usual
        if not blocks or weights is None or usual is None:
            return []
        meaning, identified = usual.meaning, usual.languages.identified
        if isinstance(meaning, str):
            head = [batch.texts for batch in islice(batches_of(self._pairs()), HEAD_BATCHES)]
            known = identified if isinstance(identified, str) else identified.languages
            meaning = Meaning.learn([batch.source for batch in head], [batch.target for batch in head], known)
            if not isinstance(meaning, str):
                weights = weights.with_meaning(head[0], meaning)
        borders = find_borders(
            blocks, self._pairs(), kinds.size, weights, None if isinstance(meaning, str) else meaning
        )
        certain: list[ShiftedRows] = []
        for block in blocks:
            kinds[block.start : block.start + block.rows] &= ~np.uint32(BITS["shifted"])
        for block, border in zip(blocks, borders, strict=True):
            if border is None:
                self.unmended.append(block)
            else:
                # Likely rows that are not certain are dropped, and so are those that have their targets.
                for start in (border.likely.start, border.likely.start + block.shift):
                    kinds[start : start + border.likely.rows] |= np.uint32(BITS["shifted"])
                certain.append(border.certain)
        return certain

    def _mended(self) -> Iterator[tuple[CleanedRow, int]]:
        """Yield every row as mended, and the bits of the findings that the examination made of it."""
        kinds = self.examination.kinds_of_pairs
        shifts = partners(self._shifted, kinds.size)
        for row, number, targets in _with_targets(self._rows):
            if not row.is_pair or number >= kinds.size:
                yield CleanedRow(row, None, (row.skipped or MALFORMED,)), 0
                continue
            bits, shift = int(kinds[number]), int(shifts[number])
            if shift == _NO_PARTNER:
                yield CleanedRow(row, None, ("shifted",)), 0
                continue
            pair, fixes = row, []
            if shift:
                pair = replace(row, target=targets[number + shift], links=None)
                fixes.append("shifted")
            for name, fix in _TEXT_FIXES.items():
                if name in self._fix and (shift or bits & BITS[name]):
                    source, target = fix(pair.source), fix(pair.target)
                    if (source, target) != (pair.source, pair.target):
                        pair = replace(pair, source=source, target=target, links=None)
                        fixes.append(name)
            if "swapped" in self._fix and bits & BITS["swapped"] and not shift:
                pair = pair.swapped()
                fixes.append("swapped")
            yield CleanedRow(row, pair, tuple(fixes)), bits

    def _decided(self, some: list[tuple[CleanedRow, int]]) -> Iterator[CleanedRow]:
        """Yield the rows; those dropped that have an unwanted finding, as they are now."""
        bits = self._bits_now(some)
        unwanted = sum(BITS[name] for name in self._looked_for)
        if "duplicate" in self._reasons:
            kept = [
                (place, row.after)
                for place, (row, _) in enumerate(some)
                if row.after is not None
                and not bits[place] & unwanted
                and row.after.source.strip()
                and row.after.target.strip()
            ]
            sources, targets = (digests_of([getattr(pair, side) for _, pair in kept]) for side in ("source", "target"))
            earlier = self._seen.add(mixed(sources, targets), self._num_seen)
            self._num_seen += len(kept)
            for (place, _), row_before in zip(kept, earlier.tolist(), strict=True):
                bits[place] |= BITS["duplicate"] * (row_before >= 0)
        for (row, _), own_bits in zip(some, bits, strict=True):
            reason = next((name for name in self._reasons if own_bits & BITS[name]), None)
            yield row if row.after is None or reason is None else CleanedRow(row.before, None, (reason,))

    def _bits_now(self, some: list[tuple[CleanedRow, int]]) -> list[int]:
        """Return the bits of the findings of rows: those that were mended are checked again."""
        usual = self.examination.usual
        assert usual is not None
        bits = [own_bits for _, own_bits in some]
        changed = [(place, row.after) for place, (row, _) in enumerate(some) if row.after is not None and row.reasons]
        for place, _ in changed:
            bits[place] &= BITS["several_targets"]
        for batch in batches_of(pair for _, pair in changed):
            for name, pairs in found_in(batch.texts, usual, self._looked_for):
                for at in pairs.places.tolist():
                    bits[changed[batch.first + at][0]] |= BITS[name]
        return bits


def partners(blocks: Iterable[ShiftedRows], num_pairs: int) -> NDArray[np.int8]:
    """Return for each pair how many pairs further down the target of its source is; `_NO_PARTNER` if there is none.

    Args:
        blocks: The blocks of misaligned pairs, in order.
        num_pairs: Number of pairs of the corpus.
    """
    shifts = np.zeros(num_pairs, dtype=np.int8)
    is_taken = np.zeros(num_pairs, dtype=bool)
    for block in blocks:
        rows = np.arange(block.start, block.start + block.rows)
        targets = rows + block.shift
        has_one = (targets >= 0) & (targets < num_pairs)
        has_one[has_one] = ~is_taken[targets[has_one]]
        shifts[rows] = np.where(has_one, block.shift, _NO_PARTNER)
        is_taken[targets[has_one]] = True
    shifts[is_taken & (shifts == 0)] = _NO_PARTNER  # beside a block, which has taken its target
    return shifts


def _with_targets(rows: Iterable[SentencePair]) -> Iterator[tuple[SentencePair, int, Mapping[int, str]]]:
    """Yield each row, the number of pairs before it, and the targets of the pairs around it, by their numbers."""
    targets: dict[int, str] = {}
    waiting: deque[tuple[SentencePair, int]] = deque()
    count = 0
    for row in rows:
        waiting.append((row, count))
        if row.is_pair:
            targets[count] = row.target
            count += 1
            targets.pop(count - 2 * MOST_SHIFT - 2, None)
        while waiting[0][1] + MOST_SHIFT < count:
            yield *waiting.popleft(), targets
    for pair in waiting:
        yield *pair, targets


def _unmojibaked(text: str) -> str:
    return (garbled(text) and repaired_text(text)) or text


_TEXT_FIXES: dict[str, Callable[[str], str]] = {"mojibake": _unmojibaked, "entities": without_entities}
"""Mends a side that has a finding."""

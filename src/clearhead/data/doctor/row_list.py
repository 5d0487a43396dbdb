"""Lists of rows, one a line with named columns: as TSV with a header, which spreadsheets open, or as JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from clearhead.data.doctor.checks import Found
from clearhead.data.doctor.cleaning import CleanedRow
from clearhead.data.doctor.code_points import PairBatch
from clearhead.data.doctor.examination import Examination
from clearhead.data.doctor.findings import KINDS
from clearhead.errors import DataError
from clearhead.files import os_error_as
from clearhead.files.streams import format_extension, open_output
from clearhead.formats import SKIPS, SentencePair

COLUMNS = ("origin", "finding", "detail", "source", "target")
"""Columns of a list of findings."""

CHANGE_COLUMNS = ("origin", "action", "finding", "detail", "source", "target", "new_source", "new_target")
"""Columns of a list of rows that cleaning dropped or changed."""

WriteRow = Callable[[Sequence[str]], object]


@contextmanager
def row_list(path: str, columns: Sequence[str]) -> Iterator[WriteRow]:
    """Open a list, which appears under its name only when the block ends without an error; yield what adds a row.

    Args:
        path: The file. If it ends in `.jsonl` (or in that and `.gz`, `.xz` or `.zst`), a row is a JSON object;
            otherwise tab-separated, with quotation marks around a text that contains a tab, a line end or such a mark.
        columns: The names of the columns.
    """
    is_json = format_extension(path) == ".jsonl"
    with open_output(path) as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")

        def write(row: Sequence[str]) -> None:
            with os_error_as(DataError, f"cannot write {path}"):  # within the writing of another file
                if is_json:
                    file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
                else:
                    table.writerow(row)

        if not is_json:
            write(columns)
        yield write


def change_row(row: CleanedRow) -> tuple[str, ...]:
    """Return a row that was dropped or changed, as its `CHANGE_COLUMNS`."""
    before, after = row.before, row.after
    detail = before.defect or "; ".join(
        SKIPS[reason] if reason in SKIPS else KINDS[reason].title for reason in row.reasons
    )
    action, new = ("dropped", ("", "")) if after is None else ("changed", (after.source, after.target))
    return before.origin, action, ",".join(row.reasons), detail, before.source, before.target, *new


class FindingList:
    """Writes every pair of every finding in the order of the corpus, those of shifted blocks last.

    Args:
        write: Adds a row of `COLUMNS`.
    """

    def __init__(self, write: WriteRow) -> None:
        self._write = write
        self._batch: PairBatch | None = None
        self._waiting: list[tuple[int, str, str]] = []
        """Index in the batch, finding and detail."""

    def add(self, batch: PairBatch, name: str, pairs: Found) -> None:
        """Add the pairs of a batch that have a finding; to be given to `examine`."""
        if batch is not self._batch:
            self._flush()
            self._batch = batch
        self._waiting += [(place, name, pairs.detail(place)) for place in pairs.places.tolist()]

    def finish(self, result: Examination, rows: Iterable[SentencePair]) -> None:
        """Add the pairs of shifted blocks, and line-aligned files of unequal length.

        Args:
            result: The examination.
            rows: The rows of the corpus once more.
        """
        self._flush()
        for example in result.findings["unequal_files"].examples:
            self._write((example.origin, "unequal_files", example.detail, "", ""))
        blocks = iter(result.shifted)
        block = next(blocks, None)
        for number, pair in enumerate(row for row in rows if row.is_pair) if block is not None else ():
            if block is not None and number >= block.start + block.rows:
                block = next(blocks, None)
            if block is None:
                break
            if number >= block.start:
                self._write((pair.origin, "shifted", block.where, pair.source, pair.target))

    def _flush(self) -> None:
        for place, name, detail in sorted(self._waiting, key=lambda item: item[0]):
            assert self._batch is not None
            pair = self._batch.pairs[place]
            self._write((pair.origin, name, detail, pair.source, pair.target))
        self._waiting.clear()

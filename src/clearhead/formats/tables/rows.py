"""Rows of a table: lines split into cells at a separator, with optional quotation marks (RFC 4180)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space", "|": "pipe", ":": "colon"}
"""Column separators, with their names."""

MOST_COLUMNS = 16_384
"""Maximum columns of a row, as in spreadsheets; a row with more is no row of a table."""


class TableRow(NamedTuple):
    """A row of a table."""

    line: int
    """Line number of its start in the file, counted from 1."""
    cells: list[str] | None
    """Texts of its cells; None if it cannot be parsed."""
    problem: str = ""
    """Reason why it cannot be parsed."""

    @property
    def is_blank(self) -> bool:
        """Whether it was parsed and has no text."""
        return self.cells is not None and not any(map(str.strip, self.cells))


@dataclass(frozen=True)
class TableFormat:
    """Format of a table."""

    name: str
    """Name of the format for messages."""
    separator: str
    """Character between two columns."""
    is_quoted: bool
    """Whether cells may be quoted, and may then contain separators and line endings (RFC 4180)."""
    has_fixed_width: bool = False
    """Whether a row with more columns than the others is an error: a separator that was meant as text."""
    is_html: bool = False
    """Whether cells hold HTML."""
    num_preamble: int = 0
    """Number of lines before the table that describe its format."""
    names: tuple[str, ...] = ()
    """Names of the columns, if the preamble gives them."""
    other_columns: frozenset[int] = frozenset()
    """Columns, counted from 0, that hold no text according to the preamble."""

    def rows(self, lines: Iterable[str]) -> Iterator[TableRow]:
        """Split the lines of a file, from its first line on, into rows; one row is in memory at a time."""
        first, rest = self.num_preamble + 1, islice(lines, self.num_preamble, None)
        if self.is_quoted:
            return map(_refused_if_wide, _quoted_rows(_Lines(rest, first), self.separator))
        split = (TableRow(number, line.split(self.separator)) for number, line in enumerate(rest, start=first))
        return map(_refused_if_wide, split)


def too_many_columns(row: Sized) -> str:
    """Return the problem of a row with more than `MOST_COLUMNS` cells; empty if it has fewer."""
    return f"the row has more than {MOST_COLUMNS:,} columns" if len(row) > MOST_COLUMNS else ""


def _refused_if_wide(row: TableRow) -> TableRow:
    problem = too_many_columns(row.cells or ())
    return TableRow(row.line, None, problem) if problem else row


class _Lines:
    """An iterator over lines with line endings, whose lines can be put back.

    Args:
        lines: Lines without line endings.
        first: Number of the first line.
    """

    def __init__(self, lines: Iterator[str], first: int) -> None:
        self._lines = lines
        self._waiting: list[str] = []
        self.next_number = first
        self.taken: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._waiting.pop() if self._waiting else next(self._lines) + "\n"
        self.next_number += 1
        self.taken.append(line)
        return line

    def put_back(self, lines: list[str]) -> None:
        """Put back the last lines, so that they are returned again."""
        self._waiting += reversed(lines)
        self.next_number -= len(lines)


def _quoted_rows(lines: _Lines, separator: str) -> Iterator[TableRow]:
    """Yield the rows of a quoted table (RFC 4180); line endings in cells become spaces, as a segment is a single line.

    An unclosed quotation mark swallows the lines after it, up to the csv module's limit of 131,072 characters a cell.
    Only the line of the quotation mark becomes a row with a problem; the swallowed lines are read again.
    """
    # Many programs write a space between the separator and the quotation mark; RFC 4180 would see an unquoted cell.
    reader = csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=separator in ",;")
    while True:
        lines.taken.clear()
        start = lines.next_number
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            lines.put_back(lines.taken[1:])
            yield TableRow(start, None, _in_words(str(error)))
        else:
            yield TableRow(start, [cell.replace("\n", " ") for cell in cells] if len(lines.taken) > 1 else cells)


def _in_words(error: str) -> str:
    if "expected after" in error:
        return "text follows a closing quotation mark"
    if "new-line" in error:
        return "there is a carriage return outside quotation marks"
    return f"a quotation mark is not closed within {csv.field_size_limit():,} characters"

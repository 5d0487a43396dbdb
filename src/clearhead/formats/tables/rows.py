"""Lines of a table cut into rows of cells: one character separates them, and quotation marks may enclose them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

__all__ = ["SEPARATOR_NAMES", "Row", "TableFormat"]

SEPARATOR_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", " ": "space", "|": "pipe", ":": "colon"}
"""What separates columns, in words."""


class Row(NamedTuple):
    """A row of a table."""

    line: int
    """Number of its first line in the file, counted from 1."""
    cells: list[str] | None
    """Text of its columns; None if it cannot be told."""
    problem: str = ""
    """Why not."""

    @property
    def is_blank(self) -> bool:
        """Whether it is there and holds no text."""
        return self.cells is not None and not any(map(str.strip, self.cells))


@dataclass(frozen=True)
class TableFormat:
    """How a table is written."""

    name: str
    """In words."""
    separator: str
    """Character between columns."""
    is_quoted: bool
    """Whether a cell may stand in quotation marks, with separators and line ends in it (RFC 4180)."""
    has_fixed_width: bool = False
    """Whether a row with more columns than the others has a mistake: a separator that was meant as text."""
    is_html: bool = False
    """Whether cells hold HTML."""
    num_preamble: int = 0
    """Lines before the table, which say how it is written."""
    names: tuple[str, ...] = ()
    """Names of columns that those lines give."""
    other_columns: frozenset[int] = frozenset()
    """Columns, counted from 0, that those lines say hold no text."""

    def rows(self, lines: Iterable[str]) -> Iterator[Row]:
        """Cut the lines of a file, the first one included, into rows; one row in memory at a time."""
        first, rest = self.num_preamble + 1, islice(lines, self.num_preamble, None)
        if self.is_quoted:
            return _quoted_rows(_Lines(rest, first), self.separator)
        return (Row(number, line.split(self.separator)) for number, line in enumerate(rest, start=first))


class _Lines:
    """Lines with their ends, which can be put back.

    Args:
        lines: Lines without their ends.
        first: Number of the first one.
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
        """Make these, which came last, come once more."""
        self._waiting += reversed(lines)
        self.next_number -= len(lines)


def _quoted_rows(lines: _Lines, separator: str) -> Iterator[Row]:
    """Cut as RFC 4180 says; a line end within quotation marks becomes a space, for a segment is a line everywhere else.

    A quotation mark without its partner swallows what follows. Only the line on which it stands is a row with a
    problem: those that it swallowed, at most the 131,072 characters that the library takes for a cell, are read again.
    """
    # Many programs write a space between separator and quotation mark, where RFC 4180 would see an unquoted cell.
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
            yield Row(start, None, _in_words(str(error)))
        else:
            yield Row(start, [cell.replace("\n", " ") for cell in cells] if len(lines.taken) > 1 else cells)


def _in_words(error: str) -> str:
    if "expected after" in error:
        return "text follows a closing quotation mark"
    if "new-line" in error:
        return "a carriage return stands outside quotation marks"
    return f"a quotation mark is not closed within {csv.field_size_limit():,} characters"

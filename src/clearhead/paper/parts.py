"""What a part of the paper is once it is computed: text to read, figures to draw, data, and the checks it made."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.inspection.plots import Figure

__all__ = ["Check", "Part", "aligned", "check_lines", "magnitude", "matrix_lines", "paragraph"]

_WIDTH = 116


@dataclass(frozen=True)
class Check:
    """One claim that was computed and compared with something that is not our code."""

    name: str
    """What is claimed, in a few words."""
    holds: bool
    evidence: str
    """The numbers measured, such as the largest difference."""


@dataclass(frozen=True)
class Part:
    """One table, figure or list of equations of the paper."""

    title: str
    text: str
    """Lines for a reader, ended by a newline."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """File name without extension -> what to draw."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the text as plain JSON values."""
    checks: tuple[Check, ...] = ()

    @property
    def failures(self) -> list[str]:
        """The checks that do not hold, each with its numbers."""
        return [f"{check.name}: {check.evidence}" for check in self.checks if not check.holds]


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, indent: int = 2) -> list[str]:
    """Return a table as lines, its columns as wide as their longest cell.

    Args:
        header: Names of the columns.
        rows: Cells, as many as columns in each row.
        left: Columns, from the first one, that are aligned left; the others hold numbers and are aligned right.
        indent: Spaces before each line.

    >>> aligned(["row", "PPL"], [["base", "4.92"], ["big", "4.33"]])
    ['  row    PPL', '  ----  ----', '  base  4.92', '  big   4.33']
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    return [
        " " * indent
        + "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def paragraph(text: str) -> list[str]:
    """Return running text as lines that fit a terminal, with an empty line before; a `~` is a space that stays whole.

    >>> paragraph("cheaper  while n~<~d")
    ['', 'cheaper while n < d']
    """
    words = " ".join(text.split())
    lines = textwrap.wrap(words, width=_WIDTH, break_on_hyphens=False, break_long_words=False)
    return ["", *(line.replace("~", " ") for line in lines)]


def matrix_lines(name: str, rows: Sequence[Sequence[float]], note: str = "", *, digits: int = 3) -> list[str]:
    r"""Return a small matrix with its name before and a note behind its first row.

    >>> print("\n".join(matrix_lines("A", [[1.0, 0.5], [-2.0, float("-inf")]], "scores", digits=1)))
      A            [  1.0   0.5 ]  scores
                   [ -2.0  -inf ]
    """
    cells = [[f"{value:.{digits}f}" for value in row] for row in rows]
    width = max(len(cell) for row in cells for cell in row)
    lines = ["[ " + "  ".join(cell.rjust(width) for cell in row) + " ]" for row in cells]
    lines[0] += f"  {note}" if note else ""
    return [f"  {'' if row else name:<12} {line}" for row, line in enumerate(lines)]


def magnitude(difference: float) -> str:
    """Return a difference for a reader: its order is what counts.

    >>> magnitude(2.22e-16), magnitude(0.0)
    ('2e-16', '0')
    """
    return f"{difference:.0e}" if difference else "0"


def check_lines(checks: Iterable[Check]) -> list[str]:
    """Return one line a check: whether it holds, what it claims and what was measured."""
    return [f"  {'ok    ' if check.holds else 'FAILED'}  {check.name}: {check.evidence}" for check in checks]

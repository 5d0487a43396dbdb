"""The result of computing a part of the paper (text, figures, data and checks), and functions to format it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.inspection.plots import Figure
from clearhead.paper.diagram import Diagram

_WIDTH = 116


@dataclass(frozen=True)
class Check:
    """Comparison of a computed result with an independent reference."""

    name: str
    """The claim, in a few words."""
    holds: bool
    evidence: str
    """The measured numbers, such as the largest difference."""


@dataclass(frozen=True)
class ModelPart:
    """A computed table, figure or list of equations of the paper."""

    title: str
    text: str
    """Text for a reader, ending in a newline."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """File name without extension -> figure to draw."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the text as plain JSON values."""
    checks: tuple[Check, ...] = ()
    pages: Mapping[str, str] = field(default_factory=dict)
    """File name without extension -> HTML page."""
    diagrams: Mapping[str, Diagram] = field(default_factory=dict)
    """File name without extension -> diagram to draw as SVG."""

    @property
    def failures(self) -> list[str]:
        """The claims and numbers of the checks that do not hold."""
        return [f"{check.name}: {check.evidence}" for check in self.checks if not check.holds]


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, indent: int = 2) -> list[str]:
    """Return a table as lines, with each column as wide as its longest cell.

    Args:
        header: Names of the columns.
        rows: Rows of cells, one cell for each column.
        left: Number of columns, from the first, that are left-aligned; the others hold numbers and are right-aligned.
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
    """Return text wrapped to the terminal width, after an empty line; `~` is a non-breaking space.

    >>> paragraph("cheaper  while n~<~d")
    ['', 'cheaper while n < d']
    """
    return ["", *(line.replace("~", " ") for line in wrapped(" ".join(text.split())))]


def wrapped(text: str, *, first: str = "", others: str = "") -> list[str]:
    """Return text wrapped to the terminal width without breaking words.

    Args:
        text: Words and spaces, without newlines.
        first: Start of the first line.
        others: Start of the other lines.
    """
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def matrix_lines(name: str, rows: Sequence[Sequence[float]], note: str = "", *, digits: int = 3) -> list[str]:
    r"""Return a small matrix as lines, with its name before the first row and a note after it.

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
    """Return a difference rounded to one digit, because only its order of magnitude matters.

    >>> magnitude(2.22e-16), magnitude(0.0)
    ('2e-16', '0')
    """
    return f"{difference:.0e}" if difference else "0"


def part_text(lines: Iterable[str], checks: Iterable[Check]) -> str:
    """Return the text of a part: lines, and then one for each check."""
    return "\n".join([*lines, "", *check_lines(checks)]) + "\n"


def check_lines(checks: Iterable[Check]) -> list[str]:
    """Return one line for each check: whether it holds, its claim and the measured numbers."""
    return [f"  {'ok    ' if check.holds else 'FAILED'}  {check.name}: {check.evidence}" for check in checks]

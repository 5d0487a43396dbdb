"""The parts of a walk: matrices with their names, steps (one formula with its numbers) and stages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clearhead.paper.places import CodeLine, line_of
from clearhead.paper.plain import Matrix
from clearhead.runtime.lazy import cached_property

DECIMALS = 2
"""Decimals of a printed result."""
MOST_DECIMALS = 12
"""With more, operands could not be computed with by hand."""


@dataclass(frozen=True)
class NamedMatrix:
    """A matrix with its name; its rows, and sometimes its columns, belong to tokens."""

    name: str
    values: Matrix
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @property
    def is_exact(self) -> bool:
        """Whether all numbers are integers, which are printed without decimals."""
        return all(value.is_integer() for row in self.values for value in map(float, row))

    def cells(self, decimals: int) -> list[list[str]]:
        """Return the numbers as they are printed."""
        return _printed(self.values, 0 if self.is_exact else decimals)


@dataclass(frozen=True)
class WalkStep:
    """One formula with its numbers: operands, weights and results."""

    formula: str
    code: tuple[str, ...]
    """Names of the places that compute it."""
    operands: tuple[NamedMatrix, ...]
    results: tuple[NamedMatrix, ...]
    replay: Callable[..., list[Matrix]]
    """Computes the results from the operands in plain Python."""
    block: str = ""
    """The block of the model whose weights are used; empty for none."""
    weights: tuple[NamedMatrix, ...] = ()

    @property
    def lines(self) -> list[CodeLine]:
        """The lines of code that compute it."""
        return list(map(line_of, self.code))

    @cached_property
    def decimals(self) -> int:
        """The fewest decimals of the operands, from `DECIMALS`, with which the results are right as printed."""
        for decimals in range(DECIMALS, MOST_DECIMALS):
            rounded = ([[float(cell) for cell in row] for row in table.cells(decimals)] for table in self.operands)
            pairs = zip(self.results, self.replay(*rounded), strict=True)
            if all(
                _printed(values, 0 if table.is_exact else DECIMALS) == table.cells(DECIMALS) for table, values in pairs
            ):
                return decimals
        return MOST_DECIMALS

    @property
    def difference(self) -> float:
        """The largest difference between the results of our code and of plain Python."""
        replayed = self.replay(*(table.values for table in self.operands))
        return max(
            abs(ours - other) if math.isfinite(ours) else float(ours != other)
            for table, values in zip(self.results, replayed, strict=True)
            for row, other_row in zip(table.values, values, strict=True)
            for ours, other in zip(row, other_row, strict=True)
        )


@dataclass(frozen=True)
class Stage:
    """A part of the way from the sentence to the next token."""

    name: str
    place: str
    """Section or equation of the paper."""
    about: str
    steps: Sequence[WalkStep]


@dataclass(frozen=True)
class Walk:
    """The stages of a sentence."""

    source: list[str]
    """Tokens that the encoder reads."""
    target: list[str]
    """Tokens that the decoder has read: the start token, and the first token of the translation."""
    next_token: str
    translation: list[str]
    """The whole translation by greedy search."""
    stages: list[Stage]


def _printed(matrix: Matrix, decimals: int) -> list[list[str]]:
    return [[f"{value:z.{decimals}f}" for value in row] for row in matrix]

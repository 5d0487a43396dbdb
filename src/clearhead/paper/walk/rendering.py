"""The page of a walk: a stage at a time, or all below each other where no script runs, and in print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clearhead.pages import Html, content_policy, fill, joined, script, style
from clearhead.pages.parts import table

if TYPE_CHECKING:
    from clearhead.paper.places import CodeLine

_PARTS = "walk_parts.html"
_NARROW_COLUMNS = 5
"""Columns that fit on a phone; matrices with more can be scrolled, also by keyboard."""


@dataclass(frozen=True)
class ShownMatrix:
    """A matrix as it is printed."""

    name: str
    cells: Sequence[Sequence[str]]
    rows: Sequence[str] = ()
    """Names of the rows; empty for none."""
    columns: Sequence[str] = ()
    kinds: Sequence[str] = ()
    """Kinds of the columns, `text` or `number`; empty if all are numbers."""


@dataclass(frozen=True)
class ShownStep:
    """A formula, the lines of code that compute it, and its matrices in groups, each with a heading."""

    formula: str
    code: Iterable[CodeLine]
    groups: Iterable[tuple[str, Iterable[ShownMatrix]]]


@dataclass(frozen=True)
class ShownStage:
    """A stage of the walk."""

    name: str
    place: str
    """Section or equation of the paper."""
    about: str
    steps: Iterable[ShownStep]


def render_walk(title: str, introduction: str, stages: Sequence[ShownStage], ending: str) -> str:
    """Return the HTML page of a walk."""
    css, code = style("walk.css"), script("walk/main.js")
    numbered = list(enumerate(stages, start=1))
    return fill(
        "walk.html",
        title=title,
        policy=content_policy(styles=[css], scripts=[code]),
        style=css,
        script=code,
        introduction=introduction,
        links=joined(fill(f"{_PARTS}#link", number=number, name=stage.name) for number, stage in numbered),
        stages=joined(_stage(number, len(numbered), stage) for number, stage in numbered),
        ending=ending,
    )


def _stage(number: int, count: int, stage: ShownStage) -> Html:
    return fill(
        f"{_PARTS}#stage",
        number=number,
        count=count,
        name=stage.name,
        place=stage.place,
        about=stage.about,
        steps=joined(_step(f"{number}.{place}", step) for place, step in enumerate(stage.steps, start=1)),
    )


def _step(number: str, step: ShownStep) -> Html:
    return fill(
        f"{_PARTS}#step",
        number=number,
        formula=step.formula,
        lines=joined(fill(f"{_PARTS}#line", file=line.file, number=line.number, text=line.text) for line in step.code),
        numbers=joined(
            fill(f"{_PARTS}#numbers", heading=heading, matrices=joined(_matrices(matrices)))
            for heading, matrices in step.groups
        ),
    )


def _matrices(matrices: Iterable[ShownMatrix]) -> Iterator[Html]:
    for matrix in matrices:
        width = len(matrix.cells[0])
        kinds = list(matrix.kinds or ["number"] * width)
        names = [[name] for name in matrix.rows] or [[] for _ in matrix.cells]
        yield fill(
            f"{_PARTS}#{'wide' if width > _NARROW_COLUMNS else 'narrow'}",
            name=matrix.name,
            table=_hatched(
                table(
                    ["row"] * len(names[0]) + kinds,
                    [[*name, *row] for name, row in zip(names, matrix.cells, strict=True)],
                    heads=["", *matrix.columns] if matrix.columns else (),
                    caption=matrix.name,
                )
            ),
        )


def _hatched(matrix: Html) -> Html:
    """Return a table whose masked cells, those of minus infinity, have a class of their own."""
    return Html(matrix.replace('<td class="number">-inf<', '<td class="number masked">-inf<'))

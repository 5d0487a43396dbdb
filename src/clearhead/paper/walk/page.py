"""The walk as a page: one stage at a time, or all below each other where no script runs, and in print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clearhead.pages import Html, content_policy, fill, joined, script, style
from clearhead.pages.parts import table
from clearhead.paper.walk.steps import DECIMALS, Stage, Step, Table, Walk
from clearhead.paper.walk.text import ending, introduction, labels

_PARTS = "walk_parts.html"
_NARROW_COLUMNS = 5
"""Columns that fit on a phone; matrices with more can be scrolled, also by keyboard."""


def walk_page(walk: Walk, title: str) -> str:
    """Return the HTML page of a walk."""
    css, code = style("walk.css"), script("walk/main.js")
    numbered = list(enumerate(walk.stages, start=1))
    return fill(
        "walk.html",
        title=title,
        policy=content_policy(style=css, script=code),
        style=css,
        script=code,
        introduction=introduction(walk),
        links=joined(fill(f"{_PARTS}#link", number=number, name=stage.name) for number, stage in numbered),
        stages=joined(_stage(number, len(numbered), stage) for number, stage in numbered),
        ending=ending(walk),
    )


def _stage(number: int, count: int, stage: Stage) -> Html:
    return fill(
        f"{_PARTS}#stage",
        number=number,
        count=count,
        name=stage.name,
        place=stage.place,
        about=stage.about,
        steps=joined(_step(f"{number}.{place}", step) for place, step in enumerate(stage.steps, start=1)),
    )


def _step(number: str, step: Step) -> Html:
    operands, weights, results = labels(step)
    return fill(
        f"{_PARTS}#step",
        number=number,
        formula=step.formula,
        lines=joined(fill(f"{_PARTS}#line", file=one.file, number=one.number, text=one.text) for one in step.code),
        numbers=joined(
            fill(f"{_PARTS}#numbers", heading=heading, matrices=joined(_matrices(tables, decimals)))
            for heading, tables, decimals in (
                (operands, step.operands, step.decimals),
                (weights, step.weights, 0),
                (results, step.results, DECIMALS),
            )
            if tables
        ),
    )


def _matrices(tables: Iterable[Table], decimals: int) -> Iterator[Html]:
    for one in tables:
        cells, width = one.cells(decimals), len(one.values[0])
        names = [[name] for name in one.rows] or [[] for _ in cells]
        yield fill(
            f"{_PARTS}#{'wide' if width > _NARROW_COLUMNS else 'narrow'}",
            name=one.name,
            table=table(
                ["row"] * len(names[0]) + ["number"] * width,
                [[*name, *row] for name, row in zip(names, cells, strict=True)],
                heads=["", *one.columns] if one.columns else (),
                caption=one.name,
            ),
        )

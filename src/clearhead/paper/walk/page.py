"""The walk as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from clearhead.paper.walk.rendering import ShownMatrix, ShownStage, ShownStep, render_walk
from clearhead.paper.walk.steps import DECIMALS, NamedMatrix, Walk, WalkStep
from clearhead.paper.walk.text import ending, introduction, labels


def walk_page(walk: Walk, title: str) -> str:
    """Return the HTML page of a walk."""
    stages = [
        ShownStage(stage.name, stage.place, stage.about, [_step(step) for step in stage.steps]) for stage in walk.stages
    ]
    return render_walk(title, introduction(walk), stages, ending(walk))


def _step(step: WalkStep) -> ShownStep:
    operands, weights, results = labels(step)
    groups = (
        (operands, step.operands, step.decimals),
        (weights, step.weights, 0),
        (results, step.results, DECIMALS),
    )
    return ShownStep(
        step.formula,
        step.lines,
        [(heading, _matrices(tables, decimals)) for heading, tables, decimals in groups if tables],
    )


def _matrices(tables: Iterable[NamedMatrix], decimals: int) -> Iterator[ShownMatrix]:
    for one in tables:
        yield ShownMatrix(one.name, one.cells(decimals), one.rows, one.columns)

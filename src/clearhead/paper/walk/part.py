"""The part "walk": a sentence from its ids to the next token, with every number, as text, data and a page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from clearhead.paper.parts import Check, ModelPart, magnitude, part_text
from clearhead.paper.plain import Matrix
from clearhead.paper.walk.model import EMBEDDING, SENTENCE, VOCABULARY, WEIGHTS, words_of
from clearhead.paper.walk.rendering import ShownMatrix, ShownStage, ShownStep, render_walk
from clearhead.paper.walk.stages import walked
from clearhead.paper.walk.steps import DECIMALS, MOST_DECIMALS, NamedMatrix, Walk, WalkStep
from clearhead.paper.walk.text import ending, introduction, labels, walk_lines

_TOLERANCE = 1e-6
"""The table of positions and the log-probabilities of a search are float32; all else is float64."""


def walk(text: str = SENTENCE) -> ModelPart:
    """Return the walk of a sentence.

    Args:
        text: Words that the model knows.

    Raises:
        ConfigError: If the model cannot read the sentence.
    """
    walk = walked(words_of(text))
    checks = tuple(_checks(walk))
    title = "A sentence step by step: every number from its ids to the next token"
    return ModelPart(
        title=title,
        text=part_text(walk_lines(walk), checks),
        data={
            "source": walk.source,
            "target": walk.target,
            "next_token": walk.next_token,
            "translation": walk.translation,
            "vocabulary": VOCABULARY,
            "weights": {"embedding": {"E": list(EMBEDDING.values())}, **WEIGHTS},
            "stages": [
                {
                    "number": number,
                    "name": stage.name,
                    "place": stage.place,
                    "steps": [_step_data(step) for step in stage.steps],
                }
                for number, stage in enumerate(walk.stages, start=1)
            ],
        },
        checks=checks,
        pages={"walk": _page(walk, title)},
    )


def _checks(walk: Walk) -> list[Check]:
    checks = [
        Check(f"stage {number}, {stage.name}: plain Python finds the same", worst <= _TOLERANCE, _evidence(worst))
        for number, stage in enumerate(walk.stages, start=1)
        for worst in [max(step.difference for step in stage.steps)]
    ]
    decimals = max(step.decimals for stage in walk.stages for step in stage.steps)
    [probabilities] = walk.stages[-1].steps[-1].results
    best = max(
        (token for token in VOCABULARY if token not in ("<pad>", "<s>")),
        key=lambda token: probabilities.values[VOCABULARY.index(token)],
    )
    return [
        *checks,
        Check(
            "the printed operands give the printed results",
            decimals < MOST_DECIMALS,
            f"{DECIMALS} to {decimals} decimals suffice",
        ),
        Check("greedy search writes the most probable token", best == walk.next_token, f"{walk.next_token}, {best}"),
    ]


def _evidence(difference: float) -> str:
    return f"largest difference {magnitude(difference)}"


def _step_data(step: WalkStep) -> dict[str, Any]:
    return {
        "formula": step.formula,
        "code": [asdict(line) for line in step.lines],
        "weights_of": step.block,
        "weights": [table.name for table in step.weights],
        "decimals": {"operands": step.decimals, "results": DECIMALS},
        "operands": {table.name: _table_data(table) for table in step.operands},
        "results": {table.name: _table_data(table) for table in step.results},
    }


def _table_data(table: NamedMatrix) -> dict[str, Any]:
    return {"rows": table.rows, "columns": table.columns, "values": _finite(table.values)}


def _page(walk: Walk, title: str) -> str:
    stages = [
        ShownStage(stage.name, stage.place, stage.about, [_shown(step) for step in stage.steps])
        for stage in walk.stages
    ]
    return render_walk(title, introduction(walk), stages, ending(walk))


def _shown(step: WalkStep) -> ShownStep:
    operands, weights, results = labels(step)
    groups = (
        (operands, step.operands, step.decimals),
        (weights, step.weights, 0),
        (results, step.results, DECIMALS),
    )
    shown = [(heading, _matrices(tables, decimals)) for heading, tables, decimals in groups if tables]
    return ShownStep(step.formula, step.lines, shown)


def _matrices(tables: Iterable[NamedMatrix], decimals: int) -> list[ShownMatrix]:
    return [ShownMatrix(table.name, table.cells(decimals), table.rows, table.columns) for table in tables]


def _finite(matrix: Matrix) -> list[list[float | None]]:
    """Return the numbers with None for minus infinity, which JSON does not have."""
    return [[value if math.isfinite(value) else None for value in row] for row in matrix]

"""The walk as text: the weights, then each stage with the operands and results of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from clearhead.paper.parts import paragraph, wrapped
from clearhead.paper.walk.model import CONFIG, EMBEDDING, LEARNED, VOCABULARY, WEIGHTS
from clearhead.paper.walk.steps import DECIMALS, NamedMatrix, Walk, WalkStep

_WIDTH = 100
_INDENT = " " * 7


def walk_lines(walk: Walk) -> list[str]:
    """Return all weights and all numbers of a walk, as lines."""
    lines = wrapped(introduction(walk))
    ids = NamedMatrix("id", [[float(number)] for number in range(len(EMBEDDING))], VOCABULARY)
    embedding = NamedMatrix("E", list(EMBEDDING.values()), VOCABULARY)
    lines += ["", "The weights", "-----------", "", "  the embedding, with the ids of the tokens"]
    lines += matrices([ids, embedding])
    for block, weights in WEIGHTS.items():
        lines += ["", f"  {block}", *matrices([NamedMatrix(name, matrix) for name, matrix in weights.items()])]
    for number, stage in enumerate(walk.stages, start=1):
        heading = f"Stage {number} of {len(walk.stages)}: {stage.name} ({stage.place})"
        lines += ["", heading, "-" * len(heading), *wrapped(stage.about)]
        for place, step in enumerate(stage.steps, start=1):
            lines += ["", f"  {number}.{place:<3}{step.formula}", *_step_lines(step)]
    return [*lines, *paragraph(ending(walk))]


def introduction(walk: Walk) -> str:
    """Return what is shown, and how the numbers are rounded."""
    return (
        f"A Transformer with d_model = {CONFIG.d_model}, {CONFIG.num_heads} heads, d_ff = {CONFIG.d_ff} and one layer "
        f"on each side reads '{' '.join(walk.source[:-1])}', has written '{' '.join(walk.target)}', and finds the next "
        f"token. It has learned {len(LEARNED)} sentences; its weights are integers from -2 to 2. Results have "
        f"{DECIMALS} decimals. Operands have as many as you need to compute the result to these decimals; numbers "
        "without decimals are exact. All numbers are those of one run of our Transformer, and each line of code is the "
        "one that computed them. Dropout, which some of these lines name, does nothing outside training."
    )


def ending(walk: Walk) -> str:
    """Return the next token, and the whole translation."""
    return (
        f"The next token is {walk.next_token}. The model continues token by token, and writes: "
        f"{' '.join(walk.translation)}"
    )


def labels(step: WalkStep) -> tuple[str, str, str]:
    """Return the headings of the operands, weights and results of a step."""
    operands, results = (
        "exact" if all(table.is_exact for table in tables) else f"to {decimals} decimals"
        for tables, decimals in ((step.operands, step.decimals), (step.results, DECIMALS))
    )
    return f"operands, {operands}", f"weights of {step.block}", f"result, {results}"


def _step_lines(step: WalkStep) -> Iterator[str]:
    operands, weights, results = labels(step)
    for line in step.lines:
        yield f"{_INDENT}clearhead/{line.file}:{line.number}  {line.text}"
    if step.weights:
        yield f"{_INDENT}{weights}: {', '.join(table.name for table in step.weights)}"
    if step.operands:
        yield f"{_INDENT}{operands}"
        yield from matrices(step.operands, step.decimals)
    yield f"{_INDENT}{results}"
    yield from matrices(step.results)


def matrices(tables: Iterable[NamedMatrix], decimals: int = DECIMALS) -> Iterator[str]:
    """Yield matrices as lines: side by side if their rows are the same."""
    for (rows, columns, height), group in groupby(tables, key=lambda item: (item.rows, item.columns, len(item.values))):
        if columns:
            yield f"{_INDENT}  columns: {', '.join(columns)}"
        row_names = ["", *(rows or [""] * height)]
        lines = [name.ljust(max(map(len, row_names))) for name in row_names]
        for block in (_block(table, decimals) for table in group):
            if len(lines[0]) + len(block[0]) > _WIDTH:
                yield from (f"{_INDENT}  {line}".rstrip() for line in lines)
                lines = [name.ljust(max(map(len, row_names))) for name in row_names]
            lines = [f"{line}  {more}" for line, more in zip(lines, block, strict=True)]
        yield from (f"{_INDENT}  {line}".rstrip() for line in lines)


def _block(table: NamedMatrix, decimals: int) -> Sequence[str]:
    """Return the name of a matrix and its rows, as lines of the same length."""
    cells = table.cells(decimals)
    width = max(len(cell) for row in cells for cell in row)
    lines = [table.name, *(f"[ {'  '.join(cell.rjust(width) for cell in row)} ]" for row in cells)]
    return [line.ljust(max(map(len, lines))) for line in lines]

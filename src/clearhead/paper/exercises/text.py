"""The exercises as text for the terminal, and as a file to fill in."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.paper.exercises.catalogue import EXERCISES
from clearhead.paper.exercises.checking import Verdict
from clearhead.paper.exercises.exercise import HEADER, Exercise
from clearhead.paper.parts import aligned


def exercise_list() -> str:
    """Return the numbers, sections and names of all exercises, and how to go on from there."""
    rows = [(str(one.number), one.section, one.name, _task(one)) for one in EXERCISES]
    return "\n".join(
        [
            *aligned(("no", "section", "function", "task"), rows, left=4),
            "",
            "clearhead paper exercises -o DIR writes all to exercises.py; fill in what is `...`.",
            "clearhead paper exercises DIR/exercises.py checks it; with a number before the file, one exercise.",
            "",
        ]
    )


def _task(exercise: Exercise) -> str:
    """Return the first line of the task."""
    return (exercise.solution.__doc__ or "").split("\n")[0]


def skeleton(exercise: Exercise) -> str:
    """Return an exercise as code to fill in, without imports."""
    return f"# Exercise {exercise.number}, section {exercise.section}\n{exercise.source('...')}"


def workbook(exercises: Sequence[Exercise] = EXERCISES) -> str:
    """Return a file with exercises to fill in."""
    return "\n\n".join([HEADER, *map(skeleton, exercises)])


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the answers that are not right, and how many there are of each kind.

    >>> print(summary([Verdict(27, "attention_is_cheaper", "open")]))
    0 right, 0 not right, 1 open; next: 27, attention_is_cheaper
    """
    states = [verdict.state for verdict in verdicts]
    counts = f"{states.count('right')} right, {states.count('wrong')} not right, {states.count('open')} open"
    following = [f"; next: {one.number}, {one.name}" for one in verdicts if one.state == "open"][:1]
    return "\n".join([*(str(one) for one in verdicts if one.state == "wrong"), counts + "".join(following)])

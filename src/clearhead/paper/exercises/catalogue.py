"""All exercises in the order of the paper: as a list, and as a file to fill in."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.errors import ClearheadError
from clearhead.paper.exercises.attention import ATTENTION_EXERCISES
from clearhead.paper.exercises.exercise import HEADER, Exercise
from clearhead.paper.exercises.heads import HEADS_EXERCISES
from clearhead.paper.exercises.layers import LAYERS_EXERCISES
from clearhead.paper.exercises.masks import MASKS_EXERCISES
from clearhead.paper.exercises.results import RESULTS_EXERCISES
from clearhead.paper.exercises.stacks import STACKS_EXERCISES
from clearhead.paper.exercises.training import TRAINING_EXERCISES
from clearhead.paper.parts import aligned

EXERCISES: tuple[Exercise, ...] = (
    *STACKS_EXERCISES,
    *ATTENTION_EXERCISES,
    *HEADS_EXERCISES,
    *MASKS_EXERCISES,
    *LAYERS_EXERCISES,
    *TRAINING_EXERCISES,
    *RESULTS_EXERCISES,
)


def exercise(number: int) -> Exercise:
    """Return the exercise with a number.

    Raises:
        ClearheadError: If there is none.
    """
    if not 1 <= number <= len(EXERCISES):
        raise ClearheadError(f"there is no exercise {number}; they are numbered from 1 to {len(EXERCISES)}")
    return EXERCISES[number - 1]


def exercise_list() -> str:
    """Return the numbers, sections and names of all exercises, and how to go on from there."""
    rows = [(str(entry.number), entry.section, entry.name, _task(entry)) for entry in EXERCISES]
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

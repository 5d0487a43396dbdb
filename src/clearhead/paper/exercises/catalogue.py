"""List of all exercises in the order of the paper."""

from __future__ import annotations

from clearhead.errors import ClearheadError
from clearhead.paper.exercises.attention import ATTENTION_EXERCISES
from clearhead.paper.exercises.exercise import Exercise
from clearhead.paper.exercises.heads import HEADS_EXERCISES
from clearhead.paper.exercises.layers import LAYERS_EXERCISES
from clearhead.paper.exercises.masks import MASKS_EXERCISES
from clearhead.paper.exercises.results import RESULTS_EXERCISES
from clearhead.paper.exercises.stacks import STACKS_EXERCISES
from clearhead.paper.exercises.training import TRAINING_EXERCISES

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

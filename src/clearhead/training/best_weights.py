"""Publish the weights of the best validation, or the average of the last checkpoints (paper section 6.1)."""

from __future__ import annotations

import json

from clearhead.files.tensors import average_weights
from clearhead.training.loop import Loop, named
from clearhead.training.publish import SideFilesOf
from clearhead.training.validation import Validation, is_better
from clearhead.translation.translator import Translator


def publish_best(loop: Loop, side_files: SideFilesOf | None = None) -> tuple[Validation, Translator | None]:
    """Publish the best checkpoint, or the average of the last ones if it validates better (paper section 6.1).

    Args:
        loop: The run, at the end of its training.
        side_files: Function that returns the side files of the model; without it, there are none.
    """
    best = loop.state.best
    assert best is not None, "training ends with a validation"
    # One worker decides: a directory shared by several machines may not look the same to all of them at once.
    told = json.dumps(_to_publish(loop, best.step)) if loop.workers.is_first else None
    step, last = json.loads(loop.workers.tell("to publish", told))
    path, chosen = loop.checkpoints.path(step), named(step)
    made_by = path  # the checkpoint whose steps and time the model records
    paths = [loop.checkpoints.directory / name for name in last]
    weights, validation = None, loop.best if step == best.step else None
    if validation is None:  # not by this process: measure again, to compare it with the average
        weights = loop.weights_of(path)
        validation = loop.validated(weights)
    if len(paths) > 1:
        loop.display.stage("averaging checkpoints", 0)
        average = average_weights(paths, loop.weights_of)  # holds one checkpoint at a time
        averaged = loop.validated(average)
        if is_better(averaged, validation):
            weights, validation, made_by = average, averaged, paths[-1]
            chosen = "average of " + ", ".join(path.name for path in paths)
    best_weights = weights or loop.weights_of(path)
    state = loop.checkpoints.state(made_by)
    return validation, loop.publish(best_weights, validation, chosen, state, side_files)


def _to_publish(loop: Loop, step: int) -> tuple[int, list[str]]:
    """Return the step of the best checkpoint (of the last, if that is damaged), and the checkpoints to average."""
    train = loop.config.train
    last = loop.checkpoints.last(train.average_last, multiple_of=train.checkpoint_every)
    return loop.checkpoints.good(step, last=loop.state.step), [path.name for path in last]

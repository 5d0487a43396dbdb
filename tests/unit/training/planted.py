"""Batches whose loss is not finite, or whose labels are drawn at random, planted in a run of this process."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from clearhead.training import packed_step
from clearhead.training.step import Loss
from clearhead.training.steps import PackedBatches, PaddedBatches


def plant(bad: Collection[int], *, with_labels: bool = False, put: Callable[..., object] = setattr) -> None:
    """Make the loss of batches NaN, or draw their labels.

    Args:
        bad: Numbers of the batches in the order of the data, counted from 0.
        with_labels: Whether to draw labels; packed batches have NaN alone.
        put: Sets an attribute.
    """
    number = [-1]
    forward, packed_loss = Loss.forward, packed_step.packed_loss
    for kind in (PaddedBatches, PackedBatches):
        put(kind, "of_step", noting(kind.of_step, number))

    def planted(loss: Loss, outputs: Any, target: Any) -> tuple[Any, Any]:
        factor = 1.0
        if number[0] in bad and with_labels:
            draw = torch.Generator().manual_seed(number[0])
            drawn = torch.randint(4, loss.model.config.vocab_size, target.shape, generator=draw)
            target = torch.where(target == loss.model.config.pad_id, target, drawn)
        elif number[0] in bad:
            factor = torch.nan
        found, nll = forward(loss, outputs, target)
        return factor * found, factor * nll

    def planted_packed(*parts: Any, **options: Any) -> tuple[Any, Any]:
        found, nll = packed_loss(*parts, **options)
        factor = torch.nan if number[0] in bad else 1.0
        return factor * found, factor * nll

    put(Loss, "forward", planted)
    put(packed_step, "packed_loss", planted_packed)


def noting(of_step: Callable[..., Any], number: list[int]) -> Callable[..., Any]:
    def note(batches: Any, step: int) -> Any:
        number[0] = step
        return of_step(batches, step)

    return note

"""Losses that are not finite, labels drawn at random, and a lack of memory, planted in a run of this process."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from clearhead.training import distributed, packed_step
from clearhead.training.step import Loss, Stepper
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


def lack_memory(where: str, step: int, part: int = 0) -> None:
    """Let a part of a step not fit into memory, once, and gradients be averaged in many buckets.

    Args:
        where: `copy` of a batch to the device, `encoder`, `loss`, or `backward`, when only the gradients of the encoder
            are still missing.
        step: Steps before it.
        part: Parts of the step before it.
    """
    of_step, begin, forward = PaddedBatches.of_step, Stepper.__init__, Loss.forward
    now, place = [-1, -1], [where, step, part]

    class SmallBuckets(distributed.DistributedDataParallel):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options, bucket_cap_mb=0.001)

    def note(batches: Any, step: int) -> Any:
        now[:] = step, -1
        parts, tokens = of_step(batches, step)
        if place == ["copy", step, part]:
            parts[part] = replace(parts[part], source=SimpleNamespace(to=fail))
        return parts, tokens

    def fail(*_: object, **__: object) -> None:
        place.clear()
        raise torch.OutOfMemoryError("CUDA out of memory")

    def is_at(here: str) -> bool:
        return torch.is_grad_enabled() and place == [here, *now]

    def begin_to_fail(stepper: Stepper, *args: Any) -> None:
        begin(stepper, *args)
        encode = stepper._encode

        def encode_or_fail(source: torch.Tensor) -> Any:
            now[1] += 1
            if is_at("encoder"):
                fail()
            memory, mask = encode(source)
            if is_at("backward"):
                memory.register_hook(fail)
            return memory, mask

        stepper._encode = encode_or_fail

    def forward_or_fail(loss: Loss, *args: Any) -> Any:
        if is_at("loss"):
            fail()
        return forward(loss, *args)

    distributed.DistributedDataParallel = SmallBuckets
    PaddedBatches.of_step, Stepper.__init__, Loss.forward = note, begin_to_fail, forward_or_fail


def noting(of_step: Callable[..., Any], number: list[int]) -> Callable[..., Any]:
    def note(batches: Any, step: int) -> Any:
        number[0] = step
        return of_step(batches, step)

    return note

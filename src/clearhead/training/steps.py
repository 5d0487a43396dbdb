"""The steps of a run: on padded batches, or on packed ones for one GPU, which a thread prepares ahead."""

from __future__ import annotations

import gc
import subprocess
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int32, Int64
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import Config
from clearhead.data.batches import Batch, BatchOrder, collate, copy_numbers, shares, split
from clearhead.data.store import PairStore
from clearhead.errors import TrainingError
from clearhead.kernels.cuda_graphs import GraphRecorder
from clearhead.kernels.packed_attention import HEAD_WIDTHS, NEEDED, has_triton
from clearhead.model.transformer import Transformer
from clearhead.runtime.device import has_fast_bf16
from clearhead.training.distributed import Workers
from clearhead.training.layers import changed
from clearhead.training.own_parts import OwnParts
from clearhead.training.packed_batches import PackedShape, number_of_parts, source_bound
from clearhead.training.packed_step import PackedStepper
from clearhead.training.step import (
    JointOutOfMemoryError,
    Stepper,
    StepResult,
    causes,
    is_out_of_memory,
    uses_bf16,
)


@dataclass(frozen=True)
class PaddedBatches:
    """The padded batches of one worker, each small enough to be computed at once."""

    pairs: PairStore
    order: BatchOrder
    config: Config
    workers: Workers

    def of_step(self, step: int) -> tuple[list[Batch], int]:
        """Return this worker's batches of a step, and the target tokens of all workers in it.

        Every worker gets at least one batch. With sharded weights every worker gets the same number, because the
        weights are gathered for each batch. Missing batches are filled with a pair that has no target tokens to learn.

        Args:
            step: Steps before it.
        """
        pairs, model, train = self.pairs, self.config.model, self.config.train
        rows = self.order.rows(step)
        lengths, copies = pairs.target_lengths[rows], copy_numbers(rows)
        cut = shares(np.arange(len(rows)), lengths, max(self.workers.count, train.accumulate))
        parts = [
            [part for share in own if share.size for part in split(share, lengths, train.micro_batch_tokens)]
            for own in self.workers.dealt(cut)
        ]
        batches = [
            collate(pairs, rows[part], copies=copies[part], pad_id=model.pad_id, bos_id=model.bos_id)
            for part in parts[self.workers.rank]
        ]
        wanted = max(map(len, parts)) if self.workers.is_sharding else 1
        if len(batches) < wanted:
            pair = collate(pairs, rows[:1], pad_id=model.pad_id, bos_id=model.bos_id)
            nothing = torch.full_like(pair.target_out, model.pad_id)
            silent = replace(pair, target_out=nothing, num_target_tokens=0, links=None)
            batches += [silent] * (wanted - len(batches))
        return batches, int(lengths.sum())


class PackedBatches:
    """Packed batches of each step, for one worker. A thread prepares the next step's batches.

    Args:
        pairs: The tokenized pairs.
        order: Assignment of pairs to steps.
        config: Complete settings.
        is_pinned: Whether to use pinned memory, from which a GPU copies asynchronously.
    """

    def __init__(self, pairs: PairStore, order: BatchOrder, config: Config, *, is_pinned: bool) -> None:
        self.pairs, self.order, self.config, self.is_pinned = pairs, order, config, is_pinned
        most_target, self._least = config.train.micro_batch_tokens, config.train.accumulate
        steps = np.concatenate([self._tokens(rows) for rows in order.batches()])
        self._most = source_bound(steps, most_target, self._least), most_target
        parts = (part for rows in order.batches() for part in self._parts(rows))
        self.shape = PackedShape.of((pairs.source_lengths[part], pairs.target_lengths[part]) for part in parts)
        self._thread = ThreadPoolExecutor(1)  # ends with this object
        self._next: tuple[int, Future[tuple[list[Tensor], int]]] | None = None

    def of_step(self, step: int) -> tuple[list[Int32[Tensor, " F"]], int]:
        """Return the batches of a step and their target tokens, and start to prepare those of the next.

        Args:
            step: Steps before it.
        """
        prepared = self._next[1] if self._next and self._next[0] == step else self._thread.submit(self._prepared, step)
        self._next = step + 1, self._thread.submit(self._prepared, step + 1)
        return prepared.result()

    def _prepared(self, step: int) -> tuple[list[Tensor], int]:
        rows = self.order.rows(step)
        parts = [self._packed(part) for part in self._parts(rows)]
        tokens = int(self.pairs.target_lengths[rows].sum())
        return [part.pin_memory() for part in parts] if self.is_pinned else parts, tokens

    def _packed(self, rows: NDArray[np.int64]) -> Tensor:
        pairs, model = self.pairs, self.config.model
        ids = [pairs.source_ids(row) for row in rows], [pairs.target_ids(row) for row in rows]
        return self.shape.pack(*ids, pad_id=model.pad_id, bos_id=model.bos_id)

    def _tokens(self, rows: NDArray[np.int64]) -> Int64[np.ndarray, "1 2"]:
        lengths = self.pairs.source_lengths, self.pairs.target_lengths
        return np.array([[int(of_side[rows].sum()) for of_side in lengths]])

    def _parts(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        count = min(len(rows), int(number_of_parts(self._tokens(rows), self._most, self._least)[0]))
        return [rows[start::count] for start in range(count)]  # rows are in order of length, so parts are of one size


def is_packed(config: Config, device: torch.device, pairs: PairStore, workers: Workers, own: OwnParts) -> bool:
    """Return whether a run trains on packed batches: in bfloat16 on one GPU, with attention that the kernel computes.

    Padded batches are used for several workers, parts of the program's own, LoRA, guided alignment, other
    widths of heads or of values, dropout on attention weights, relative positions, a model without encoder or decoder,
    and epochs of different pairs, whose most source tokens are not known beforehand.
    """
    model, train = config.model, config.train
    is_asked_for = train.compile is not False and device.type == "cuda" and not train.lora_rank
    has_bf16 = is_asked_for and uses_bf16(train, device) and has_fast_bf16(device)
    is_alone = workers.count == 1 and not own.names and config.data.has_equal_epochs
    has_heads = model.key_dim == model.value_dim and model.key_dim in HEAD_WIDTHS and not model.attention_dropout
    has_both = model.num_encoder_layers > 0 and model.num_decoder_layers > 0 and model.positions != "relative"
    return has_bf16 and is_alone and has_heads and has_both and not pairs.has_links


class Steps:
    """The steps of a run, each made from its batches.

    If the compiler fails in the first step, the run continues without it. If a GPU runs out of memory, all
    workers repeat the step in parts of half the size, again if necessary, and so they make all steps from then on.

    Args:
        model: Model in training mode.
        optimizer: Optimiser of the model's weights.
        config: Complete settings.
        pairs: Training pairs.
        order: Assignment of pairs to steps.
        workers: Workers that share a step.
        own: The run's own parts.
        say: Called with a message if steps cannot be computed in the best way.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        config: Config,
        pairs: PairStore,
        order: BatchOrder,
        workers: Workers,
        own: OwnParts,
        say: Callable[[str], None],
    ) -> None:
        self.model, self.optimizer, self.config, self.pairs = model, optimizer, config, pairs
        self.order, self.workers, self.own, self.say = order, workers, own, say
        self._forms = ["padded"]  # of steps; where the first fails, the next is taken
        if is_packed(config, model.device, pairs, workers, own):
            if has_triton():
                self._forms = ["compiled", "packed", "padded"]
            else:
                say(f"training is slower than it could be: it needs {NEEDED}")
        self._has_made_one = False
        self.cut_to: int | None = None
        """Target tokens computed at once since the device ran out of memory; None if it never did."""
        self._earlier: list[StepResult] = []
        self._begin()

    @property
    def form(self) -> str:
        """How steps are made: `compiled` or `packed`, both on packed batches and measured later, or `padded`."""
        return self._forms[0]

    @property
    def precision(self) -> str:
        """Precision of matrix products, `bf16` or `fp32`."""
        return self.stepper.precision

    def make(self, number: int, rate: float, *, left_out: int = 0) -> int:
        """Make optimiser step `number`, and return the target tokens of all workers in it.

        Args:
            number: Optimiser steps, counted from 1.
            rate: Learning rate.
            left_out: Batches before this step's that the run left out.

        Raises:
            LostWorkerError: If another worker is lost.
            TrainingError: If the device runs out of memory, even if less is computed at once.
        """
        while True:
            parts, tokens = self._batches.of_step(number - 1 + left_out)
            step: Callable[..., object] = self.stepper.step  # takes parts as these batches have them
            try:
                step(parts, number=number, rate=rate, tokens=tokens)
            except Exception as error:
                if self._take_another_form(error, number):
                    pass
                elif isinstance(error, torch.OutOfMemoryError):
                    raise TrainingError(self._too_little_memory(number, error)) from None
                else:
                    raise
            else:
                self._has_made_one = True
                return tokens
            self._begin_again()  # outside of `except`, where the error refers to tensors

    def results(self) -> list[StepResult]:
        """Return the measurements of the steps since the last call; of packed batches, wait for the device."""
        earlier, self._earlier = self._earlier, []
        return earlier + self.stepper.results()

    def reload(self) -> None:
        """Use weights and optimiser state that were loaded since the last step; a CUDA graph has the old addresses."""
        if self.form != "padded":
            self._begin_again()

    def cut(self, micro_batch_tokens: int | None) -> None:
        """Compute at most so many target tokens at once from now on; None changes nothing."""
        if micro_batch_tokens is not None and micro_batch_tokens < self.config.train.micro_batch_tokens:
            self._lower(micro_batch_tokens)
            self._begin_again()

    def _lower(self, tokens: int) -> None:
        self.cut_to, self.config = tokens, changed(self.config, {"train.micro_batch_tokens": tokens})

    def _begin(self) -> None:
        model, optimizer, config = self.model, self.optimizer, self.config
        self._batches: PaddedBatches | PackedBatches
        self.stepper: Stepper | PackedStepper
        if self.form == "padded":
            self._batches = PaddedBatches(self.pairs, self.order, config, self.workers)
            self.stepper = Stepper(model, optimizer, config.train, self.workers, self.own)
            return
        is_compiled = self.form == "compiled"
        self._batches = PackedBatches(self.pairs, self.order, config, is_pinned=model.device.type == "cuda")
        self.stepper = PackedStepper(model, optimizer, config.train, self._batches.shape, is_compiled=is_compiled)

    def _begin_again(self) -> None:
        """Make other batches and another stepper after a step that failed before it changed a weight."""
        self._earlier += self.stepper.results()
        self.optimizer.zero_grad(set_to_none=True)
        if isinstance(self.stepper, PackedStepper):
            self.stepper.release_optimizer()
        self._begin()
        gc.collect()
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _take_another_form(self, error: Exception, number: int) -> bool:
        """Choose smaller parts or the next form after an error, and say so; return False if there is none to try."""
        if is_out_of_memory(error):
            is_joint = self.workers.count == 1 or isinstance(error, JointOutOfMemoryError)
            half = self._half
            if half == 0 or not is_joint or self._has_moved(error):
                return False
            self._lower(half)
            self.say(
                f"{self._short_of_memory(error)} ran out of memory at step {number}; from here on at most {half:,} "
                f"target tokens are computed at once (train.micro_batch_tokens), which changes the gradient by no more "
                f"than rounding"
            )
            return True
        if self._has_made_one or self.form == "padded" or not is_of_compiler(error):
            return False
        if self.form == "compiled":
            *_, cause = causes(error)
            lines = f"{cause}".strip().splitlines() or [""]
            self.say(
                f"training is slower than it could be: the compiler of its step failed "
                f"({type(cause).__name__}: {lines[0]:.200}); it needs {NEEDED}"
            )
        del self._forms[0]
        return True

    @property
    def _half(self) -> int:
        """Half of the target tokens that are computed at once now; 0 if that is one pair at most."""
        train = self.config.train
        share = -(-train.batch_tokens // max(self.workers.count, train.accumulate))
        return min(train.micro_batch_tokens, share) // 2

    def _short_of_memory(self, error: Exception) -> str:
        if isinstance(error, JointOutOfMemoryError):
            return f"{error}"
        return "the device" if self.workers.count == 1 else f"worker {self.workers.rank}"

    def _too_little_memory(self, number: int, error: Exception) -> str:
        half = self._half
        advice = f"lower train.micro_batch_tokens ({self.config.train.micro_batch_tokens})"
        if half == 0:
            advice = "one pair at a time is too much: take a smaller preset or model, or more memory"
        elif self.workers.is_sharding:
            advice = f"with train.shard a step is not repeated: set train.micro_batch_tokens = {half}"
        return f"{self._short_of_memory(error)} ran out of memory at step {number}; {advice}, and run the command again"

    def _has_moved(self, error: Exception) -> bool:
        """Return whether the optimizer may have changed momenta before the error; one that is recorded does not."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        is_recorded = any(frame.f_code is GraphRecorder.record.__code__ for frame in frames)
        return not is_recorded and any(frame.f_locals.get("self") is self.optimizer for frame in frames)


def is_of_compiler(error: Exception) -> bool:
    """Return whether PyTorch's compiler or Triton failed, or a program that they run, and not the step itself."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    modules = [frame.f_globals.get("__name__", ""), *(type(cause).__module__ for cause in causes(error))]
    is_of_program = isinstance(error, OSError | ImportError | subprocess.SubprocessError)  # a step has no files
    return is_of_program or any(name.startswith(("torch._dynamo", "torch._inductor", "triton")) for name in modules)

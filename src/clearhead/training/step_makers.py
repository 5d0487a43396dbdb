"""Batches and stepper of a run: padded, or packed for one GPU and prepared ahead by a thread."""

from __future__ import annotations

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
from clearhead.data.prepare import Prepared
from clearhead.data.store import PairStore
from clearhead.kernels.packed_attention import HEAD_WIDTHS, has_triton
from clearhead.model.transformer import Transformer
from clearhead.runtime.device import has_fast_bf16
from clearhead.training.distributed import Workers
from clearhead.training.own_parts import OwnParts
from clearhead.training.packed_batches import PackedShape, number_of_parts, source_bound
from clearhead.training.packed_step import PackedStepper
from clearhead.training.step import Stepper, uses_bf16


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
        tokens = int(self._tokens(rows)[0, 1])
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


def is_packed(config: Config, device: torch.device, data: Prepared, workers: Workers, own: OwnParts) -> bool:
    """Return whether a run trains on packed batches: in bfloat16 on one GPU, with attention that the kernel computes.

    Padded batches are used for several workers, parts of the program's own, LoRA, guided alignment, other
    widths of heads or of values, dropout on attention weights, relative positions, a model without encoder or decoder.
    """
    model, train = config.model, config.train
    is_asked_for = train.compile is not False and device.type == "cuda" and not train.lora_rank
    has_bf16 = is_asked_for and uses_bf16(train, device) and has_fast_bf16(device)
    is_alone = workers.count == 1 and not own.names
    has_heads = model.key_dim == model.value_dim and model.key_dim in HEAD_WIDTHS and not model.attention_dropout
    has_both = model.num_encoder_layers > 0 and model.num_decoder_layers > 0 and model.positions != "relative"
    return has_bf16 and is_alone and has_heads and has_both and not data.train.has_links


def step_makers(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    config: Config,
    data: Prepared,
    order: BatchOrder,
    workers: Workers,
    own: OwnParts,
    say: Callable[[str], None],
) -> tuple[PaddedBatches | PackedBatches, Stepper | PackedStepper]:
    """Return the batches of a run and the stepper that trains on them.

    Args:
        model: Model in training mode.
        optimizer: Optimiser of the model's weights.
        config: Complete settings.
        data: Prepared pairs.
        order: Assignment of pairs to steps.
        workers: Workers that share a step.
        own: The run's own parts.
        say: Called with a message if packed batches need software that is not installed.
    """
    if is_packed(config, model.device, data, workers, own):
        if has_triton():
            packed = PackedBatches(data.train, order, config, is_pinned=model.device.type == "cuda")
            return packed, PackedStepper(model, optimizer, config.train, packed.shape)
        say("training is slower than it could be: it needs triton (pip install triton), a C compiler and Python.h")
    return PaddedBatches(data.train, order, config, workers), Stepper(model, optimizer, config.train, workers, own)

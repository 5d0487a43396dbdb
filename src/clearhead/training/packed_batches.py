"""Packed training batches: the pairs of a part of a step one after another, in tensors of one size for the whole run.

Shapes: S source tokens, T target tokens, both with fill; F all numbers of a batch; N steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import numpy as np
import torch
from jaxtyping import Int32, Int64
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batches import shifted_right
from clearhead.model.packing import PackedSide

Ids = Sequence[NDArray[np.integer]]

_ROWS = 128
"""Tokens of a side are filled up to a multiple of this; products of such a number of rows are fast."""

_WORK_OF_TARGET, _WORK_OF_PART = 2, 2_048
"""Work for a target token, and for a part whatever its size, in source tokens. With 8,000 to 37,000 pieces the output
layer computes as much for a token as the layers below. What a part takes besides its tokens is not measured."""


@dataclass(frozen=True)
class PackedTensors:
    """The tensors of a packed batch: views of one."""

    source: Int32[Tensor, " S"]
    """Source ids, each sentence with its end token."""
    target_in: Int32[Tensor, " T"]
    """Decoder input: each target shifted right."""
    target_out: Int32[Tensor, " T"]
    """Labels; the padding token at fill."""
    source_side: PackedSide
    """Where the sources lie."""
    target_side: PackedSide
    """Where the targets lie."""


@dataclass(frozen=True)
class PackedShape:
    """Sizes that all packed batches of a run have, so that the compiled step and its CUDA graph fit each of them."""

    source_tokens: int
    target_tokens: int
    sentences: int
    longest: int
    """Most tokens of a text."""

    @classmethod
    def of(cls, parts: Iterable[tuple[NDArray[np.int32], NDArray[np.int32]]]) -> Self:
        """Return the smallest shape for parts of steps, each with the source and target tokens of its pairs."""
        sizes = [(*map(int, map(np.sum, part)), len(part[0]), int(max(map(np.max, part)))) for part in parts]
        most_source, most_target, sentences, longest = (max(column) for column in zip(*sizes, strict=True))
        return cls(_filled(most_source), _filled(most_target), sentences, longest)

    @property
    def size(self) -> int:
        """Numbers in a batch, F."""
        return 2 * self.source_tokens + 3 * self.target_tokens + 2 * (self.sentences + 2)

    def views(self, numbers: Int32[Tensor, " F"]) -> PackedTensors:
        """Return the tensors that lie in the numbers of a batch."""
        sizes = 2 * [self.source_tokens] + 3 * [self.target_tokens] + 2 * [self.sentences + 2]
        source, sources, target_in, target_out, targets, source_starts, target_starts = numbers.split(sizes)
        source_side, target_side = PackedSide(sources, source_starts), PackedSide(targets, target_starts)
        return PackedTensors(source, target_in, target_out, source_side, target_side)

    def pack(self, sources: Ids, targets: Ids, *, pad_id: int, bos_id: int) -> Int32[Tensor, " F"]:
        """Return the numbers of a batch, on the CPU.

        Args:
            sources: Ids of each source, with its end token.
            targets: Ids of each target, likewise.
            pad_id: Id at fill.
            bos_id: Id of the start token of every target.
        """
        numbers = torch.full((self.size,), pad_id, dtype=torch.int32)
        batch = self.views(numbers)
        shifted = [shifted_right(target, bos_id) for target in targets]
        for ids, texts in ((batch.source, sources), (batch.target_in, shifted), (batch.target_out, targets)):
            joined = np.concatenate(texts)
            ids.numpy()[: joined.size] = joined
        for side, texts in ((batch.source_side, sources), (batch.target_side, targets)):
            self._place(side, [len(text) for text in texts])
        return numbers

    def _place(self, side: PackedSide, lengths: Sequence[int]) -> None:
        starts, sentences = side.starts.numpy(), side.sentences.numpy()
        starts[: len(lengths) + 1] = list(accumulate(lengths, initial=0))
        starts[len(lengths) + 1 :] = sum(lengths)
        starts[-1] = sentences.size
        sentences[:] = self.sentences
        sentences[: sum(lengths)] = np.repeat(np.arange(len(lengths)), lengths)


def number_of_parts(steps: Int64[np.ndarray, "N 2"], most: tuple[int, int], least: int) -> Int64[np.ndarray, " N"]:
    """Return the parts that each step is cut into.

    Args:
        steps: Source and target tokens of each step.
        most: Source and target tokens that a part has at most; a few more if its pairs are not of equal length.
        least: Parts that every step is cut into at least.
    """
    return np.maximum(least, np.ceil(steps / most).max(axis=1).astype(int))


def source_bound(steps: Int64[np.ndarray, "N 2"], most_target: int, least: int) -> int:
    """Return the source tokens that a part has at most, chosen so that the steps of the run are the least work.

    All parts are filled up to the largest, so it can pay to cut the few steps with many source tokens into more parts.
    """
    most = _filled(int(steps[:, 0].max()))
    bounds = range(most, 0, -_ROWS)
    return min(bounds, key=lambda bound: _work(steps, number_of_parts(steps, (bound, most_target), least)))


def _work(steps: NDArray[np.int64], numbers: NDArray[np.int64]) -> int:
    source, target = (_filled(int(most)) for most in np.ceil(steps / numbers[:, None]).max(axis=0))
    return int(numbers.sum()) * (source + _WORK_OF_TARGET * target + _WORK_OF_PART)


def _filled(tokens: int) -> int:
    return -(-tokens // _ROWS) * _ROWS

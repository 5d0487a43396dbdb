"""Packed rows: the sentences of a batch one after another, without padding; no sentence sees another.

Shapes: N tokens of one side, with the fill; C most sentences of a batch, and C + 2 bounds of them; T target tokens,
S source tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Int32
from torch import Tensor

from clearhead.kernels.packed_attention import NONE, KeyRanges


@dataclass(frozen=True)
class PackedSide:
    """The sentences of one side. The last rows may be fill, which belongs to no sentence and sees nothing."""

    sentences: Int32[Tensor, " N"]
    """Number of each token's sentence; C for fill."""
    starts: Int32[Tensor, " bounds"]
    """First token of each sentence; then that of the fill, also for sentences that the batch lacks; then N."""

    def places(self) -> Int32[Tensor, " N"]:
        """Return the position of each token in its sentence; 0 for fill."""
        return torch.where(self._is_fill(), 0, self._rows() - self._starts_of(self))

    def ranges_on(self, keys: PackedSide, *, is_causal: bool = False) -> KeyRanges:
        """Return which keys each token of this side may attend to: those of the same sentence.

        Args:
            keys: The side with the keys.
            is_causal: Of the same side, keys up to the token itself only (section 3.2.3).
        """
        rows = self._rows()
        end = rows + 1 if is_causal else self._ends_of(keys)
        query_start = rows if is_causal else keys._starts_of(self)
        return KeyRanges(
            start=torch.where(self._is_fill(), NONE, self._starts_of(keys)),
            end=torch.where(self._is_fill(), 0, end),
            query_start=torch.where(keys._is_fill(), NONE, query_start),
            query_end=torch.where(keys._is_fill(), 0, keys._ends_of(self)),
        )

    def _rows(self) -> Int32[Tensor, " N"]:
        return torch.arange(len(self.sentences), dtype=torch.int32, device=self.sentences.device)

    def _is_fill(self) -> Tensor:
        return self.sentences == len(self.starts) - 2

    def _starts_of(self, other: PackedSide) -> Int32[Tensor, " N"]:
        """Return where the sentence of each token starts on the other side."""
        return other.starts.index_select(0, self.sentences)

    def _ends_of(self, other: PackedSide) -> Int32[Tensor, " N"]:
        return other.starts.index_select(0, self.sentences + 1)


@dataclass(frozen=True)
class Packing:
    """Positions and visible keys of packed rows, in place of a mask for padded ones."""

    source_places: Int32[Tensor, " S"]
    """Position of each source token in its sentence."""
    target_places: Int32[Tensor, " T"]
    """Position of each target token in its sentence."""
    encoder: KeyRanges
    """Source tokens that each source token sees."""
    decoder: KeyRanges
    """Target tokens that each target token sees: itself and earlier ones."""
    cross: KeyRanges
    """Source tokens that each target token sees."""

    @classmethod
    def of(cls, source: PackedSide, target: PackedSide) -> Self:
        """Return the packing of the two sides of a batch."""
        return cls(
            source_places=source.places(),
            target_places=target.places(),
            encoder=source.ranges_on(source),
            decoder=target.ranges_on(target, is_causal=True),
            cross=target.ranges_on(source),
        )

"""The key-value cache of the sentences in flight: one slot per sentence, shared by its beams.

When a sentence leaves, the last one moves to its slot, so the occupied slots always come first. Beams are never copied
when a search reorders them. The keys of all beams of a slot are stored together, and a mask marks those in each beam's
own history. The place of a key that no beam refers to any more is reused. So a slot of many beams needs little more
room than one of a single beam, because their histories soon share a beginning.

Shapes: N slots, K beams, P places for target keys, S source positions, R rows (the active beams of all slots), L
decoder layers, W width of keys and values together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from clearhead.decoding.engine import leave_slot

STEP = 16
"""The cache grows in multiples of this many positions, which attention computes fast."""


@dataclass
class SlotRows:
    """The positions of a step's active beams in the cache."""

    num_slots: int
    """Number of occupied slots, N."""
    beam_size: int
    index: Int[Tensor, " R"]
    """Slot times K plus beam of each row, ascending."""
    positions: Int[Tensor, " R"]
    """Target position of the newest token of each row."""
    places: Int[Tensor, " R"]
    """Index of the newest key and value of each row: slot times the places per slot, plus the place."""
    longest: int
    """Largest number of target positions of a row, the newest included."""
    past_mask: Float[Tensor, "N 1 K P"]
    """Additive mask of self-attention: 0 or minus infinity."""
    memory_mask: Float[Tensor, "N 1 1 S"]
    """Additive mask of cross-attention: 0 or minus infinity."""
    distances: Int[Tensor, "N P"] | None = None
    """Position of each key relative to the newest one; None if the model has no relative positions."""

    def spread(self, x: Shaped[Tensor, "R W"], empty: float = 0.0) -> Shaped[Tensor, "N K W"]:
        """Arrange rows by slot and beam, with `empty` for inactive beams."""
        num_beams = self.num_slots * self.beam_size
        if len(self.index) < num_beams:
            x = x.new_full((num_beams, x.size(1)), empty).index_copy_(0, self.index, x)
        return x.unflatten(0, (self.num_slots, self.beam_size))

    def gather(self, x: Float[Tensor, "N K W"]) -> Float[Tensor, "R W"]:
        """Select the active rows; the inverse of `spread`."""
        x = x.flatten(0, 1)
        return x if len(self.index) == len(x) else x[self.index]

    def past(self, past: Float[Tensor, "slots places W"]) -> Float[Tensor, "N P W"]:
        """Return one layer's self-attention keys and values, for the occupied slots."""
        return past[: self.num_slots, : self.past_mask.size(-1)]

    def memory(self, memory: Float[Tensor, "slots places W"]) -> Float[Tensor, "N S W"]:
        """Return one layer's cross-attention keys and values, for the occupied slots."""
        return memory[: self.num_slots, : self.memory_mask.size(-1)]


class SlotCache:
    """The key-value cache of the sentences in flight.

    Args:
        num_layers: Decoder layers.
        kv_width: Width of a key and a value together, over all heads.
        beam_size: Beams of a sentence, K.
        max_slots: Maximum sentences in flight.
        device: Device of the cache.
        dtype: Type of its numbers.
        knows_distances: Whether to track the positions of keys, for models with relative positions.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        kv_width: int,
        beam_size: int,
        max_slots: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        knows_distances: bool = False,
    ) -> None:
        self.beam_size = beam_size
        self.source_lengths: list[int] = []
        self._lengths: list[int] = []  # target positions in each slot
        self._ends: list[int] = []  # end of the used places in each slot
        self.past = torch.empty(num_layers, max_slots, 0, kv_width, dtype=dtype, device=device)  # (L, N, P, W)
        self.memory = torch.empty(num_layers, max_slots, 0, kv_width, dtype=dtype, device=device)  # (L, N, S, W)
        self._past_mask = torch.empty(max_slots, beam_size, 0, dtype=dtype, device=device)  # (N, K, P)
        self._memory_mask = torch.empty(max_slots, 1, 0, dtype=dtype, device=device)  # (N, 1, S)
        # The position of the key in each place, (N, 1, P).
        self._written = torch.empty(max_slots, 1, 0, dtype=torch.long, device=device) if knows_distances else None

    def __len__(self) -> int:
        return len(self._lengths)

    def enter(self, memory: Float[Tensor, "L B S W"], source_lengths: list[int]) -> None:
        """Assign a slot to each of B new sentences, with `memory` as their cross-attention keys and values."""
        length = memory.size(2)
        if length > self.memory.size(2):
            self.memory = self._with_room(self.memory, length, slots_axis=1)
            self._memory_mask = self._with_room(self._memory_mask, length, slots_axis=0)
        new = slice(len(self), len(self) + len(source_lengths))
        self.memory[:, new, :length] = memory
        sizes = torch.tensor(source_lengths, device=memory.device)[:, None, None]
        is_beyond = torch.arange(self._memory_mask.size(2), device=memory.device) >= sizes
        self._memory_mask[new] = torch.where(is_beyond, float("-inf"), 0.0)
        self._past_mask[new] = float("-inf")
        self.source_lengths += source_lengths
        self._lengths += [0] * len(source_lengths)
        self._ends += [0] * len(source_lengths)

    def enter_pasts(self, pasts: list[Float[Tensor, "L _ W"]]) -> None:
        """Assign a slot to each of several decoder-only texts, with the cached keys and values of their beginnings."""
        first, lengths = len(self), [past.size(1) for past in pasts]
        self.enter(self.memory.new_empty(self.memory.size(0), len(pasts), 0, self.memory.size(3)), lengths)
        self._make_room(max(lengths))
        for slot, (past, length) in enumerate(zip(pasts, lengths, strict=True), start=first):
            self.past[:, slot, :length] = past
            self._past_mask[slot, 0, :length] = 0.0
            if self._written is not None:
                self._written[slot, 0, :length] = torch.arange(length, device=past.device)
            self._lengths[slot] = self._ends[slot] = length

    def leave(self, slot: int) -> None:
        """Free a slot; the last one moves there."""
        last = len(self) - 1
        if slot < last:
            end, length = self._ends[last], self.source_lengths[last]
            self.past[:, slot, :end] = self.past[:, last, :end]
            self.memory[:, slot, :length] = self.memory[:, last, :length]
            self._past_mask[slot] = self._past_mask[last]
            self._memory_mask[slot] = self._memory_mask[last]
            if self._written is not None:
                self._written[slot] = self._written[last]
        leave_slot(slot, self.source_lengths, self._lengths, self._ends)

    def advance(self, index: list[int], parents: list[int]) -> SlotRows:
        """Begin a step: advance every sentence by one position.

        Args:
            index: Slot times K plus beam of every active beam, ascending.
            parents: For each of them, slot times K plus beam of the beam that it extends.
        """
        num_slots, beam_size, device = len(self), self.beam_size, self.past.device
        most = max(self._ends) + beam_size
        self._make_room(most)
        mask = self._past_mask[:num_slots]  # (N, K, P)
        beams = mask.flatten(0, 1)  # (NK, P)
        rows = torch.tensor(index, device=device)
        if beam_size == 1:
            free = [[length] for length in self._lengths]
        else:
            pasts = beams[torch.tensor(parents, device=device)]
            if len(index) < len(beams):
                beams.fill_(float("-inf"))  # inactive beams refer to nothing
            beams.index_copy_(0, rows, pasts)
            free = mask[:, :, :most].amax(dim=1).argsort(dim=1, stable=True)[:, :beam_size].tolist()
        places = [free[row // beam_size][row % beam_size] for row in index]
        positions = [self._lengths[row // beam_size] for row in index]
        for row, place in zip(index, places, strict=True):
            self._ends[row // beam_size] = max(self._ends[row // beam_size], place + 1)
        self._lengths = [length + 1 for length in self._lengths]
        newest = torch.tensor(places, device=device)
        beams[rows, newest] = 0.0
        distances = None
        if self._written is not None:
            self._written[rows // beam_size, 0, newest] = torch.tensor(positions, device=device)
            now = torch.tensor(self._lengths, device=device)[:, None] - 1
            distances = self._written[:num_slots, 0, : max(self._ends)] - now
        return SlotRows(
            num_slots,
            beam_size,
            index=rows,
            positions=torch.tensor(positions, device=device),
            places=rows // beam_size * mask.size(2) + newest,
            longest=max(self._lengths),
            past_mask=mask[:, None, :, : max(self._ends)],
            memory_mask=self._memory_mask[:num_slots, None, :, : rounded(max(self.source_lengths))],
            distances=distances,
        )

    def _make_room(self, most: int) -> None:
        """Grow every slot to at least `most` places for target keys."""
        if most > self.past.size(2):
            self.past = self._with_room(self.past, most, slots_axis=1)
            self._past_mask = self._with_room(self._past_mask, most, slots_axis=0)
            if self._written is not None:
                self._written = self._with_room(self._written, most, slots_axis=0)

    def _with_room(self, tensor: Tensor, length: int, *, slots_axis: int) -> Tensor:
        """Return a copy with room for at least `length` places or positions, along the third axis."""
        shape = [*tensor.shape[:2], rounded(max(length, 2 * tensor.size(2))), *tensor.shape[3:]]
        # Values that a mask hides must still be finite, because 0 times NaN is NaN.
        empty = float("-inf") if tensor.is_floating_point() else 0
        larger = lazy_zeros(shape, tensor) if slots_axis else tensor.new_full(shape, empty)
        larger[:, :, : tensor.size(2)].narrow(slots_axis, 0, len(self)).copy_(tensor.narrow(slots_axis, 0, len(self)))
        return larger


def rounded(length: int) -> int:
    """Return the number of positions to allocate for `length`."""
    return -(-length // STEP) * STEP


def lazy_zeros(shape: list[int], like: Tensor) -> Tensor:
    """Return zeros of the type and on the device of a tensor; on a CPU their pages are allocated when first touched."""
    if like.device.type == "cpu" and like.dtype == torch.float32:
        return torch.from_numpy(np.zeros(shape, dtype=np.float32))
    return like.new_zeros(shape)

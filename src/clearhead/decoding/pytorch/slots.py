"""Keys and values of the sentences in flight: a slot each, with those of all its beams.

A slot is taken when a sentence enters and given to the last one when it leaves, so the slots in use are always the
first ones. Beams are never copied when a search reorders them: the keys of all beams of a slot lie side by side, and a
mask says which of them belong to a beam's own past. What no beam refers to any more gives its place to the next key, so
a slot of many beams holds little more than one of a single beam: their pasts soon have the same beginning.

Shapes: N slots, K beams, P places for target keys, S source positions, R rows (the active beams of all slots), L
decoder layers, W width of keys and values together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

__all__ = ["Rows", "SlotCache", "lazy_zeros", "rounded"]

STEP = 16
"""Room grows by so many positions; attention is fast with multiples of it."""


@dataclass
class Rows:
    """Where the active beams of a step stand."""

    num_slots: int
    """N here: the slots in use."""
    beam_size: int
    index: Int[Tensor, " R"]
    """Slot times K plus beam, ascending."""
    positions: Int[Tensor, " R"]
    """Target position of the newest token."""
    places: Int[Tensor, " R"]
    """Slot times the places of a slot, plus the place of the newest key and value."""
    longest: int
    """Target positions of the row that has most, the newest included."""
    past_mask: Float[Tensor, "N 1 K P"]
    """What is added to the scores of self-attention: 0, or minus infinity."""
    memory_mask: Float[Tensor, "N 1 1 S"]
    """Likewise of cross-attention."""
    distances: Int[Tensor, "N P"] | None = None
    """Position of the key in each place less that of the newest, where a model asks for it."""

    def spread(self, x: Shaped[Tensor, "R W"], empty: float = 0.0) -> Shaped[Tensor, "N K W"]:
        """Put each row where its beam stands, and `empty` where none is active."""
        num_beams = self.num_slots * self.beam_size
        if len(self.index) < num_beams:
            x = x.new_full((num_beams, x.size(1)), empty).index_copy_(0, self.index, x)
        return x.unflatten(0, (self.num_slots, self.beam_size))

    def gather(self, x: Float[Tensor, "N K W"]) -> Float[Tensor, "R W"]:
        """Take the active rows back."""
        x = x.flatten(0, 1)
        return x if len(self.index) == len(x) else x[self.index]

    def past(self, past: Float[Tensor, "slots places W"]) -> Float[Tensor, "N P W"]:
        """Return the keys and values of one layer that self-attention asks for."""
        return past[: self.num_slots, : self.past_mask.size(-1)]

    def memory(self, memory: Float[Tensor, "slots places W"]) -> Float[Tensor, "N S W"]:
        """Return the keys and values of one layer that cross-attention asks for."""
        return memory[: self.num_slots, : self.memory_mask.size(-1)]


class SlotCache:
    """Keys and values of the sentences in flight.

    Args:
        num_layers: Decoder layers.
        kv_width: Width of a key and a value together, all heads.
        beam_size: Beams of a sentence.
        max_slots: Most sentences in flight at once.
        device: Where they are.
        knows_distances: Whether each step says how far away every key stands.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        kv_width: int,
        beam_size: int,
        max_slots: int,
        device: torch.device,
        knows_distances: bool = False,
    ) -> None:
        self.beam_size = beam_size
        self.source_lengths: list[int] = []
        self._lengths: list[int] = []  # target positions seen by each slot
        self._ends: list[int] = []  # the place after the last one that each slot has used
        self.past = torch.empty(num_layers, max_slots, 0, kv_width, device=device)  # (L, N, P, W)
        self.memory = torch.empty(num_layers, max_slots, 0, kv_width, device=device)  # (L, N, S, W)
        self._past_mask = torch.empty(max_slots, beam_size, 0, device=device)  # (N, K, P)
        self._memory_mask = torch.empty(max_slots, 1, 0, device=device)  # (N, 1, S)
        # The position of the key in each place, (N, 1, P).
        self._written = torch.empty(max_slots, 1, 0, dtype=torch.long, device=device) if knows_distances else None

    def __len__(self) -> int:
        return len(self._lengths)

    def enter(self, memory: Float[Tensor, "L B S W"], source_lengths: list[int]) -> None:
        """Give a slot to each of B new sentences, whose cross-attention asks for `memory`."""
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
        """Give a slot to each of some texts that a decoder alone goes on with, and whose beginnings it has read."""
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
        """Give up a slot; the last one moves there."""
        last = len(self) - 1
        if slot < last:
            end, length = self._ends[last], self.source_lengths[last]
            self.past[:, slot, :end] = self.past[:, last, :end]
            self.memory[:, slot, :length] = self.memory[:, last, :length]
            self._past_mask[slot] = self._past_mask[last]
            self._memory_mask[slot] = self._memory_mask[last]
            if self._written is not None:
                self._written[slot] = self._written[last]
        for values in (self.source_lengths, self._lengths, self._ends):
            values[slot] = values[last]
            values.pop()

    def advance(self, index: list[int], parents: list[int]) -> Rows:
        """Begin a step: every sentence goes on by one position.

        Args:
            index: Slot times K plus beam of every active beam, ascending.
            parents: Of each, that of the beam whose past it goes on.
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
                beams.fill_(float("-inf"))  # beams that are no longer active refer to nothing
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
        return Rows(
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
        """Make sure that every slot has so many places for target keys."""
        if most > self.past.size(2):
            self.past = self._with_room(self.past, most, slots_axis=1)
            self._past_mask = self._with_room(self._past_mask, most, slots_axis=0)
            if self._written is not None:
                self._written = self._with_room(self._written, most, slots_axis=0)

    def _with_room(self, tensor: Tensor, length: int, *, slots_axis: int) -> Tensor:
        """Return a copy with room for more places or positions, which are the third axis."""
        shape = [*tensor.shape[:2], rounded(max(length, 2 * tensor.size(2))), *tensor.shape[3:]]
        # A mask hides what has no values yet; it must be finite all the same, for 0 times NaN is NaN.
        empty = float("-inf") if tensor.is_floating_point() else 0
        larger = lazy_zeros(shape, tensor.device) if slots_axis else tensor.new_full(shape, empty)
        larger[:, :, : tensor.size(2)].narrow(slots_axis, 0, len(self)).copy_(tensor.narrow(slots_axis, 0, len(self)))
        return larger


def rounded(length: int) -> int:
    """Return the room that so many positions get."""
    return -(-length // STEP) * STEP


def lazy_zeros(shape: list[int], device: torch.device) -> Tensor:
    """Return zeros; on a CPU those of the system, which come when a page is first touched."""
    if device.type == "cpu":
        return torch.from_numpy(np.zeros(shape, dtype=np.float32))
    return torch.zeros(shape, device=device)

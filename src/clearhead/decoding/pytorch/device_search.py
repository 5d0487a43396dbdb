"""Searches on the device: several steps at a time, then the host looks which sentences are finished.

A step is `DeviceBeams.step`, on a GPU as a CUDA graph. The masks of a text prefix and of placeholders come from
`token_masks`, so while such a sentence is in flight the host looks after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.decoding.engine import leave_slot
from clearhead.decoding.pytorch.device_beams import DeviceBeams
from clearhead.decoding.pytorch.device_state import Guide, rounded
from clearhead.decoding.rules import Hypothesis
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens, Mask

STEPS = 8
"""Steps between two looks."""


class DeviceSentence:
    """A sentence in flight, whose hypotheses are on the device; see `engine.InFlight`.

    Args:
        sentence: The sentence.
        allowed: The allowed tokens of the model.
        first: Positions before the first target token.
    """

    def __init__(self, sentence: Sentence, allowed: AllowedTokens, first: int) -> None:
        self.sentence = sentence
        self._first = first
        self.is_open = True
        self.length = 0
        """Number of target tokens written, if any hypothesis is open."""
        self._found: list[Hypothesis] = []
        prefix = sentence.prefix
        has_choice = any({*others} - {token} for token, others in zip(prefix.tokens, prefix.completions, strict=True))
        has_placeholders = allowed.has_placeholders(sentence)
        self.guided_until = sentence.max_length if has_placeholders else has_choice * len(prefix.tokens)
        """Length up to which the masks come from Python."""

    @property
    def is_guided(self) -> bool:
        """Whether the masks of the next step come from Python."""
        return self.length < self.guided_until

    def end(self, steps: int) -> int:
        """Return the number of positions that the sentence has after some steps."""
        return self._first + min(self.length + steps, self.sentence.max_length) + 1

    def finish(self, found: list[Hypothesis]) -> None:
        """End the search with its finished hypotheses."""
        self.is_open, self._found = False, found

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first."""
        return self._found[:num_best]


class DeviceSearch:
    """A search of the sentences in the slots of a worker, or their samples; see `engine.SlotSearch`.

    Args:
        beams: The state of the search, which is emptied.
        allowed: The allowed tokens of the model.
    """

    def __init__(self, beams: DeviceBeams, allowed: AllowedTokens) -> None:
        self._beams = beams
        beams.close(range(beams.sizes.rows))
        self._allowed = allowed
        self.source_lengths: list[int] = []
        self._rows: list[int] = []
        """The row of the sentence in each slot."""
        self._left: list[int] = []
        """Rows whose sentences left since the last step."""
        self._begun: list[DeviceSentence] = []
        """Sentences that entered since then, in the last slots."""

    def enter(self, memory: Float[Tensor, "L B S W"], source_lengths: list[int]) -> None:
        """Assign the next free slots to sentences; see `SlotCache`."""
        rows = self._take_rows(source_lengths, 1, memory.size(2))
        self._beams.enter(rows, memory, source_lengths)

    def enter_pasts(self, pasts: list[Float[Tensor, "L _ W"]]) -> None:
        """Assign the next free slots to decoder-only texts; see `SlotCache`."""
        lengths = [past.size(1) for past in pasts]
        for row, past in zip(self._take_rows(lengths, max(lengths), 1), pasts, strict=True):
            self._beams.enter_past(row, past)

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        self._left.append(self._rows[slot])
        leave_slot(slot, self._rows, self.source_lengths)

    def begin(self, sentence: Sentence, bos_id: int) -> DeviceSentence:
        """Return the state of a sentence before the first target token; see `engine.SlotSearch`."""
        del bos_id
        self._begun.append(DeviceSentence(sentence, self._allowed, self._beams.first_position(sentence)))
        return self._begun[-1]

    def advance(self, active: Sequence[DeviceSentence], seen: int) -> None:
        """Take some steps, and finish the sentences that are done; see `engine.SlotSearch`."""
        del seen
        self._update_rows()
        are_guided = any(searched.is_guided for searched in active)
        rest = max(searched.sentence.max_length - searched.length for searched in active)
        steps = 1 if are_guided else min(STEPS, rest)
        longest = max(searched.end(steps) for searched in active)
        sizes = rounded(max(self._rows) + 1, longest, max(self.source_lengths))
        self._beams.grow(sizes)
        if are_guided:
            self._beams.step(sizes, self._guide(active, sizes.rows))
        else:
            for _ in range(steps):
                self._beams.take_step(sizes)
        are_open = self._beams.are_open(self._rows)
        done = [slot for slot, is_open in enumerate(are_open) if not is_open]
        for searched in active:
            searched.length += steps
        if done:
            found = self._beams.found([self._rows[slot] for slot in done])
            for slot, hypotheses in zip(done, found, strict=True):
                active[slot].finish(hypotheses)

    def _take_rows(self, source_lengths: list[int], positions: int, longest: int) -> list[int]:
        """Assign rows to the next slots, in tensors with room for them; return the rows."""
        rows = self._free_rows(len(source_lengths))
        self._rows += rows
        self.source_lengths += source_lengths
        self._beams.grow(rounded(max(self._rows) + 1, positions, longest))
        return rows

    def _update_rows(self) -> None:
        """Clear the rows of finished sentences, fill those of new ones, and compact the rows if many are empty."""
        if self._left:
            self._beams.close(self._left)
            self._left = []
        if self._begun:
            sentences = [searched.sentence for searched in self._begun]
            forced = [() if searched.is_guided else searched.sentence.prefix.tokens for searched in self._begun]
            self._beams.begin(self._rows[-len(sentences) :], sentences, forced)
            self._begun = []
        most = rounded(len(self._rows), 1, 1).rows
        if beyond := [slot for slot, row in enumerate(self._rows) if row >= most]:
            places = self._free_rows(len(beyond))
            moved = [self._rows[slot] for slot in beyond]
            self._beams.move(moved, places)
            self._beams.close(moved)
            for slot, place in zip(beyond, places, strict=True):
                self._rows[slot] = place

    def _free_rows(self, number: int) -> list[int]:
        """Return the first rows that no sentence has."""
        taken = set(self._rows)
        return list(islice((row for row in count() if row not in taken), number))

    def _guide(self, active: Sequence[DeviceSentence], num_rows: int) -> Guide:
        """Return the masks of all hypotheses of the sentences whose masks come from Python."""
        allowed, beam_size = self._allowed, self._beams.beam_size
        guided = [(row, searched) for row, searched in zip(self._rows, active, strict=True) if searched.is_guided]
        rows = [row for row, _ in guided]
        index: list[int] = []
        masks: list[Mask] = []
        are_guided = np.zeros((num_rows, 1), dtype=bool)
        ends = np.zeros((num_rows, beam_size), dtype=bool)
        are_guided[rows] = True
        for (row, searched), written in zip(guided, self._beams.written(rows), strict=True):
            for beam, tokens in enumerate(written):
                mask = allowed.after(tokens, searched.sentence)
                index.append(row * beam_size + beam)
                masks.append(allowed.anything if mask is None else mask)
                ends[row, beam] = mask is allowed.end
        parts = (np.array(index), np.stack(masks), are_guided, ends)
        return Guide(*(torch.from_numpy(part).to(self._beams.device) for part in parts))

"""Slots of sentences in flight in the memory layout of the compiled core, and its decoder step for all of them.

Shapes: S source length, L decoder layers, W width of keys and values together, K beams, R rows (the open
hypotheses of all slots), N masks, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import pointer
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding.engine import Beams, Candidates, leave_slot
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.native.search import NativeSearch
from clearhead.decoding.native.weights import ListedProducts, NativeWeights
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import candidates_of_row, candidates_of_sentence
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens, Mask
from clearhead.kernels.panels import LANES
from clearhead.kernels.structs import STRUCTS, Struct, uninitialized
from clearhead.runtime.lazy import cached_property

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64


class NativeSlots:
    """The sentences that one worker has in flight; see `engine.Slots`.

    Args:
        weights: Packed weights of the model.
        beam_size: Maximum hypotheses of a sentence, K.
        listed: Products of the shortlist; None allows the whole vocabulary.
        team: Helper threads that share every product.
    """

    spent: Float[np.ndarray, "5"] | None = None
    """Array to which the seconds of layer products, attention, norms and other layer work, vocabulary product, and
    candidate selection are added; None measures nothing."""

    def __init__(
        self, weights: NativeWeights, beam_size: int, listed: ListedProducts | None = None, team: Team | None = None
    ) -> None:
        self._core = weights.core
        self._weights = weights
        self._beam_size = beam_size
        self._listed = listed
        self._team = team
        self._decoder = weights.decoder if listed is None else listed.decoder
        self.source_lengths: list[int] = []
        self._slots: list[_Slot] = []
        self._tokens = STRUCTS["Tokens"]()
        self._positions = 0  # number of positions that `_tokens` can embed
        self._step = STRUCTS["Step"](
            beam_size=beam_size,
            count=candidates_of_row(beam_size),
            num_candidates=candidates_of_sentence(beam_size),
            vocab_size=weights.model.config.vocab_size,
        )
        self._scratch_size = 0
        self._scores = np.empty(0, dtype=np.float32)

    @cached_property
    def _anything(self) -> Mask:
        return AllowedTokens(self._weights.model.config).anything

    def encode(self, sentences: Sequence[Sentence]) -> list[_Slot]:
        """Encode sentences and allocate their slots."""
        sources = [sentence.source for sentence in sentences]
        memories = self._weights.encode(sources, None if self._team is None else self._team.wake())
        slots = [_Slot(memory, len(source), self._beam_size) for memory, source in zip(memories, sources, strict=True)]
        if self._listed is not None:
            for slot, sentence in zip(slots, sentences, strict=True):
                self._listed.enter(slot.struct, sentence)
        for slot, sentence in zip(slots, sentences, strict=True):
            if sentence.neighbours is not None:
                slot.struct.near = self._near(sentence.neighbours)
        return slots

    def _near(self, neighbours: Neighbours) -> Struct:
        """Return the core's structure for the neighbours of a sentence."""
        assert neighbours.keys is not None
        tokens, values = np.unique(neighbours.values, return_inverse=True)
        padded = len(values) + -len(values) % LANES
        config = self._weights.model.config
        scale = np.float32(math.sqrt(config.d_model)) if config.output_scale else np.float32(1)
        return STRUCTS["Neighbours"](
            num_keys=len(values),
            num_tokens=len(tokens),
            weight=neighbours.weight,
            temperature=neighbours.temperature / float(scale) ** 2,
            reach=neighbours.reach / float(scale) ** 2,
        ).point(
            keys=np.ascontiguousarray(neighbours.keys / scale),
            values=values.astype(np.int32),
            tokens=tokens,
            logits=uninitialized([self._beam_size, len(tokens)]),
            shares=uninitialized([len(tokens)]),
            scores=uninitialized([padded]),
        )

    def enter(self, encoded: Sequence[_Slot]) -> None:
        """Assign the next free slots to encoded sentences."""
        self._slots += encoded
        self.source_lengths += [slot.struct.source_length for slot in encoded]

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        leave_slot(slot, self._slots, self.source_lengths)

    def search(
        self,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        changes: Int64[np.ndarray, "1"],
        *,
        scores: bool,
        sampling: Sampling | None = None,
    ) -> NativeSearch | None:
        """Return a search in these slots; see `engine.SearchingSlots`."""
        if sampling is not None:
            return None
        assert config.beam_size == self._beam_size
        if not scores and config.beam_size == 1 and self._listed is None and self._weights.greedy_decoder is not None:
            self._decoder = self._weights.greedy_decoder
        else:
            scores = True
        eos_id = self._weights.model.config.eos_id
        return NativeSearch(self._advance, eos_id, config, num_best, allowed, changes, scores=scores)

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step and return the best candidates; see `engine.Slots`."""
        self._take_step(active, None)
        best = (part[: len(active)].tolist() for part in self._best)
        return [zip(*of_slot, strict=True) for of_slot in zip(*best, strict=True)]

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step and return all log-probabilities; see `engine.Slots`."""
        assert self._listed is None
        log_probs = uninitialized([sum(len(beams.scores) for beams in active), len(self._anything)])
        self._take_step(active, log_probs)
        return log_probs

    def _take_step(self, active: Sequence[Beams], log_probs: Float[np.ndarray, "R V"] | None) -> None:
        """Run one step of the core, which also fills `log_probs` if given."""
        masks = [self._anything]
        rows = []
        for number, beams in enumerate(active):
            for beam, (parent, token, mask) in enumerate(zip(beams.parents, beams.newest, beams.masks, strict=True)):
                if mask is not None:
                    masks.append(mask)
                rows.append((number, beam, parent, beams.length, token, 0 if mask is None else len(masks) - 1))
        step, num_rows = self._step, len(rows)
        self._prepare([beams.length for beams in active], num_rows, np.stack(masks) if len(masks) > 1 else masks[0])
        step.num_rows = num_rows
        self._columns[:, :num_rows] = np.array(rows, dtype=np.int32).T
        self._scores[:num_rows] = [score for beams in active for score in beams.scores]
        step.point(log_probs=log_probs)
        self._core.take_step(self._decoder, self._tokens, step)

    def _advance(self, search: Struct, lengths: Sequence[int], masks: Bool[np.ndarray, "N V"]) -> int:
        """Call the core's `advance` with a search of the sentences in all slots, and return its result."""
        search.most_steps = self._prepare(lengths, len(lengths) * self._beam_size, masks)
        search.step = pointer(self._step)
        return int(self._core.advance(self._decoder, self._tokens, search))

    def _prepare(self, lengths: Sequence[int], num_rows: int, masks: Bool[np.ndarray, "*N V"]) -> int:
        """Set all of the next step but its rows; return how many steps there is room for.

        Args:
            lengths: Tokens written, for each slot.
            num_rows: Maximum number of rows.
            masks: Masks of allowed tokens.
        """
        rooms = [slot.make_room(length) for slot, length in zip(self._slots, lengths, strict=True)]
        longest, num_slots, step = max(lengths), len(lengths), self._step
        self._give_positions(longest + 1)
        num_steps = min(self._positions - longest, *rooms)
        self._make_room(num_rows)
        step.num_slots, step.longest = num_slots, max(longest + num_steps, *self.source_lengths)
        step.point(masks=masks.view(np.uint8))
        needed = self._core.scratch_size(self._decoder, num_rows, step.longest, step.count, True)
        if needed > self._scratch_size:
            self._scratch_size = needed + needed // 4
            step.point(scratch=uninitialized([self._scratch_size], np.uint8))
        step.slots = (STRUCTS["Slot"] * num_slots)(*(slot.struct for slot in self._slots))
        if self.spent is not None:
            step.point(spent=self.spent)
        team = None if self._team is None else self._team.wake()
        step.team = None if team is None else pointer(team)
        step.log_probs = None
        return num_steps

    def _make_room(self, num_rows: int) -> None:
        """Grow the step's arrays to at least `num_rows` rows, and as many slots."""
        if num_rows <= len(self._scores):
            return
        room, most = 2 * num_rows, self._step.num_candidates
        numbers = np.empty((7 + 3 * most) * room, dtype=np.int32)
        self._columns, best = numbers[: 6 * room].reshape(6, room), numbers[7 * room :].reshape(3, room, most)
        self._scores, self._best = numbers[6 * room : 7 * room].view(np.float32), [best[0].view(np.float32), *best[1:]]
        columns = ("slot", "beam", "parent", "position", "token", "mask", "score")
        results = ("candidate_score", "candidate_beam", "candidate_token")
        self._step.point_into(
            numbers,
            **{name: number * room for number, name in enumerate(columns)},
            **{name: (7 + number * most) * room for number, name in enumerate(results)},
        )

    def _give_positions(self, longest: int) -> None:
        """Extend the position embeddings to at least `longest` positions."""
        if longest <= self._positions:
            return
        self._positions, self._tokens = self._weights.tokens("target_embedding", longest)
        if self._listed is not None:
            self._tokens = self._listed.tokens(self._tokens)


class _Slot:
    """The keys, values and beam history of a sentence in flight."""

    def __init__(self, memory: Float[np.ndarray, "B LW"], source_length: int, beam_size: int) -> None:
        self.memory = memory
        self._beam_size = beam_size
        self._newest = np.empty(2 * beam_size, dtype=np.int32)
        self.struct = STRUCTS["Slot"](
            memory=memory.ctypes.data, source_length=source_length, newest=self._newest.ctypes.data
        )
        self._allocate((source_length + 16) * beam_size)  # enough for an output of ordinary length

    def make_room(self, position: int) -> int:
        """Grow the slot to hold a position, even if its beams share no history; return how many it holds from there."""
        places = (position + 1) * self._beam_size
        if places > self._places:
            parents, past = self._parents, self._past
            self._allocate(2 * places)
            self._parents[: len(parents)], self._past[: len(past)] = parents, past
        return self._places // self._beam_size - position

    def _allocate(self, places: int) -> None:
        self._places = places
        width = self.memory.shape[1] // LANES
        room = uninitialized([places * (width + 1)])
        self._past, self._parents = room[: places * width].reshape(places, width), room[places * width :].view(np.int32)
        self.struct.past, self.struct.parents = (address := room.ctypes.data), address + self._past.nbytes

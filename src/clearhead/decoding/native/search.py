"""Greedy and beam search in the compiled core, many steps per call; the decisions are those of `beam_state`.

The core computes the masks of most hypotheses itself. Those of a text prefix and of placeholders come from
`token_masks`, so while such a sentence is in flight a call takes one step.

Shapes: N masks, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import POINTER, pointer
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodeConfig
from clearhead.decoding.repetition import LOOP_TIMES, LOOP_TOKENS
from clearhead.decoding.rules import Hypothesis, rank_penalty
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens, Mask
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64

SECONDS = 0.01
"""Time after which a call begins no further step, so that Ctrl-C and other calls, for which helper threads stop, wait
no longer. Python takes about a hundredth of that per call."""


class NativeSentence:
    """The hypotheses of a sentence in flight, in memory that the core writes.

    Args:
        sentence: The sentence.
        bos_id: The first decoder input.
        guided_until: Length up to which the masks come from Python.
        beam_size: Maximum open hypotheses.
        num_best: Finished hypotheses to keep.
        longest_penalty: Length penalty at the maximum length.
        scores: Whether the core computes log-probabilities; they are NaN otherwise.
    """

    def __init__(
        self,
        sentence: Sentence,
        bos_id: int,
        guided_until: int,
        *,
        beam_size: int,
        num_best: int,
        longest_penalty: float,
        scores: bool,
    ) -> None:
        assert sentence.max_length > 0  # the core does not check
        self.sentence = sentence
        self._guided_until = guided_until
        self._has_scores = scores
        room = beam_size * sentence.max_length
        # All numbers in one array: scores, newest, parents, masks, tokens of the open and of the finished hypotheses,
        # states.
        num_finished = num_best * sentence.max_length
        self._numbers = np.zeros(6 * beam_size + 2 * room + num_finished, dtype=np.int32)
        self._numbers[beam_size] = bos_id
        self._written = self._numbers[4 * beam_size :][: 2 * room].reshape(2, beam_size, sentence.max_length)
        finished = self._numbers[4 * beam_size + 2 * room :][:num_finished]
        self._finished_tokens = finished.reshape(num_best, sentence.max_length)
        self._finished = (STRUCTS["Finished"] * num_best)()
        self.masks = self._numbers[3 * beam_size : 4 * beam_size]
        """For each open hypothesis, the number of the mask of its next token."""
        self.struct = STRUCTS["Hypotheses"](
            max_length=sentence.max_length,
            prefix=len(sentence.prefix.tokens),
            given=sentence.prefix.given,
            guided_until=guided_until,
            longest_penalty=longest_penalty,
            num_open=1,
            finished=self._finished,
        ).point_into(
            self._numbers,
            scores=0,
            newest=beam_size,
            parents=2 * beam_size,
            masks=3 * beam_size,
            written=4 * beam_size,
            finished_tokens=4 * beam_size + 2 * room,
            states=4 * beam_size + 2 * room + num_finished,
        )
        self.pointer = pointer(self.struct)

    @property
    def is_open(self) -> bool:
        """Whether any hypothesis is open; if not, the search of the sentence is done."""
        return self.struct.num_open > 0

    @property
    def is_guided(self) -> bool:
        """Whether the masks of the next step come from Python."""
        return self._guided_until > 0 and self.struct.length < self._guided_until

    @property
    def written(self) -> list[list[int]]:
        """The tokens of each open hypothesis."""
        length = self.struct.length
        return self._written[length % 2, : self.struct.num_open, :length].tolist()

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first."""
        return [
            Hypothesis(
                tuple(self._finished_tokens[hypothesis.place, : hypothesis.length].tolist()),
                hypothesis.log_prob if self._has_scores else math.nan,
                hypothesis.rank_score if self._has_scores else math.nan,
                bool(hypothesis.was_ended),
            )
            for hypothesis in self._finished[: min(num_best, self.struct.num_finished)]
        ]


class NativeSearch:
    """A greedy or beam search of the sentences in the slots of a worker; see `engine.SlotSearch`.

    Args:
        advance: Calls the core with a search, the lengths of its sentences and the masks; returns whether it needs
            `Sentence.times_in_source` first.
        eos_id: The end token.
        config: Settings of the search.
        num_best: Hypotheses to find for each sentence.
        allowed: The allowed tokens of the model.
        changes: Counter of what the caller must look at.
        scores: Whether `advance` computes log-probabilities.
    """

    def __init__(
        self,
        advance: Callable[[Struct, Sequence[int], Bool[np.ndarray, "N V"]], int],
        eos_id: int,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        changes: Int64[np.ndarray, "1"],
        *,
        scores: bool,
    ) -> None:
        self._advance = advance
        self._scores = scores
        self._config = config
        self._num_best = num_best
        self._allowed = allowed
        # In the order of `enum Mask`.
        self._masks = np.stack([allowed.anything, allowed.end, *allowed.of_states])
        self._penalties = np.empty(0)
        self._struct = STRUCTS["Search"](
            eos_id=eos_id,
            num_best=num_best,
            ends_loops=config.end_loops,
            loop_tokens=LOOP_TOKENS,
            loop_times=LOOP_TIMES,
        ).point(changes=changes, next_states=None if allowed.parts is None else allowed.parts.next_states)

    def begin(self, sentence: Sentence, bos_id: int) -> NativeSentence:
        """Return the state of a sentence before the first target token; see `engine.SlotSearch`."""
        if sentence.max_length >= len(self._penalties):
            lengths = range(2 * sentence.max_length)
            self._penalties = np.array([1.0, *(rank_penalty(length, self._config) for length in lengths[1:])])
            self._struct.point(penalties=self._penalties)
        return NativeSentence(
            sentence,
            bos_id,
            self._allowed.guided_until(sentence),
            beam_size=self._config.beam_size,
            num_best=self._num_best,
            longest_penalty=rank_penalty(sentence.max_length, self._config),
            scores=self._scores,
        )

    def advance(self, active: Sequence[NativeSentence], seen: int) -> None:
        """Take steps until a sentence is done, or the caller must look at something; see `engine.SlotSearch`."""
        masks = list(self._masks)
        for searched in active:
            if searched.is_guided:
                after = (self._allowed.after(tokens, searched.sentence) for tokens in searched.written)
                searched.masks[: searched.struct.num_open] = [self._add(masks, mask) for mask in after]
        search = self._struct
        search.seen, search.seconds = seen, SECONDS
        search.sentences = (POINTER(STRUCTS["Hypotheses"]) * len(active))(*(searched.pointer for searched in active))
        lengths = [searched.struct.length for searched in active]
        stacked = np.stack(masks) if len(masks) > len(self._masks) else self._masks
        if self._advance(search, lengths, stacked):
            for searched in active:
                if searched.struct.times_in_source < 0:
                    searched.struct.times_in_source = searched.sentence.times_in_source

    def _add(self, masks: list[Mask], mask: Mask | None) -> int:
        """Return the number of a mask, which is added to the others if it is new."""
        if mask is None or mask is self._allowed.anything:
            return CONSTANTS["ANYTHING"]
        if mask is self._allowed.end:
            return CONSTANTS["END_ALONE"]
        masks.append(mask)
        return len(masks) - 1

"""Tokens that are parts of characters, and what may follow them: a translation is always valid UTF-8.

A vocabulary over bytes has tokens that begin, continue or end a character, such as the bytes of a rare one. A finite
automaton over bytes (Unicode, table 3-7) tells which tokens may follow: a character that has begun is continued, and
none begins if there is no room left for the rest of it.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearhead.kernels.structs import CONSTANTS

if TYPE_CHECKING:
    from jaxtyping import Bool, Int8

    from clearhead.tokenizers import Vocabulary

NUM_STATES, NUM_ROOMS = CONSTANTS["UTF8_STATES"], CONSTANTS["UTF8_ROOMS"]

_WHOLE = 0
"""State between two characters."""
_NEXT: list[dict[range, int]] = [
    {
        range(0x80): _WHOLE,
        range(0xC2, 0xE0): 1,
        range(0xE0, 0xE1): 4,
        range(0xE1, 0xED): 2,
        range(0xED, 0xEE): 5,
        range(0xEE, 0xF0): 2,
        range(0xF0, 0xF1): 6,
        range(0xF1, 0xF4): 3,
        range(0xF4, 0xF5): 7,
    },
    {range(0x80, 0xC0): _WHOLE},
    {range(0x80, 0xC0): 1},
    {range(0x80, 0xC0): 2},
    {range(0xA0, 0xC0): 1},
    {range(0x80, 0xA0): 1},
    {range(0x90, 0xC0): 2},
    {range(0x80, 0x90): 2},
]
"""The state that follows each state after a byte."""
_AFTER = np.full((NUM_STATES + 1, 256), -1, dtype=np.int8)
"""The same as a table: -1 where a byte may not follow, and in the last row, which is that of state -1."""
for _state, _ranges in enumerate(_NEXT):
    for _some, _next in _ranges.items():
        _AFTER[_state, _some] = _next


class CharacterParts:
    """The tokens of a vocabulary that are parts of characters.

    Args:
        parts: The bytes of each such token; all other tokens are whole characters, or no text.
        vocab_size: Number of tokens.
    """

    def __init__(self, parts: Mapping[int, bytes], vocab_size: int) -> None:
        self.next_states: Int8[np.ndarray, "8 V"] = np.full((NUM_STATES, vocab_size), -1, dtype=np.int8)
        """The state after each token; -1 if it may not follow."""
        self.next_states[_WHOLE] = _WHOLE
        for token, text in parts.items():
            states = np.arange(NUM_STATES)
            for byte in text:
                states = _AFTER[states, byte]
            self.next_states[:, token] = states
        self.needed = needed = self._needed()
        self.next_states[np.isin(self.next_states, np.flatnonzero(needed == NUM_ROOMS))] = -1  # nothing can follow
        self.masks: Bool[np.ndarray, "4 8 V"] = np.stack(
            [(self.next_states >= 0) & (needed[self.next_states] <= room) for room in range(NUM_ROOMS)]
        )
        """The tokens allowed in each state, by the room for further tokens before the end token; the last room is any
        larger one."""
        self.continuing = np.flatnonzero((self.next_states[1:] >= 0).any(axis=0))
        """The tokens that can continue a character."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> CharacterParts | None:
        """Return the parts of characters in a target vocabulary; None if there are none."""
        parts = vocabulary.parts_of_characters()
        return cls(parts, vocabulary.vocab_size) if parts else None

    def _needed(self) -> Int8[np.ndarray, " 8"]:
        """Return the least number of tokens that complete a character from each state; `NUM_ROOMS` if none do."""
        needed = np.full(NUM_STATES, NUM_ROOMS, dtype=np.int8)
        needed[_WHOLE] = 0
        for _ in range(1, NUM_ROOMS):
            for state in range(1, NUM_STATES):
                following = np.unique(self.next_states[state])
                least = min((needed[next_state] for next_state in following if next_state >= 0), default=NUM_ROOMS)
                needed[state] = min(needed[state], least + 1, NUM_ROOMS)
        return needed

    def state(self, written: Sequence[int]) -> int:
        """Return the state after some tokens."""
        start = len(written)
        while start and len({*self.next_states[:, written[start - 1]].tolist()} - {-1}) > 1:
            start -= 1  # from which state it was reached makes a difference
        state = _WHOLE if not start else max(self.next_states[:, written[start - 1]].tolist())
        for token in written[start:]:
            state = int(self.next_states[state, token])
        return state

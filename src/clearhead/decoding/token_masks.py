"""Masks of the allowed next tokens of each hypothesis.

Padding and the start token are never written, a forced prefix comes first, and only the end token is allowed at the
length limit and in a repetition loop (`repetition`). All searches use these rules, the plain ones and the batched one,
and pass them to the engines as masks. Allowed tokens keep the model's own probability, so that search scores are
comparable with `score`.

A model with placeholder tokens must write exactly the placeholders of the source, each equally often. The end token
is not allowed before all of them are written, and a closing placeholder only after its opening one. When the tokens
left before the length limit are just enough for the missing ones, only those are allowed. The same holds for required
terms (`constraints`).

A prefix is written as the tokenizer encodes it. But its last word may be part of a word, for which the model knows
other tokens (`do` and `dog`). So at every position any token is also allowed that begins with all of the missing rest
of the prefix ("token healing"; Lundberg 2023, microsoft/guidance). The output then begins with exactly the prefix text,
its last word may be completed, and the prefix never takes more tokens than that encoding.

Parts of a character are followed by the rest of it, before any other rule counts (`utf8`).

`min_length` and `no_repeat_ngram_size` take tokens away from what these rules allow, unless they would leave none.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.repetition import is_loop
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Prefix, Sentence
from clearhead.decoding.utf8 import NUM_ROOMS, NUM_STATES, CharacterParts
from clearhead.text.placeholders import NUM_ALONE, NUM_PAIRS

if TYPE_CHECKING:
    from jaxtyping import Bool

    from clearhead.decoding.constraints import Required

    Mask = Bool[np.ndarray, " V"]
else:
    Mask = np.ndarray
"""True for the allowed tokens."""

_MOST_MASKS = 1_000
"""Maximum number of cached masks; a mask has one byte per token."""


class AllowedTokens:
    """The allowed next tokens of a model's hypotheses.

    Args:
        config: The model configuration.
        end_loops: Whether a translation in a repetition loop must end.
        min_length: Minimum target tokens, end token included.
        no_repeat_ngram_size: Tokens of a sequence that may not be repeated; 0 allows every repetition.
        parts: The tokens that are parts of characters; None if there are none.
        listed: Tokens that the shortlist of every sentence has; None if there is no shortlist.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        end_loops: bool = True,
        min_length: int = 0,
        no_repeat_ngram_size: int = 0,
        parts: CharacterParts | None = None,
        listed: Sequence[int] | None = None,
    ) -> None:
        self._vocab_size = config.vocab_size
        self._end_loops = end_loops
        self._min_length = min_length
        self._no_repeat_ngram_size = no_repeat_ngram_size
        self._ever = ever = self._all_but(never_written(config))
        self.parts = parts
        self.of_states = [] if parts is None else list((ever & parts.masks).reshape(-1, config.vocab_size))
        """Masks of the tokens allowed in each state of UTF-8, room by room; see `CharacterParts.masks`."""
        self.anything = self.of_states[-NUM_STATES] if self.of_states else ever
        """Mask of every token that may be written, as far as no rule says otherwise."""
        whole = self.of_states[0] if self.of_states else ever  # allowed without any room
        self.searched = slice(None) if listed is None else [token for token in listed if whole[token]]
        """Index of the tokens of which `min_length` and `no_repeat_ngram_size` must leave one."""
        self._end_id = config.eos_id
        self._first_placeholder = config.first_placeholder if config.num_placeholders else math.inf
        self._waiting: dict[tuple[int, ...], Mask] = {}
        self.end = self._only([config.eos_id])
        """Mask of the end token alone; a hypothesis that ends under it was ended by a rule, not by the model."""

    @classmethod
    def of(
        cls,
        model: ModelConfig,
        config: DecodeConfig,
        parts: CharacterParts | None = None,
        listed: Sequence[int] | None = None,
    ) -> Self:
        """Return the allowed tokens of a model under decoding settings; for `parts` and `listed` see the class."""
        names = ("end_loops", "min_length", "no_repeat_ngram_size")
        return cls(model, **{name: getattr(config, name) for name in names}, parts=parts, listed=listed)

    def after(self, written: Sequence[int], sentence: Sentence) -> Mask | None:
        """Return the mask of the tokens allowed after those written so far; None allows anything.

        Args:
            written: Target ids; empty at the beginning.
            sentence: The sentence to translate.
        """
        mask, avoided = self._by_content(written, sentence), self._avoided(written)
        if avoided and mask is not self.end:
            rest = (self.anything if mask is None else mask).copy()
            rest[avoided] = False
            mask = rest if rest[self.searched].any() else mask
        return mask if self.parts is None else self._of_whole_characters(mask, written, sentence, self.parts)

    def _of_whole_characters(
        self, mask: Mask | None, written: Sequence[int], sentence: Sentence, parts: CharacterParts
    ) -> Mask:
        """Return a mask without the tokens that would leave a character incomplete; if none is left, of its rest."""
        state = parts.state(written)
        if mask is self.end and not state:
            return mask
        is_in_prefix = bool(_rest_of_prefix(written, sentence.prefix))  # it comes before placeholders and terms
        room = sentence.max_length - len(written) - 2
        room -= 0 if is_in_prefix else len(self._missing_placeholders(written, sentence))
        valid, allowed = self.of_states[_known_room(room) * NUM_STATES + state], parts.masks[_known_room(room), state]
        if sentence.required is not None and not is_in_prefix:
            allowed = self._with_room_for_terms(allowed, room, state, written, sentence.required, parts)
        elif mask is None:
            return valid
        masks = ((self.anything if mask is None else mask) & allowed, valid & allowed)
        return next((choice for choice in masks if choice.any()), valid)

    def _with_room_for_terms(
        self,
        allowed: Mask,
        room: int,
        state: int,
        written: Sequence[int],
        required: Required,
        parts: CharacterParts,
    ) -> Mask:
        """Return a mask of parts of characters that leaves room for missing terms."""
        from clearhead.decoding.constraints import ANOTHER_WORD, SAME_WORD

        now = required.progress(written)
        remaining = max(required.after(now, token).remaining for token in (ANOTHER_WORD, SAME_WORD))
        rest = parts.masks[_known_room(room - remaining), state].copy()
        own = list(now.next_tokens)  # of a term, which has room for all of its tokens
        rest[own] = allowed[own]
        return rest

    def _by_content(self, written: Sequence[int], sentence: Sentence) -> Mask | None:
        """Return the mask of the length limit, the prefix, repetition loops, placeholders and terms."""
        if len(written) + 1 == sentence.max_length:
            return self.end
        rest = _rest_of_prefix(written, sentence.prefix)
        if rest:
            return self._only(rest)
        own = written[len(sentence.prefix.tokens) :]  # a prefix may contain repetitions
        is_over = self._end_loops and is_loop(own, lambda: sentence.times_in_source)
        missing = self._missing_placeholders(written, sentence)
        if sentence.required is None:
            if not missing:
                return self.end if is_over else None
            has_room = len(written) + len(missing) + 1 < sentence.max_length
            next_ones = self._next_of(missing, written)
            return self._before_the_end(next_ones) if has_room and not is_over else self._only(next_ones)
        return self._for_terms(written, sentence, sentence.required, missing, is_over=is_over)

    def _avoided(self, written: Sequence[int]) -> list[int]:
        """Return the tokens that `min_length` and `no_repeat_ngram_size` take away."""
        avoided = [self._end_id] if len(written) + 1 < self._min_length else []
        size, length = self._no_repeat_ngram_size, len(written)
        if 0 < size <= length:
            last = written[length - size + 1 :]
            ends = range(size - 1, length)
            avoided += [
                written[end]
                for end in ends
                if written[end - size + 1 : end] == last and written[end] < self._first_placeholder
            ]
        return avoided

    def guided_until(self, sentence: Sentence) -> int:
        """Return the length in tokens from which on only `max_length` and loops restrict the next token."""
        if sentence.required is not None or self.has_placeholders(sentence) or self._no_repeat_ngram_size:
            return sentence.max_length
        return min(max(len(sentence.prefix.tokens), self._min_length - 1), sentence.max_length)

    def _for_terms(
        self, written: Sequence[int], sentence: Sentence, required: Required, missing: Sequence[int], *, is_over: bool
    ) -> Mask | None:
        """Return the mask that lets required terms and placeholders fit before the length limit."""
        from clearhead.decoding.constraints import ANOTHER_WORD, SAME_WORD

        now = required.progress(written)
        room = sentence.max_length - len(written) - 2 - len(missing)  # after the next token, before the end token
        is_complete = not (missing or now.remaining)
        if is_complete and is_over:
            return self.end
        next_ones = self._next_of(missing, written) if missing else []
        another, same = (required.after(now, token).remaining for token in (ANOTHER_WORD, SAME_WORD))
        if not is_over and max(another, same) <= room:
            return None if is_complete else self._before_the_end(next_ones)
        most = min(room, now.remaining - 1) if is_over else room
        mask = self.anything & np.where(required.edges.continues, same <= most, another <= most)
        for token in required.tokens:
            mask[token] = self._ever[token] and required.after(now, token).remaining <= most
        mask[self._end_id] = is_complete
        if another <= (now.remaining if is_over else room + 1):
            mask[next_ones] = True
        return mask if mask.any() else self.end

    def has_placeholders(self, sentence: Sentence) -> bool:
        """Return whether the source has placeholders."""
        return max(sentence.source, default=0) >= self._first_placeholder

    def _missing_placeholders(self, written: Sequence[int], sentence: Sentence) -> list[int]:
        if not self.has_placeholders(sentence):
            return []  # the usual case; counting took half of a search's time in Python
        missing = Counter(token for token in sentence.source if token >= self._first_placeholder)
        missing.subtract(token for token in written if token in missing)
        return list((+missing).elements())

    def _next_of(self, missing: Sequence[int], written: Sequence[int]) -> list[int]:
        """Return the missing placeholders allowed next: a closing one only if its opening one was opened last.

        If a source closes what it never opened, as text with its own markup may, the rest is allowed in any order.
        """
        opening = self._first_placeholder + NUM_ALONE
        closing = opening + NUM_PAIRS
        opened: list[int] = []
        for token in written:
            if token >= closing:
                del opened[-1:]
            elif token >= opening:
                opened.append(token)
        return [token for token in missing if token < closing or opened[-1:] == [token - NUM_PAIRS]] or list(missing)

    def _before_the_end(self, placeholders: Sequence[int]) -> Mask:
        """Return a mask of text and these placeholders, without the end token."""
        key = tuple(sorted(set(placeholders)))
        if key not in self._waiting:
            if len(self._waiting) == _MOST_MASKS:
                self._waiting.clear()
            mask = self.anything.copy()
            mask[self._end_id] = False
            mask[list(key)] = True
            self._waiting[key] = mask
        return self._waiting[key]

    def _only(self, tokens: Sequence[int]) -> Mask:
        mask = np.zeros(self._vocab_size, dtype=bool)
        mask[list(tokens)] = True
        return mask

    def _all_but(self, tokens: Sequence[int]) -> Mask:
        return ~self._only(tokens)


def _known_room(room: int) -> int:
    """Return the room for further tokens as a place in `CharacterParts.masks`."""
    return min(max(room, 0), NUM_ROOMS - 1)


def _rest_of_prefix(written: Sequence[int], prefix: Prefix) -> tuple[int, ...]:
    """Return the tokens that may continue a prefix; none where it is whole, also by one token for all of its rest."""
    place = len(written)
    if place >= len(prefix.tokens) or tuple(written) != prefix.tokens[:place]:
        return ()
    return prefix.tokens[place], *prefix.completions[place]

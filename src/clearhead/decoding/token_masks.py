"""Which tokens a hypothesis may go on with.

Padding and the start token are never written, a given prefix comes first, and there is only the end at the length
limit and for a translation that has fallen into a repetition loop (`loops`). Every search asks here, the plain ones and
the fast one, and the engines take the answer as a mask. What is allowed keeps the model's own probability, so that
scores compare with scoring.

Of a model with tokens for placeholders (`protect`) a translation has those of its source, each as often as there: no
other may come, the end must wait for all of them, and what closes something for what opens it; where they would not fit
before the length limit any more, they alone may come. The same holds for the forms of terms (`required`): the end waits
for them, and at last they alone may come.

A prefix is written in the tokenizer's own spelling. But its last word may be half a word, which the model knows in
other pieces (`do` and `dog`). So at every place any token may come that begins with all of the prefix that is still
missing ("token healing"; Lundberg 2023, microsoft/guidance): the text is the prefix to the letter, its end may be
completed, and it never takes more tokens than the spelling has.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from clearhead.config import ModelConfig
from clearhead.decoding.constraints import ANOTHER_WORD, SAME_WORD, Required
from clearhead.decoding.repetition import is_loop
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Prefix, Sentence
from clearhead.text.placeholders import NUM_ALONE, NUM_PAIRS

__all__ = ["AllowedTokens", "Mask"]

Mask = Bool[np.ndarray, " V"]
"""True for the tokens that may come."""

_MOST_MASKS = 1_000
"""Masks that are kept; one has a byte for every token."""


class AllowedTokens:
    """What the hypotheses of a model may go on with.

    Args:
        config: Of the model.
        end_loops: Whether a repetition loop may only end.
    """

    def __init__(self, config: ModelConfig, *, end_loops: bool = True) -> None:
        self._vocab_size = config.vocab_size
        self._end_loops = end_loops
        self.anything = self._all_but(never_written(config))
        """Every token that is ever written."""
        self._end_id = config.eos_id
        self._first_placeholder = config.first_placeholder if config.num_placeholders else math.inf
        self._waiting: dict[tuple[int, ...], Mask] = {}
        self.end = self._only([config.eos_id])
        """The end alone; where it is the mask, not the model ended the translation."""

    def after(self, written: Sequence[int], sentence: Sentence) -> Mask | None:
        """Return what may come after the tokens written so far; None is anything.

        Args:
            written: Target ids, none at the beginning.
            sentence: What is translated.
        """
        if len(written) + 1 == sentence.max_length:
            return self.end
        if len(written) < len(sentence.prefix.tokens):
            return self._rest_of_prefix(written, sentence.prefix)
        own = written[len(sentence.prefix.tokens) :]  # a prefix may repeat what it likes
        is_over = self._end_loops and is_loop(own, lambda: sentence.times_in_source)
        missing = self._missing_placeholders(written, sentence)
        if sentence.required is None:
            if not missing:
                return self.end if is_over else None
            has_room = len(written) + len(missing) + 1 < sentence.max_length
            next_ones = self._next_of(missing, written)
            return self._before_the_end(next_ones) if has_room and not is_over else self._only(next_ones)
        return self._for_terms(written, sentence, sentence.required, missing, is_over=is_over)

    def _for_terms(
        self, written: Sequence[int], sentence: Sentence, required: Required, missing: Sequence[int], *, is_over: bool
    ) -> Mask | None:
        """Return what may come if the forms of terms, and placeholders, are to fit before the length limit."""
        now = required.progress(written)
        room = sentence.max_length - len(written) - 2 - len(missing)  # behind the next token, before the end
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
            mask[token] = self.anything[token] and required.after(now, token).remaining <= most
        mask[self._end_id] = is_complete
        if another <= (now.remaining if is_over else room + 1):
            mask[next_ones] = True
        return mask if mask.any() else self.end

    def _missing_placeholders(self, written: Sequence[int], sentence: Sentence) -> list[int]:
        if max(sentence.source, default=0) < self._first_placeholder:
            return []  # as of nearly every source; to count took half of a search's time in Python
        missing = Counter(token for token in sentence.source if token >= self._first_placeholder)
        missing.subtract(token for token in written if token in missing)
        return list((+missing).elements())

    def _next_of(self, missing: Sequence[int], written: Sequence[int]) -> list[int]:
        """Return the placeholders that may come next: what closes something, only if that was opened last.

        Where a source closes what it never opened, as a text that has signs of its own may, what is left comes in any
        order.
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
        """Return that these may come, and text, but not the end."""
        key = tuple(sorted(set(placeholders)))
        if key not in self._waiting:
            if len(self._waiting) == _MOST_MASKS:
                self._waiting.clear()
            mask = self.anything.copy()
            mask[self._end_id] = False
            mask[list(key)] = True
            self._waiting[key] = mask
        return self._waiting[key]

    def _rest_of_prefix(self, written: Sequence[int], prefix: Prefix) -> Mask | None:
        place = len(written)
        if tuple(written) != prefix.tokens[:place]:
            return None  # completed by one token for all the rest
        return self._only([prefix.tokens[place], *prefix.completions[place]])

    def _only(self, tokens: Sequence[int]) -> Mask:
        mask = np.zeros(self._vocab_size, dtype=bool)
        mask[list(tokens)] = True
        return mask

    def _all_but(self, tokens: Sequence[int]) -> Mask:
        return ~self._only(tokens)

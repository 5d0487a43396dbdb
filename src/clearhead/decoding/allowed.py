"""Which tokens a hypothesis may go on with.

Padding and the start token are never written, a given prefix comes first, and there is only the end at the length
limit and for a translation that has fallen into a repetition loop (`loops`). Every search asks here, the plain ones and
the fast one, and the engines take the answer as a mask. What is allowed keeps the model's own probability, so that
scores compare with scoring.

A prefix is written in the tokenizer's own spelling. But its last word may be half a word, which the model knows in
other pieces (`do` and `dog`). So at every place any token may come that begins with all of the prefix that is still
missing ("token healing"; Lundberg 2023, microsoft/guidance): the text is the prefix to the letter, its end may be
completed, and it never takes more tokens than the spelling has.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from clearhead.config import ModelConfig
from clearhead.decoding.loops import is_loop
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Prefix, Sentence

__all__ = ["AllowedTokens", "Mask"]

Mask = Bool[np.ndarray, " V"]
"""True for the tokens that may come."""


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
        return self.end if self._end_loops and is_loop(own, lambda: sentence.times_in_source) else None

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

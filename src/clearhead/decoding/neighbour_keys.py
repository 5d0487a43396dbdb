"""The keys of retrieved pairs, computed by an engine, and its cache of them.

Shapes: T tokens of a target, D d_model.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from clearhead.decoding.neighbours import Pair
from clearhead.decoding.sentence import Sentence, length_batches

if TYPE_CHECKING:
    from jaxtyping import Float

CACHE_BYTES = 64 * 2**20
"""Maximum size of the cached states of an engine: about 2,000 pairs of a base model."""

TOKENS_AT_ONCE = 2_048
"""Maximum tokens of the pairs whose states are computed at once, on one side."""

States = Callable[[Sequence[Pair]], "list[Float[np.ndarray, 'T D']]"]
"""A function that returns the decoder's output for given pairs, at the steps that write their targets."""

KeysOf = Callable[[Sequence[Pair]], "dict[Pair, Float[np.ndarray, 'T D']]"]
"""A function that returns the keys of pairs."""


class KeyCache:
    """A cache of the keys of pairs, with the least recently used ones evicted first. Several threads may use it."""

    def __init__(self) -> None:
        self._keys = OrderedDict[Pair, np.ndarray]()
        self._bytes = 0
        self._lock = Lock()

    def __call__(self, pairs: Sequence[Pair], states: States, most_tokens: int) -> dict[Pair, Float[np.ndarray, "T D"]]:
        """Return the keys of pairs.

        Args:
            pairs: The pairs.
            states: Function that computes the keys that are not cached; a cache is for one such function.
            most_tokens: Maximum tokens of the pairs computed at once, unless a single one has more.
        """
        found, missing = dict[Pair, np.ndarray](), list[Pair]()
        with self._lock:
            for pair in dict.fromkeys(pairs):
                if pair in self._keys:
                    self._keys.move_to_end(pair)
                    found[pair] = self._keys[pair]
                else:
                    missing.append(pair)
        for batch in length_batches([max(map(len, pair)) for pair in missing], most_tokens):
            own = [missing[index] for index in batch]
            found.update(zip(own, states(own), strict=True))
        with self._lock:
            for pair in missing:
                if pair not in self._keys:  # another thread may have computed it too
                    self._keys[pair] = found[pair]
                    self._bytes += found[pair].nbytes
            while self._bytes > CACHE_BYTES:
                self._bytes -= self._keys.popitem(last=False)[1].nbytes
        return found


def with_keys(sentences: Sequence[Sentence], keys: KeysOf) -> list[Sentence]:
    """Return sentences with the keys of their neighbours, which `Engine.keys_of` computes."""
    if not any(sentence.neighbours for sentence in sentences):
        return list(sentences)
    known = keys([pair for sentence in sentences if sentence.neighbours for pair in sentence.neighbours.pairs])

    def completed(sentence: Sentence) -> Sentence:
        if (own := sentence.neighbours) is None:
            return sentence
        return replace(sentence, neighbours=own._replace(keys=np.concatenate([known[pair] for pair in own.pairs])))

    return list(map(completed, sentences))

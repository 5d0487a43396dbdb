"""Language identification between source and target, by letter trigrams learned from the corpus itself.

Character n-grams identify languages (Cavnar and Trenkle 1994). Nothing is downloaded, so a third language cannot be
identified. If much of a side is in the other side's language, the profiles learn this as normal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.characters import LETTER
from clearhead.data.doctor.code_points import Texts

FEWEST_PAIRS = 200
"""Fewest pairs from which profiles are learned."""

CLEAR_MEAN = 0.5
"""Least mean log odds in nats per trigram for a text to be reported."""

CLEAR_SUM = 20.0
"""Least sum of the log odds in nats for a text to be reported."""

_BUCKET_BITS = 18
_BUCKETS = 2**_BUCKET_BITS
"""Trigrams are hashed into buckets; collisions occur in scripts with thousands of letters, hardly in alphabets."""
_MOST_ODDS = 4.0
"""Most nats that one trigram contributes: it may be a name that happens to be frequent."""


class Profiles:
    """Log odds of each trigram in sources against targets."""

    def __init__(self, odds: NDArray[np.float32]) -> None:
        self._odds = odds

    @classmethod
    def learn(cls, sources: Sequence[Texts], targets: Sequence[Texts]) -> Profiles | None:
        """Count the trigrams of both sides; return None if there are too few pairs."""
        if sum(len(one.texts) for one in sources) < FEWEST_PAIRS:
            return None
        logs = []
        for side in (sources, targets):
            counts = np.zeros(_BUCKETS)
            for texts in side:
                trigrams, is_one = _trigrams(texts)
                counts += np.bincount(trigrams[is_one], minlength=_BUCKETS)
            logs.append(np.log(counts + 0.5) - np.log(counts.sum() + 0.5 * _BUCKETS))
        return cls(np.clip(logs[0] - logs[1], -_MOST_ODDS, _MOST_ODDS).astype(np.float32))

    def odds(self, texts: Texts) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the log odds of each text being a source rather than a target, in nats, and its number of trigrams."""
        trigrams, is_one = _trigrams(texts)
        values = np.where(is_one, self._odds[trigrams], np.float32(0.0))
        return np.add.reduceat(values, texts.starts, dtype=np.float64), texts.sums(is_one)

    def wrong(self, sources: Texts, targets: Texts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which sources clearly look like targets, and which targets like sources.

        If both do, as in a swapped pair, only their sum must reach `CLEAR_SUM`.
        """
        (source, num_source), (target, num_target) = self.odds(sources), self.odds(targets)
        source = -source
        is_source, is_target = source >= CLEAR_MEAN * num_source, target >= CLEAR_MEAN * num_target
        are_both = is_source & is_target & (num_source > 0) & (num_target > 0) & (source + target >= CLEAR_SUM)
        return (is_source & (source >= CLEAR_SUM)) | are_both, (is_target & (target >= CLEAR_SUM)) | are_both


def _trigrams(texts: Texts) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the bucket of the trigram around each character, and whether that character is a letter."""
    codes = texts.plain * np.uint32(0x9E3779B1)
    hashes = codes * np.uint32(0x85EBCA77)
    # Each text is enclosed in line feeds, which count as spaces here.
    hashes[1:] += codes[:-1]
    hashes[:-1] ^= codes[1:] * np.uint32(0xC2B2AE3D)
    hashes *= np.uint32(0x27D4EB2F)
    return hashes >> np.uint32(32 - _BUCKET_BITS), (texts.kinds & LETTER) != 0

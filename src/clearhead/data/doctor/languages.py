"""Which of its two languages a text is written in, told by the corpus itself: three letters in a row on either side.

Character n-grams tell languages (Cavnar and Trenkle 1994). Nothing is downloaded, so nothing is known of a third
language; and a side of which much is in the other side's language teaches that this is so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.characters import LETTER
from clearhead.data.doctor.code_points import Texts

__all__ = ["Profiles"]

FEWEST_PAIRS = 200
"""From fewer pairs nothing is learned."""

CLEAR_MEAN = 0.5
"""Nats by which the other language must be likelier, on average over the trigrams of a text."""

CLEAR_SUM = 20.0
"""Nats by which it must be likelier in all."""

_BUCKET_BITS = 18
_BUCKETS = 2**_BUCKET_BITS
"""Trigrams share a count by chance where a script has thousands of letters; of alphabets nearly none do."""
_MOST_ODDS = 4.0
"""Nats that one trigram tells at most: it may be a name that happens to be frequent."""


class Profiles:
    """How much likelier each trigram is in a source than in a target."""

    def __init__(self, odds: NDArray[np.float32]) -> None:
        self._odds = odds

    @classmethod
    def learn(cls, sources: Sequence[Texts], targets: Sequence[Texts]) -> Profiles | None:
        """Count the trigrams of both sides; None if there are too few pairs."""
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
        """Return how much likelier each text is a source than a target, in nats, and its number of trigrams."""
        trigrams, is_one = _trigrams(texts)
        values = np.where(is_one, self._odds[trigrams], np.float32(0.0))
        return np.add.reduceat(values, texts.starts, dtype=np.float64), texts.sums(is_one)

    def wrong(self, sources: Texts, targets: Texts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Tell which sources clearly look like targets, and which targets like sources.

        Where both do, as in a pair that is the wrong way round, it is the two together that must be clear.
        """
        (source, num_source), (target, num_target) = self.odds(sources), self.odds(targets)
        source = -source
        is_source, is_target = source >= CLEAR_MEAN * num_source, target >= CLEAR_MEAN * num_target
        are_both = is_source & is_target & (num_source > 0) & (num_target > 0) & (source + target >= CLEAR_SUM)
        return (is_source & (source >= CLEAR_SUM)) | are_both, (is_target & (target >= CLEAR_SUM)) | are_both


def _trigrams(texts: Texts) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the bucket of the trigram around each character, and whether that is a letter within its text."""
    codes = texts.plain * np.uint32(0x9E3779B1)
    hashes = codes * np.uint32(0x85EBCA77)
    # A text is enclosed in line feeds, which are spaces here.
    hashes[1:] += codes[:-1]
    hashes[:-1] ^= codes[1:] * np.uint32(0xC2B2AE3D)
    hashes *= np.uint32(0x27D4EB2F)
    return hashes >> np.uint32(32 - _BUCKET_BITS), (texts.kinds & LETTER) != 0

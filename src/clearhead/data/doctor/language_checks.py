"""Pairs with a side in another language: both exchanged, one in that of the other side, or one in a third language.

Source and target are told apart by letter trigrams learned from the corpus itself, since character n-grams identify
languages (Cavnar and Trenkle 1994). If much of a side is in the other side's language, the profiles learn this as
normal. A third language is identified by `identification.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.characters import LETTER
from clearhead.data.doctor.code_points import SEEN_CHARACTERS, TextBatch, Texts
from clearhead.data.doctor.identification import CLEAR_SUM, SideLanguages
from clearhead.text.placeholders import words_alone

_FEWEST_PAIRS = 200
"""Fewest pairs from which profiles are learned."""

_PROFILE_MEAN = 0.5
"""Least mean log odds in nats per trigram for a text to be reported."""

_PROFILE_SUM = 20.0
"""Least sum of the log odds in nats for a text to be reported."""

_BUCKET_BITS = 18
_BUCKETS = 2**_BUCKET_BITS
"""Trigrams are hashed into buckets; collisions occur in scripts with thousands of letters, hardly in alphabets."""
_MOST_ODDS = 4.0
"""Most nats that one trigram contributes: it may be a name that happens to be frequent."""
SIDES = ("the source", "the target")

OF_OTHER_SIDE = "the language of the other side"

Verdict = tuple[str, str]
"""For source and target: empty, `OF_OTHER_SIDE`, or the code of a third language."""

TwoFlags = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""A flag of every source and of every target."""


class Profiles:
    """Log odds of each trigram in sources against targets."""

    def __init__(self, odds: NDArray[np.float32]) -> None:
        self._odds = odds

    @classmethod
    def learn(cls, sources: Sequence[Texts], targets: Sequence[Texts]) -> Profiles | None:
        """Count the trigrams of both sides; return None if there are too few pairs."""
        if sum(len(source.texts) for source in sources) < _FEWEST_PAIRS:
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

        If both do, as in a swapped pair, only their sum must reach `_PROFILE_SUM`.
        """
        (source, num_source), (target, num_target) = self.odds(sources), self.odds(targets)
        source = -source
        is_source, is_target = source >= _PROFILE_MEAN * num_source, target >= _PROFILE_MEAN * num_target
        are_both = is_source & is_target & (num_source > 0) & (num_target > 0) & (source + target >= _PROFILE_SUM)
        return (is_source & (source >= _PROFILE_SUM)) | are_both, (is_target & (target >= _PROFILE_SUM)) | are_both


def _trigrams(texts: Texts) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the bucket of the trigram around each character, and whether that character is a letter."""
    codes = texts.plain * np.uint32(0x9E3779B1)
    hashes = codes * np.uint32(0x85EBCA77)
    # Each text is enclosed in line feeds, which count as spaces here.
    hashes[1:] += codes[:-1]
    hashes[:-1] ^= codes[1:] * np.uint32(0xC2B2AE3D)
    hashes *= np.uint32(0x27D4EB2F)
    return hashes >> np.uint32(32 - _BUCKET_BITS), (texts.kinds & LETTER) != 0


class Languages(NamedTuple):
    """What tells the languages of a corpus apart."""

    profiles: Profiles | None
    """None if there are too few pairs."""
    identified: SideLanguages | str
    """The languages of the two sides, or the reason why they are not known."""


def language_verdicts(batch: TextBatch, languages: Languages, other_script: TwoFlags) -> dict[int, Verdict]:
    """Return the language of the sides that are clearly not in their own, by the index of their pair.

    Args:
        batch: The pairs.
        languages: What tells the languages apart.
        other_script: Which texts are in an unusual script; they are not judged.
    """
    verdicts = dict(_by_profiles(batch, languages, other_script))
    for place, verdict in _by_identification(batch, languages, other_script):
        source, target = (new or old for new, old in zip(verdict, verdicts.get(place, ("", "")), strict=True))
        verdicts[place] = source, target
    return verdicts


def _by_profiles(batch: TextBatch, languages: Languages, other_script: TwoFlags) -> Iterator[tuple[int, Verdict]]:
    if languages.profiles is None:
        return
    first = languages.profiles.wrong(batch.source, batch.target)
    places = np.flatnonzero((first[0] & ~other_script[0]) | (first[1] & ~other_script[1])).tolist()
    if not places:
        return
    # Names, code and addresses belong to no language.
    sides = [
        Texts([words_alone(texts.texts[place][:SEEN_CHARACTERS]) for place in places])
        for texts in (batch.source, batch.target)
    ]
    for place, *wrong in zip(places, *languages.profiles.wrong(*sides), strict=True):
        if any(wrong):
            yield place, (OF_OTHER_SIDE * bool(wrong[0]), OF_OTHER_SIDE * bool(wrong[1]))


def _by_identification(batch: TextBatch, languages: Languages, other_script: TwoFlags) -> Iterator[tuple[int, Verdict]]:
    identified = languages.identified
    if isinstance(identified, str):
        return
    texts_of = batch.source.texts, batch.target.texts
    unlike = {place for side, texts in enumerate(texts_of) for place in identified.unlike(side, texts)}
    for place in sorted(unlike):
        sides = [texts[place] for texts in texts_of]
        evidence = [
            None if other_script[side][place] else identified.foreign(side, text, sides[1 - side])
            for side, text in enumerate(sides)
        ]
        if not any(evidence):
            continue
        names, total = ["", ""], 0.0
        for side, own in enumerate(evidence):
            if own is not None and own.is_likely:
                is_of_other = own.language == identified.languages[1 - side]
                names[side], total = OF_OTHER_SIDE if is_of_other else own.language, total + own.sum
        # Two sides in each other's language are evidence of one fact, that they were exchanged.
        is_exchanged = names == [OF_OTHER_SIDE] * 2 and total >= CLEAR_SUM
        source, target = (
            name if is_exchanged or (own is not None and own.is_clear) else ""
            for name, own in zip(names, evidence, strict=True)
        )
        if source or target:
            yield place, (source, target)

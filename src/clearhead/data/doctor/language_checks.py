"""Pairs with a side in another language: both exchanged, one in that of the other side, or one in a third language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.code_points import SEEN_CHARACTERS, TextBatch, Texts
from clearhead.data.doctor.identification import CLEAR_SUM, SideLanguages
from clearhead.data.doctor.languages import Profiles
from clearhead.text.placeholders import words_alone

SIDES = ("the source", "the target")

OF_OTHER_SIDE = "the language of the other side"

Verdict = tuple[str, str]
"""For source and target: empty, `OF_OTHER_SIDE`, or the code of a third language."""

TwoFlags = tuple[NDArray[np.bool_], NDArray[np.bool_]]
"""A flag of every source and of every target."""


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
    found = dict(_by_profiles(batch, languages, other_script))
    for place, verdict in _by_identification(batch, languages, other_script):
        one, other = (new or old for new, old in zip(verdict, found.get(place, ("", "")), strict=True))
        found[place] = one, other
    return found


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
    for place, sides in enumerate(zip(batch.source.texts, batch.target.texts, strict=True)):
        evidence = [
            None if other_script[side][place] else identified.foreign(side, text, sides[1 - side])
            for side, text in enumerate(sides)
        ]
        if not any(evidence):
            continue
        names, total = ["", ""], 0.0
        for side, one in enumerate(evidence):
            if one is not None and one.is_likely:
                is_of_other = one.language == identified.languages[1 - side]
                names[side], total = OF_OTHER_SIDE if is_of_other else one.language, total + one.sum
        # Two sides in each other's language are evidence of one fact, that they were exchanged.
        is_exchanged = names == [OF_OTHER_SIDE] * 2 and total >= CLEAR_SUM
        source, target = (
            name if is_exchanged or (one is not None and one.is_clear) else ""
            for name, one in zip(names, evidence, strict=True)
        )
        if source or target:
            yield place, (source, target)

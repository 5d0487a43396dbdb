"""Replace placeholders by special characters, and restore them after translation.

`Delete <b>%s</b>?` becomes `Delete ABC?`, where A, B and C are private-use characters (`placeholders.SIGNS`), each a
token of its own. Training text has the same signs on both sides, so that the model learns to copy them. The search
writes each sign as often as the source has it, and closes what it opens (`decoding.allowed`). Then the originals
replace the signs. So text read by programs is kept exactly, and the model need not write it.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple

from clearhead.text.placeholders import (
    CLOSING_MARK,
    NUM_ALONE,
    NUM_PAIRS,
    NUM_SIGNS,
    SIGNS,
    find_placeholders,
    pair_role,
)

_ALONE = SIGNS[:NUM_ALONE]
_PAIRS = [f"{SIGNS[number]}{SIGNS[number + NUM_PAIRS]}" for number in range(NUM_ALONE, NUM_ALONE + NUM_PAIRS)]
_SIGN = re.compile(f"[{SIGNS[0]}-{SIGNS[-1]}]")
MARKS = ("*", "**")
_CLOSING_MARK = re.compile(CLOSING_MARK)


class Protected(NamedTuple):
    """A text with signs in place of placeholders."""

    text: str
    units: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Signs, single or in pairs, with the placeholders that they replace."""
    with_numbers: bool = False
    """Whether numbers count as placeholders."""

    def restored(self, translation: str) -> str:
        """Return a translation with its signs replaced by the placeholders."""
        if not self.units:
            return translation
        originals = self._originals
        return _SIGN.sub(lambda sign: originals.get(sign[0], sign[0]), translation)

    def restored_spans(self, translation: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return spans of a translation as spans of the restored translation, in characters."""
        if not self.units:
            return list(spans)
        originals = self._originals
        starts = [0, *accumulate(len(originals.get(character, character)) for character in translation)]
        return [(starts[start], starts[end]) for start, end in spans]

    @property
    def _originals(self) -> dict[str, str]:
        return {sign: text for signs, texts in self.units for sign, text in zip(signs, texts, strict=True)}


class Unit(NamedTuple):
    """A single placeholder, or an opening and a closing one."""

    texts: tuple[str, ...]
    """One text, or two."""
    starts: tuple[int, ...]
    """Their positions in the text."""


def protect(text: str, num_signs: int = NUM_SIGNS, *, with_numbers: bool = False) -> Protected:
    r"""Return a text with its placeholders replaced by signs, in order, until no sign is left for another placeholder.

    Args:
        text: Any text.
        num_signs: A vocabulary's `num_placeholders`; with 0 the text is not changed.
        with_numbers: Whether numbers count as placeholders.

    >>> protect("Delete <b>%s</b>?").text
    'Delete \U000f0010\U000f0000\U000f0018?'
    >>> protect("Delete <b>%s</b>?").restored("\U000f0010\U000f0000\U000f0018 löschen?")
    '<b>%s</b> löschen?'
    """
    units = units_of(text, with_numbers=with_numbers) if num_signs else []
    if not units:
        return Protected(text)
    placed = _with_signs(units, *_free(text))
    return Protected(_replaced(text, placed), tuple((signs, unit.texts) for unit, signs in placed), with_numbers)


def protect_target(source: Protected, target: str) -> str:
    """Return a target in which placeholders shared with its source are replaced by the source's signs."""
    waiting = _by_texts(units_of(target, with_numbers=source.with_numbers) if source.units else ())
    return _replaced(target, [(waiting[texts].popleft(), signs) for signs, texts in source.units if waiting.get(texts)])


def protect_pair(source: str, target: str, *, with_numbers: bool = False) -> tuple[str, str]:
    """Return the two texts of `protected_pair`."""
    left, right = protected_pair(source, target, with_numbers=with_numbers)
    return left.text, right.text


def protected_pair(source: str, target: str, *, with_numbers: bool = False) -> tuple[Protected, Protected]:
    """Return a training pair with the same signs on both sides for the placeholders that both have.

    The signs are chosen at random, seeded by the source, so that the model learns all of them. Placeholders of one side
    alone are not changed.

    Args:
        source: Source text.
        target: Target text.
        with_numbers: Whether numbers count as placeholders.
    """
    waiting = _by_texts(units_of(target, with_numbers=with_numbers))
    units = units_of(source, with_numbers=with_numbers) if waiting else []
    common = {unit: waiting[unit.texts].popleft() for unit in units if waiting.get(unit.texts)}
    if not common:
        return Protected(source), Protected(target)
    choose = Random(zlib.crc32(source.encode()))
    kinds = [len(texts) for texts in {unit.texts for unit in common}]
    drawn = [
        sorted(choose.sample(signs, min(len(signs), kinds.count(kind))))
        for kind, signs in enumerate(_free(source + target), start=1)
    ]
    placed = _with_signs(list(common), *drawn)
    signs_of = tuple((signs, unit.texts) for unit, signs in placed)
    texts = _replaced(source, placed), _replaced(target, [(common[unit], signs) for unit, signs in placed])
    return Protected(texts[0], signs_of, with_numbers), Protected(texts[1], signs_of, with_numbers)


def without_signs(text: str) -> str:
    """Return a text with signs replaced by spaces, to learn a vocabulary from it."""
    return _SIGN.sub(" ", text)


def units_of(text: str, *, with_numbers: bool = False) -> list[Unit]:
    """Return the placeholders of a text in order of position; an opening code or mark and its closing one are one unit.

    Args:
        text: Any text.
        with_numbers: Whether numbers count as placeholders.
    """
    matches = [*find_placeholders(text, with_numbers=with_numbers)]
    roles = [_role(text, match) for match in matches]
    to_close = Counter(name for name, is_closing in filter(None, roles) if is_closing)
    units: list[Unit] = []
    opened: list[tuple[str, int]] = []  # names of open codes or marks, with their index in `units`
    for match, role in zip(matches, roles, strict=True):
        units.append(Unit((match[0],), (match.start(),)))
        name, is_closing = role or ("", False)
        if not is_closing:
            if to_close[name]:  # `<br>` and `{% include x %}` are never closed
                opened.append((name, len(units) - 1))
            continue
        to_close[name] -= 1
        if opened and opened[-1][0] == name:
            closing, place = units.pop(), opened.pop()[1]
            opening = units[place]
            units[place] = Unit((*opening.texts, *closing.texts), (*opening.starts, *closing.starts))
    return units


def _role(text: str, match: re.Match[str]) -> tuple[str, bool] | None:
    if match[0] in MARKS:
        return match[0], _CLOSING_MARK.match(text, match.start()) is not None
    return pair_role(match[0])


def _by_texts(units: Iterable[Unit]) -> dict[tuple[str, ...], deque[Unit]]:
    """Group equal units, in order; without groups, searching them takes seconds for long lines."""
    by_texts: dict[tuple[str, ...], deque[Unit]] = {}
    for unit in units:
        by_texts.setdefault(unit.texts, deque()).append(unit)
    return by_texts


def _free(text: str) -> tuple[list[str], list[str]]:
    """Return the signs that a text does not contain: single ones, and pairs."""
    return [sign for sign in _ALONE if sign not in text], [
        signs for signs in _PAIRS if signs[0] not in text and signs[1] not in text
    ]


def _with_signs(units: Sequence[Unit], alone: Sequence[str], pairs: Sequence[str]) -> list[tuple[Unit, str]]:
    """Assign signs to units in order, the same sign to equal units, until none is left."""
    left = {1: iter(alone), 2: iter(pairs)}
    signs: dict[tuple[str, ...], str] = {}
    for unit in units:
        if unit.texts not in signs:
            signs[unit.texts] = next(left[len(unit.texts)], "")
    return [(unit, signs[unit.texts]) for unit in units if signs[unit.texts]]


def _replaced(text: str, placed: Iterable[tuple[Unit, str]]) -> str:
    spots = sorted(spot for unit, signs in placed for spot in zip(unit.starts, unit.texts, signs, strict=True))
    parts, end = [], 0
    for start, old, sign in spots:
        parts += [text[end:start], sign]
        end = start + len(old)
    return "".join([*parts, text[end:]])

"""One form for the same text: canonical equivalents, and signs that a training text seldom has.

`ü` is one character, or `u` and a mark (canonically equivalent texts, Unicode chapter 3.7); a soft hyphen and a mark
without width show nothing; a tab or an ideographic space is a space. A model has learned one of these forms and reads
the others as other words. So a text is brought to the form of the training text before the model reads it. Tokenizers
still restore every text exactly.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Literal

from clearhead.text.placeholders import find_placeholders

RARE = 0.01
"""Share of the training lines below which a property is rare, so that the model does not know it well."""

MARKS = "\u00ad\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff"
"""Marks that show nothing: the soft hyphen, and what is without width. Joiners (U+200C, U+200D) are spelling."""
_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks of the writing direction: spelling for a model that knows letters from right to left."""
_WIDE = {chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)}
"""Full-width forms of ASCII."""

COMPOSED, DECOMPOSED = "composed", "decomposed"
"""Keys of `count_forms` for lines that are not in NFD, and lines that are not in NFC."""

_UNCOMPOSED = {
    character: canonical
    for character in map(chr, (*range(0x958, 0xB5E), *range(0xFB1D, 0xFB4F)))
    if len(canonical := unicodedata.normalize("NFC", character)) > 1
}
"""Letters that even NFC takes apart, in the scripts of India and in Hebrew, with their canonical form."""
_COUNTED = re.compile(f"[{MARKS}{_DIRECTIONS}{''.join(_UNCOMPOSED)}]")
_SEQUENCE = re.compile("|".join(map(re.escape, _UNCOMPOSED.values())))
JAMO = re.compile("[\u1161-\u1175\u11a8-\u11c2]")
"""Letters of Korean that compose with the one before."""


MOST_MARKS = 30
"""Marks on one letter that are ordered together (Stream-Safe Text Format, Unicode Standard Annex 15); real text has far
fewer. Ordering any number of them takes quadratic time, within one call that cannot be ended."""


def normalized(text: str, form: Literal["NFC", "NFD", "NFKC", "NFKD"] = "NFC") -> str:
    """Return a text in a normalization form, in time in proportion to its length, see `MOST_MARKS`.

    >>> normalized("fu\u0308r")
    'für'
    """
    if len(text) <= MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    parts, at = [], 0
    for run in _long_run_of_marks().finditer(text):
        for end in range(run.start() + MOST_MARKS, run.end(), MOST_MARKS):
            parts.append(unicodedata.normalize(form, text[at:end]))
            at = end
    return "".join([*parts, unicodedata.normalize(form, text[at:])])


@cache
def _long_run_of_marks() -> re.Pattern[str]:
    marks = "".join(filter(unicodedata.combining, map(chr, range(0x300, 0x1F000))))
    return re.compile(f"[{marks}]{{{MOST_MARKS + 1},}}")


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form in which a model knows the text of one side."""

    form: Literal["NFC", "NFD"] = "NFC"
    usual: Mapping[str, str] = field(default_factory=dict)
    """Canonical forms with the equivalent letter that the training text has instead."""
    left_out: frozenset[str] = frozenset()
    """Marks to leave out."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Full-width characters with their ASCII form."""
    spaces: frozenset[str] | None = None
    """White space to keep: characters, or kinds (`_kind`); all other is read as a space. None keeps all.

    Frequent kinds are kept, and those that are more frequent between such neighbours than the plain space."""

    def __call__(self, text: str) -> str:
        """Return a text in this form; placeholders are not changed.

        >>> TextForm()("fu\u0308r {gro\u0308sse_%s}")
        'für {grösse_%s}'
        """
        return self.aligned(text)[0]

    def aligned(self, text: str) -> tuple[str, list[int] | None]:
        """Return a text in this form, and the start of each of its characters, and of its end, in the original text.

        The starts are None if the text is in this form already.
        """
        if self._is_usual(text):
            return text, None
        parts: list[str] = []
        starts: list[int] = []
        kept = [match.span() for match in find_placeholders(text)]
        at = 0
        for start, end in [*kept, (len(text), len(text))]:
            for first, part in self._parts(text, at, start):
                parts.append(part)
                starts += [first] * len(part)
            parts.append(text[start:end])
            starts += range(start, end)
            at = end
        joined = "".join(parts)
        return (text, None) if joined == text else (joined, [*starts, len(text)])

    def _is_usual(self, text: str) -> bool:
        """Return whether a text has nothing that this form changes; quicker than to look at each letter."""
        if text.isascii() and text.isprintable():
            return True
        if self.usual or not unicodedata.is_normalized(self.form, text):
            return False
        spaces = self.spaces is not None
        return not any(
            char in self.left_out or char in self.replaced or (spaces and char != " " and char.isspace())
            for char in set(text)
        )

    def _parts(self, text: str, start: int, end: int) -> list[tuple[int, str]]:
        """Return the units between two places, of a letter with its marks each, in this form, with their starts."""
        units: list[tuple[int, list[str]]] = []
        places = [place for place in range(start, end) if text[place] not in self.left_out]
        before = text[max(0, start - 2) : start]
        around = before + "".join(text[place] for place in places) + text[end : end + 1]
        for number, place in enumerate(places, start=len(before)):
            character = text[place]
            if self.spaces is not None and character.isspace() and character != " ":
                is_kept = character in self.spaces or _kind(around, number) in self.spaces
                character = character if is_kept else " "
            character = self.replaced.get(character, character)
            if units and (unicodedata.category(character)[0] == "M" or JAMO.match(character)):
                units[-1][1].append(character)
            else:
                units.append((place, [character]))
        return [(place, self._canonical("".join(unit))) for place, unit in units]

    def _canonical(self, unit: str) -> str:
        if unit.isascii():
            return unit
        unit = normalized(unit, self.form)
        for canonical, letter in self.usual.items():
            unit = unit.replace(canonical, letter)
        return unit

    def settings(self) -> dict[str, Any]:
        """Return the fields as JSON values, for the same form in another language (`pages/web`)."""
        return {
            **asdict(self),
            "left_out": "".join(sorted(self.left_out)),
            "spaces": None if self.spaces is None else sorted(self.spaces),
        }


def count_forms(text: str) -> set[str]:
    """Return what a line has that `form_of_source` and `form_of_target` count: keys of `LineStatistics.source_forms`.

    >>> sorted(count_forms("3\u00a0Do\u0308r\u00adfer"))
    ['U+00A0 1a', 'U+00AD', 'decomposed']
    """
    forms = _spaces(text)
    if text.isascii():
        return forms
    forms |= set(map(_key, _COUNTED.findall(text)))
    forms |= {f"{_key(_letter(sequence))} canonical" for sequence in _SEQUENCE.findall(text)}
    if not unicodedata.is_normalized("NFD", text):
        forms.add(COMPOSED)
    if not unicodedata.is_normalized("NFC", text):
        forms.add(DECOMPOSED)
    return forms


def form_of_source(counts: Mapping[str, int], lines: int, characters: Collection[str]) -> TextForm:
    """Return the form of the sources of a training text.

    Args:
        counts: Number of lines for each key of `count_forms`.
        lines: Number of lines.
        characters: Characters of the lines.
    """
    marks = MARKS if any(map(_is_from_right, characters)) else MARKS + _DIRECTIONS
    counts = Counter(counts)
    spaces = frozenset(
        kind
        for key, count in counts.items()
        if (kind := _space_of(key)) and (count >= RARE * lines or count > counts[_key(" " + kind[1:])])
    )
    left_out = {mark for mark in marks if counts[_key(mark)] < RARE * lines}
    wide = {char: plain for char, plain in _WIDE.items() if char not in characters and plain in characters}
    canonical = form_of_target(counts, lines)
    return replace(canonical, left_out=frozenset(left_out), replaced=wide, spaces=spaces)


def form_of_target(counts: Mapping[str, int], lines: int) -> TextForm:
    """Return the canonical form of one side of a training text: NFC, unless more of its lines are in NFD.

    Args:
        counts: As for `form_of_source`.
        lines: Number of lines.
    """
    counts = Counter(counts)
    form: Literal["NFC", "NFD"] = "NFD" if counts[DECOMPOSED] > counts[COMPOSED] else "NFC"
    usual = {
        unicodedata.normalize(form, letter): letter
        for letter in _UNCOMPOSED
        if counts[_key(letter)] > max(RARE * lines, counts[f"{_key(letter)} canonical"])
    }
    return TextForm(form, usual)


def form_of_vocabulary(pieces_of: Callable[[str], list[str]]) -> TextForm:
    """Return the form for a model whose training text is unknown: marks that its vocabulary lacks are left out.

    Args:
        pieces_of: Returns the readable pieces of a source text.
    """
    plain = [pieces_of("aa"), pieces_of("a a")]  # some vocabularies leave out marks themselves, or read them as a space
    read = {mark: pieces_of(f"a{mark}a") for mark in MARKS}
    unknown = (mark for mark, pieces in read.items() if mark not in "".join(pieces) and pieces not in plain)
    return TextForm(left_out=frozenset(unknown))


def _spaces(text: str) -> set[str]:
    """Return the keys of all white space in a text."""
    kinds = text.translate(_KINDS)
    if "M" in kinds:
        return {_key(_kind(text, place)) for place, char in enumerate(text) if char.isspace()}
    return {_key_in_the_middle(before + after) for before, after in {*_AROUND_SPACE.findall(f"  {kinds} ")}}


class _Kinds(dict[int, str]):
    """Table for `str.translate`, filled on demand: white space stays, marks become M, others what `_neighbour` says."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_mark = unicodedata.category(character)[0] == "M"
        self[code] = character if character.isspace() else "M" if is_mark else _neighbour(character)
        return self[code]


_KINDS = _Kinds()
_AROUND_SPACE = re.compile(r"\s(?<=(...))(?=(.))", re.DOTALL)


@lru_cache(maxsize=4_096)
def _key_in_the_middle(kinds: str) -> str:
    return _key(_kind(kinds, 2))  # a kind is a character of this kind


def _kind(text: str, place: int) -> str:
    """Return white space with the kinds of its neighbours.

    `a` is a letter, `s` one that is a word by itself, `1` a digit, `.` another character, ` ` white space or none. A
    no-break space before a unit of measurement, or after a word of one letter, is usual in texts where one between two
    other words is not.
    """
    before, first = _neighbour(text[place - 1 : place]), place - 1
    while first >= 0 and unicodedata.category(text[first])[0] == "M":
        first -= 1
    if before == "a" and _neighbour(text[first - 1 : first]) not in ("a", "1"):
        before = "s"
    return text[place] + before + _neighbour(text[place + 1 : place + 2])


def _neighbour(character: str) -> str:
    if not character or character.isspace():
        return " "
    category = unicodedata.category(character)
    return "a" if category[0] in "LM" else "1" if category == "Nd" else "."


def _key(kind: str) -> str:
    return f"U+{ord(kind[0]):04X}" + (f" {kind[1:]}" if kind[1:] else "")


def _space_of(key: str) -> str:
    """Return the kind of white space with a key; "" for keys of other things, and for the plain space."""
    code, _, neighbours = key.removeprefix("U+").partition(" ")
    return chr(int(code, 16)) + neighbours if len(neighbours) == 2 and code != "0020" else ""


def _letter(sequence: str) -> str:
    return next(letter for letter, canonical in _UNCOMPOSED.items() if canonical == sequence)


def _is_from_right(character: str) -> bool:
    return unicodedata.bidirectional(character) in ("R", "AL")

"""Multilingual translation units, as in TMX and XLIFF: choice of two languages, and their texts as pairs."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.files.streams import display_name
from clearhead.formats.languages import is_variant
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.xml.elements import MAX_SIZE, FoundElement, XmlElement
from clearhead.formats.xml.inline_text import TagNumbers
from clearhead.text.lines import segment_on_one_line

HEAD_UNITS = 1_000
HEAD_SIZE = 1_000_000
"""Maximum units and characters of the head of a file."""
MAX_LANGUAGES = 500
"""Maximum languages of a unit, and of a file in messages."""
MAX_LANGUAGE_CHARACTERS = 60
MAX_COMBINATIONS = 1_000
"""Maximum combinations of languages that are counted."""
_ALONE = "no unit has texts in two of them"


class TranslationUnit(NamedTuple):
    """A text in several languages."""

    line: int
    """Line number of its start, counted from 1."""
    texts: Sequence[tuple[str, XmlElement | None]]
    """Language codes as in the file, each with its text, None if it is missing; the code is empty if the file does not
    name the language."""
    skipped: str | None = None
    """Key of `SKIPS` if the file excludes the unit."""
    keeps_space: bool = False
    """Whether line endings in its texts are significant."""
    defect: str | None = None
    """Why it is no pair in any languages."""
    protected: Sequence[frozenset[str]] = ()
    """For each text, the annotations open at its start, see `open_annotations`; empty if none are."""
    original_data: Mapping[str, str] = MappingProxyType({})
    """As in `TagNumbers`."""


@dataclass(frozen=True)
class UnitFile:
    """An open file of translation units."""

    format: str
    """Description of the detected format."""
    source_language: str
    """Source language that the file declares; empty if it declares none."""
    units: Iterator[TranslationUnit]
    """Units of the file; can be iterated only once."""


def open_units(path: str, wanted: Wanted, read: Callable[[str], UnitFile]) -> PairFile:
    """Open a file of translation units: choose two languages from its head and return the pairs.

    The head is the first 1,000 units. For a requested language a variant is accepted, such as `de-AT` for `de`, but an
    exact match in a unit comes first. If no language is requested, the two languages of the head are used, with the
    declared source language as source.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Requested languages of source and target.
        read: Opens a file of the format.

    Raises:
        ConfigError: If a requested language is not in the file (in its head, if it can be read only once), or the file
            has more than two languages and not both are requested.
        DataError: If the file has only one language, or cannot be read; the latter also during iteration.
    """
    file = read(path)
    units = file.units
    head = _head(units)
    name, can_be_read_again = display_name(path), os.path.isfile(path)
    languages = Languages()
    languages.add(head)
    if not languages.names and can_be_read_again:
        languages.add(units)
    if not languages.names and all(unit.defect for unit in head):  # or there is no unit
        sides = wanted.from_lang or "source", wanted.to_lang or "target"
        words = file.format if head else f"{file.format}, empty"
        return PairFile(path, words, sides, _pairs(path, read, None if can_be_read_again else iter(head), *sides))
    try:
        source, target = _choose(name, wanted, languages, file.source_language)
    except ClearheadError:
        if not can_be_read_again:
            raise
        languages.add(units)  # what a refusal advises, all units decide
        source, target = _choose(name, wanted, languages, file.source_language)

    sides = _in_words(source, languages.names), _in_words(target, languages.names)
    # A regular file is read again from the start, and opened only when iteration begins; a pipe can be read only once.
    rest = None if can_be_read_again else chain(head, units)
    return PairFile(path, file.format, sides, _pairs(path, read, rest, source, target), (source, target))


def read_units(
    path: str,
    elements: Iterable[FoundElement],
    units_of: Callable[[XmlElement, Mapping[str, str]], Iterable[TranslationUnit]],
    forbidden: Sequence[tuple[int, int]],
) -> Iterator[TranslationUnit]:
    """Yield the units of elements, as `elements` finds them with `MAX_SIZE`.

    One that is too long, or has one of the characters that `read_events` found `forbidden`, is a defect.

    Raises:
        DataError: If one of these characters is outside the units.
    """
    seen = 0
    for element, said in elements:
        first = bisect_left(forbidden, (element.start,), seen)
        _refuse_forbidden(path, forbidden[seen:first])
        seen = bisect_left(forbidden, (element.content_end,), first)
        if element.size > MAX_SIZE:
            yield TranslationUnit(element.tag.line, (), defect=f"it is longer than {MAX_SIZE:,} characters")
        elif first < seen:
            yield TranslationUnit(
                element.tag.line, (), defect=f"it holds U+{forbidden[first][1]:04X}, which XML forbids"
            )
        else:
            yield from units_of(element, said)
    _refuse_forbidden(path, forbidden[seen:])


def _refuse_forbidden(path: str, forbidden: Sequence[tuple[int, int]]) -> None:
    if forbidden:
        raise DataError(
            f"{display_name(path)}: outside its units is U+{forbidden[0][1]:04X}, which XML forbids; remove it"
        )


def language_of(attributes: Mapping[str, str], *names: str) -> str:
    """Return the language code in the first of some attributes that exists, stripped and limited in length."""
    for name in names:
        if name in attributes:
            return attributes[name].strip()[:MAX_LANGUAGE_CHARACTERS]
    return ""


def _head(units: Iterator[TranslationUnit]) -> list[TranslationUnit]:
    head: list[TranslationUnit] = []
    room = HEAD_SIZE
    for unit in islice(units, HEAD_UNITS):
        head.append(unit)
        room -= sum(text.size for _, text in unit.texts if text is not None)
        if room < 0:
            break
    return head


class Languages:
    """The languages of units, and which of them occur together."""

    def __init__(self) -> None:
        self._spelt: dict[str, str] = {}
        self._together: Counter[frozenset[str]] = Counter()

    @property
    def names(self) -> list[str]:
        """The distinct languages, each in its first spelling."""
        return [*self._spelt.values()]

    def add(self, units: Iterable[TranslationUnit]) -> None:
        """Add the languages of units."""
        for unit in units:
            self.add_unit(language for language, _ in unit.texts)

    def add_unit(self, languages: Iterable[str]) -> None:
        """Add the languages of a unit."""
        there: set[str] = set()
        for language in languages:
            if (key := spelt_alike(language)) in self._spelt or len(self._spelt) < MAX_LANGUAGES:
                self._spelt.setdefault(key, language)
                there.add(key)
        if frozenset(there) in self._together or len(self._together) < MAX_COMBINATIONS:
            self._together[frozenset(there)] += 1

    def example(self, source: str | None = None, target: str | None = None) -> str:
        """Return options for two languages that most units have, in words; empty if no unit has two.

        Regions count as one language if this leaves two.

        Args:
            source: Preferred source language, if there is one.
            target: Preferred target language, likewise.
        """
        for shortened in (_without_region, spelt_alike):
            sets = Counter[frozenset[str]]()
            for languages, number in self._together.items():
                sets[frozenset(map(shortened, filter(None, languages)))] += number
            order = dict.fromkeys(map(shortened, filter(None, self._spelt)))
            right = shortened(target) if target else ""
            left = _most_common(sets, order, right, shortened(source) if source else "")
            right = _most_common(sets, order, left, right) if left else ""
            if right:
                first, second = (self._spelling(key, shortened) for key in (left, right))
                return f"for example --from-lang {first} --to-lang {second}"
        return ""

    def _spelling(self, key: str, shortened: Callable[[str], str]) -> str:
        there = [spelt for language, spelt in self._spelt.items() if shortened(language) == key]
        return there[0] if len(there) == 1 else key


def _most_common(sets: Counter[frozenset[str]], order: Iterable[str], other: str, preferred: str) -> str:
    """Return the language, without `other`, that most units have together with it or, if it is empty, with any.

    The preferred one comes first if any unit has it so, then the first of `order`.
    """
    counts = dict.fromkeys(order, 0)
    for languages, number in sets.items():
        if len(languages) > 1 and (not other or other in languages):
            for language in languages - {other}:
                counts[language] += number
    best = max(counts, key=lambda language: counts[language], default="")
    return preferred if counts.get(preferred) else best if counts.get(best) else ""


def _without_region(language: str) -> str:
    return spelt_alike(language).partition("-")[0]


def _choose(name: str, wanted: Wanted, languages: Languages, source_language: str) -> tuple[str, str]:
    names = languages.names
    there = ", ".join(map(_called, names))
    for asked in (wanted.from_lang, wanted.to_lang):
        if not _is_there(asked, names):
            raise ConfigError(f"{name} has no text in {asked!r}; its languages: {there or 'it names none'}")
    source, target = wanted.from_lang, wanted.to_lang
    if source is not None and target is not None:
        if spelt_alike(source) == spelt_alike(target):
            raise ConfigError(f"{name}: source and target are both to be {source!r}; its languages: {there}")
        return source, target
    if len(names) < 2:
        raise DataError(f"{name} has no pairs, for it has texts in one language only: {there or 'it names none'}")
    if source is None and target is None:
        if len(names) > 2:
            raise ConfigError(
                f"{name} has {len(names)} languages: {there}; "
                + (f"say which two to read, {example}" if (example := languages.example(source_language)) else _ALONE)
            )
        source = next((language for language in names if are_related(language, source_language)), names[0])
    asked = target if source is None else source
    assert asked is not None
    named = [language for language in names if language and is_variant(language, asked)] or [""]
    others = [language for language in names if language not in named]
    if len(others) != 1:
        example = languages.example(wanted.from_lang or source_language, wanted.to_lang)
        raise ConfigError(
            f"{name}: one language of the pair is to be {asked!r}, which leaves open the other; give both "
            f"--from-lang and --to-lang; its languages: {there}; {example or _ALONE}"
        )
    return (others[0], asked) if source is None else (asked, others[0])


def _pairs(
    path: str,
    read: Callable[[str], UnitFile],
    rest: Iterator[TranslationUnit] | None,
    source: str,
    target: str,
) -> Iterator[SentencePair]:
    for unit in read(path).units if rest is None else rest:
        yield _pair(path, unit, source, target)


def _pair(path: str, unit: TranslationUnit, source: str, target: str) -> SentencePair:
    origin = f"{path}:{unit.line}"
    if unit.defect is not None:
        return SentencePair("", "", origin, defect=unit.defect)
    first, second = text_places(tuple([language for language, _ in unit.texts]), source, target)
    if first is None or second is None:
        return SentencePair("", "", origin, skipped="other_languages")
    if unit.skipped is None and None in (unit.texts[first][1], unit.texts[second][1]):
        return SentencePair("", "", origin, skipped="without_text")
    numbers = TagNumbers(unit.original_data)
    left, right = [_text(unit, place, numbers) for place in (first, second)]
    return SentencePair(left, right, origin, skipped=unit.skipped)


def _text(unit: TranslationUnit, place: int, numbers: TagNumbers) -> str:
    text = unit.texts[place][1]
    if text is None:
        return ""
    protected = unit.protected[place] if unit.protected else frozenset()
    return segment_on_one_line(numbers.read(text, keeps_space=unit.keeps_space, protected=protected).text)


@lru_cache(maxsize=1_000)  # most units of a file have the same languages
def text_places(languages: tuple[str, ...], source: str, target: str) -> tuple[int | None, int | None]:
    """Return the indices of source and target among a unit's texts; None for one that is missing.

    A language itself comes first, then the first of its variants.
    """
    first, second = (
        next((place for place, language in enumerate(languages) if spelt_alike(language) == spelt_alike(asked)), None)
        for asked in (source, target)
    )
    if first is None:
        first = next((place for place, name in enumerate(languages) if place != second and _fits(name, source)), None)
    if second is None:
        second = next((place for place, name in enumerate(languages) if place != first and _fits(name, target)), None)
    return first, second


def _is_there(asked: str | None, names: Sequence[str]) -> bool:
    return asked is None or any(_fits(language, asked) for language in names)


def _fits(language: str, asked: str | None) -> bool:
    """Return whether a language matches the requested one; an unnamed language matches any."""
    return asked is not None and (language == "" or is_variant(language, asked))


def are_related(language: str, other: str) -> bool:
    """Return whether two languages are equal or one is a variant of the other; an unnamed one is related to none."""
    return language != "" and other != "" and (is_variant(language, other) or is_variant(other, language))


def spelt_alike(language: str) -> str:
    """Return a language code normalised for comparison."""
    return language.replace("_", "-").casefold()


def _called(language: str) -> str:
    return language or "one without a name"


def _in_words(chosen: str, names: Sequence[str]) -> str:
    fitting = [language for language in names if language and _fits(language, chosen)]
    return _called(chosen) if fitting in ([], [chosen]) else f"{chosen} ({', '.join(fitting)})"

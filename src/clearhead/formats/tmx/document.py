"""TMX documents (1.1 to 1.4): texts of one language as segments; translations are added or replaced."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

from clearhead.errors import ConfigError, DataError
from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import read_bytes
from clearhead.formats.languages import is_variant
from clearhead.formats.xml.elements import SPACE, XmlElement, XmlFile
from clearhead.formats.xml.escaping import language_tags
from clearhead.formats.xml.events import LANGUAGE, UNWRITABLE, StartTag
from clearhead.formats.xml.inline_text import InlineText, TagNumbers
from clearhead.formats.xml.translation_units import Languages, are_related, language_of, spelt_alike, text_places

UNITS = {"header", "tu"}
"""Names of the elements to read: the header, which names the source language, and the units."""


def refuse_other(root: StartTag, name: str) -> None:
    """Raise `DataError` if the first element of a file is not that of a TMX.

    Args:
        root: Its start tag.
        name: Name of the file in messages.
    """
    if root.name != "tmx":
        raise DataError(f"{name}, line {root.line}: the first element is <{root.name}>; a TMX has <tmx>")


def texts_of(unit: XmlElement) -> list[tuple[str, XmlElement | None]]:
    """Return the texts of a unit with their languages, in order; texts of an unnamed language are omitted.

    Languages without a text (a `tuv` without `seg`) come last, with None.
    """
    texts = [
        (language, version.first_children().get("seg"))
        for version in unit.children("tuv")
        if (language := language_of(version.tag.attributes, LANGUAGE, "lang"))
    ]
    return sorted(texts, key=lambda text: text[1] is None)


SHOWN_LANGUAGES = 30
"""Maximum languages of a file in a message."""


class _Unit(NamedTuple):
    """A translation unit with a text in the source language."""

    source: InlineText
    target: XmlElement | None
    """The `seg` to replace; None if the unit has no text in the target language."""
    place: tuple[int, str]
    """Position for a new `tuv`, and the white space to write before it."""
    language_attribute: str
    """Attribute for the language of a text: `xml:lang`, or `lang` before TMX 1.4."""


class TmxDocument(Document):
    """A TMX translation memory; its segments are the texts in the source language."""

    format = "TMX"
    keeps_finished = True
    unwritable = UNWRITABLE

    def __init__(
        self,
        data: bytes,
        name: str,
        from_lang: str | None = None,
        to_lang: str | None = None,
        *,
        skip_bad_units: bool = False,
    ) -> None:
        """Find the units to translate.

        Args:
            data: All bytes of the file.
            name: Name of the file in messages.
            from_lang: Language of the sources; None chooses it as described at `read_tmx`.
            to_lang: Language of the translations; None chooses it as described at `read_tmx`.
            skip_bad_units: Leave out units with a character that XML forbids; `skipped` has their lines.

        Raises:
            ConfigError: If the file has no text in `from_lang`, or a language is not given and the choice is ambiguous.
            DataError: If the file is not TMX, or is refused by `XmlFile`.
        """
        self._file = XmlFile(data, name, skip_bad_units=skip_bad_units)
        self.skipped = self._file.skipped
        root, elements = self._file.elements(UNITS)
        refuse_other(root, name)
        languages = Languages()
        source_language = ""
        for element, _ in elements:
            if element.tag.name == "header":
                source_language = language_of(element.tag.attributes, "srclang")
            else:
                languages.add_unit(language for language, text in texts_of(element) if text is not None)
        self.segments: list[DocumentSegment] = []
        self._units: list[_Unit] = []
        if not languages.names:
            return
        self._source, self._target = _languages(name, languages, source_language, from_lang, to_lang)
        self.target_languages = [self._target]
        for unit, said in self._file.elements(UNITS)[1]:
            self._add(unit, keeps_space=said.get(SPACE) == "preserve")

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted.

        Raises:
            DataError: If a translation contains a character that XML forbids.
        """
        file = self._file
        changes: list[tuple[int, int, str]] = []
        for unit, segment, filling in zip(self._units, self.segments, fillings, strict=True):
            if filling is None:
                continue
            content = unit.source.filled(filling.text, file, segment.line)
            place, space = unit.place
            if unit.target is None:
                language = html.escape(self._target)
                text = f'{space}<tuv {unit.language_attribute}="{language}"><seg>{content}</seg></tuv>'
                changes.append((place, place, text))
            else:
                changes.append(file.with_content(unit.target, content))
        return file.spliced(changes)

    def _add(self, unit: XmlElement, *, keeps_space: bool) -> None:
        """Add the segment of a unit, if the unit has a text in the source language."""
        texts = [(language, text) for language, text in texts_of(unit) if text is not None]
        places = text_places(tuple(language for language, _ in texts), self._source, self._target)
        source, target = (None if place is None else texts[place][1] for place in places)
        if source is None or source.is_closed:
            return
        numbers = TagNumbers()
        read = numbers.read(source, keeps_space=keeps_space, protects_tags=True)
        present = "" if target is None else numbers.read(target, keeps_space=keeps_space, protects_tags=True).text
        is_finished = target is not None and not target.is_blank
        self.segments.append(
            self.watched(DocumentSegment(read.text, source.tag.line, present, is_finished, links=read.links))
        )
        versions = unit.children("tuv")
        attribute = "xml:lang" if any(LANGUAGE in version.tag.attributes for version in versions) else "lang"
        place = versions[-1].end, self._file.space_before(versions[-1].start)
        self._units.append(_Unit(read, target, place, attribute))


def read_tmx(
    path: str, from_lang: str | None = None, to_lang: str | None = None, *, skip_bad_units: bool = False
) -> TmxDocument:
    """Read a TMX translation memory.

    Args:
        path: The file.
        from_lang: Language of the sources; None is the one declared in the header, or the only one besides `to_lang`.
        to_lang: Language of the translations, which may be missing in the file; None is the only one besides
            `from_lang`.
        skip_bad_units: Leave out units with a character that XML forbids; `skipped` has their lines.

    Raises:
        ConfigError: If the file has no text in `from_lang`, or a language is not given and the choice is ambiguous.
        DataError: If the file cannot be read, is too large, is not TMX, is not well-formed, or has entities of its own.
    """
    return TmxDocument(read_bytes(path), path, from_lang, to_lang, skip_bad_units=skip_bad_units)


def _languages(
    name: str, languages: Languages, source_language: str, from_lang: str | None, to_lang: str | None
) -> tuple[str, str]:
    """Return the languages of sources and translations.

    Args:
        name: Name of the file in messages.
        languages: Languages in the file.
        source_language: Source language declared in the header; empty if there is none.
        from_lang: Requested source language, or None.
        to_lang: Requested target language, or None.

    Raises:
        ConfigError: If the file has no text in `from_lang`, the choice is ambiguous, or both languages are the same.
    """
    names = languages.names
    there = ", ".join(names[:SHOWN_LANGUAGES])
    if from_lang is not None and not any(is_variant(language, from_lang) for language in names):
        raise ConfigError(f"{name} has no text in {from_lang!r}; its languages: {there}")
    source, target = from_lang, to_lang
    if source is None:
        open_to_it = [language for language in names if to_lang is None or not is_variant(language, to_lang)]
        named = [language for language in open_to_it if are_related(language, source_language)]
        if named or len(open_to_it) == 1 or (to_lang is None and len(names) == 2):
            source = [*named, *open_to_it][0]
    if source is not None and target is None:
        others = [language for language in names if not is_variant(language, source)]
        target = others[0] if len(others) == 1 else None
    if source is None or target is None:
        example = languages.example(from_lang or source_language, to_lang)
        raise ConfigError(
            f"{name}: give --from-lang and --to-lang; its languages: {there}" + (f"; {example}" if example else "")
        )
    if spelt_alike(source) == spelt_alike(target):
        raise ConfigError(f"{name}: source and translation are both to be in {source!r}; its languages: {there}")
    spelt = [language for language in names if spelt_alike(language) == spelt_alike(target)]
    return source, spelt[0] if spelt else language_tags((source, target))[1]

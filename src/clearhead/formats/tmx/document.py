"""Translation memories: TMX 1.1 to 1.4, the texts of one language filled in beside those of another."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from clearhead.errors import ConfigError, DataError
from clearhead.formats.document import Document, Filling, Segment
from clearhead.formats.file_text import read_bytes
from clearhead.formats.languages import is_variant
from clearhead.formats.xml.elements import SPACE, XmlElement, XmlFile, said_within
from clearhead.formats.xml.escaping import language_tags
from clearhead.formats.xml.events import LANGUAGE
from clearhead.formats.xml.inline_text import InlineText, inline_text
from clearhead.formats.xml.translation_units import are_related, language_of, spelt_alike

__all__ = ["TmxDocument", "read_tmx"]

SHOWN_LANGUAGES = 30
"""Languages of a file that a message lists."""


class _Unit(NamedTuple):
    """A unit that has a text in the source's language."""

    source: InlineText
    target: XmlElement | None
    """The `seg` to replace, if there is one."""
    place: tuple[int, str]
    """Otherwise where a `tuv` goes, and the white space before it."""
    language_attribute: str
    """What its texts name their language with: `xml:lang`, or `lang` before TMX 1.4."""


class TmxDocument(Document):
    """A translation memory; its segments are the texts in one of its languages."""

    format = "TMX"
    keeps_finished = True

    def __init__(self, data: bytes, name: str, from_lang: str | None = None, to_lang: str | None = None) -> None:
        """Find the units.

        Args:
            data: All of the file.
            name: As messages call it.
            from_lang: Language of the sources, see `read_tmx`.
            to_lang: Language of the translations.

        Raises:
            ConfigError: As `read_tmx`.
            DataError: If it is no TMX, or what `XmlFile` refuses.
        """
        self._file = XmlFile(data, name)
        root = self._file.root()
        if root.name != "tmx":
            raise DataError(f"{name}, line {root.line}: the first element is <{root.name}>; a TMX has <tmx>")
        found: dict[str, str] = {}
        source_language = ""
        for element, _ in self._file.elements({"header", "tu"}):
            if element.tag.name == "header":
                source_language = language_of(element.tag.attributes, "srclang")
            for language, _ in _texts(element):
                found.setdefault(spelt_alike(language), language)
        self.segments: list[Segment] = []
        self._units: list[_Unit] = []
        if not found:
            return
        self._source, self._target = _languages(name, [*found.values()], source_language, from_lang, to_lang)
        for unit, around in self._file.elements({"tu"}):
            self._add(unit, keeps_space=said_within([*around, unit.tag], SPACE) == "preserve")

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file with translations in it.

        Raises:
            DataError: If a translation holds a character that XML does not have.
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
            elif unit.target.is_closed:
                tag = re.sub(r"\s*/>$", ">", file.raw(unit.target.start, unit.target.end))
                changes.append((unit.target.start, unit.target.end, f"{tag}{content}</seg>"))
            else:
                changes.append((unit.target.content, unit.target.content_end, content))
        return file.spliced(changes)

    def _add(self, unit: XmlElement, *, keeps_space: bool) -> None:
        """Add the segment of a unit, if it has the source's language."""
        texts = _texts(unit)
        source = _text_in(texts, self._source)
        if source is None or source.is_closed:
            return
        target = _text_in([(language, seg) for language, seg in texts if seg is not source], self._target)
        read = inline_text(source, self._file, keeps_space=keeps_space)
        present = inline_text(target, self._file, keeps_space=keeps_space).text if target is not None else ""
        is_finished = target is not None and not target.is_blank
        self.segments.append(Segment(read.text, source.tag.line, present, is_finished))
        versions = unit.children("tuv")
        attribute = "xml:lang" if any(LANGUAGE in one.tag.attributes for one in versions) else "lang"
        place = versions[-1].end, self._file.space_before(versions[-1].start)
        self._units.append(_Unit(read, target, place, attribute))


def read_tmx(path: str, from_lang: str | None = None, to_lang: str | None = None) -> TmxDocument:
    """Read a translation memory.

    Args:
        path: The file.
        from_lang: Language of the sources; None is the one that the header names, or the one that is not `to_lang`.
        to_lang: Language of the translations, which the file may lack; None is the other one of two.

    Raises:
        ConfigError: If it has no text in `from_lang`, or what is not said cannot be told from the file.
        DataError: If it cannot be read, is too large, is no TMX, is not well-formed, or has entities of its own.
    """
    return TmxDocument(read_bytes(path), path, from_lang, to_lang)


def _texts(unit: XmlElement) -> list[tuple[str, XmlElement]]:
    """Return the texts of a unit whose language is named, in order."""
    versions = (
        (language_of(one.tag.attributes, LANGUAGE, "lang"), one.children("seg")) for one in unit.children("tuv")
    )
    return [(language, found[0]) for language, found in versions if language and found]


def _text_in(texts: Sequence[tuple[str, XmlElement]], asked: str) -> XmlElement | None:
    """Return the text in a language, or the first in one of its variants."""
    exact = [seg for language, seg in texts if spelt_alike(language) == spelt_alike(asked)]
    return next(iter(exact), next((seg for language, seg in texts if is_variant(language, asked)), None))


def _languages(
    name: str, found: Sequence[str], source_language: str, from_lang: str | None, to_lang: str | None
) -> tuple[str, str]:
    """Return the languages of sources and translations.

    Args:
        name: Of the file, for messages.
        found: Languages of the file.
        source_language: What its header says.
        from_lang: What is asked for, like the next.
        to_lang: As there.

    Raises:
        ConfigError: As `read_tmx`.
    """
    there = ", ".join(found[:SHOWN_LANGUAGES])
    if from_lang is not None and not any(is_variant(language, from_lang) for language in found):
        raise ConfigError(f"{name} has no text in {from_lang!r}; its languages: {there}")
    source, target = from_lang, to_lang
    if source is None:
        open_to_it = [language for language in found if to_lang is None or not is_variant(language, to_lang)]
        named = [language for language in open_to_it if are_related(language, source_language)]
        if named or len(open_to_it) == 1 or (to_lang is None and len(found) == 2):
            source = [*named, *open_to_it][0]
    if source is not None and target is None:
        others = [language for language in found if not is_variant(language, source)]
        target = others[0] if len(others) == 1 else None
    if source is None or target is None:
        raise ConfigError(f"{name}: give --from-lang and --to-lang; its languages: {there}")
    if spelt_alike(source) == spelt_alike(target):
        raise ConfigError(f"{name}: source and translation are both to be in {source!r}; its languages: {there}")
    spelt = [language for language in found if spelt_alike(language) == spelt_alike(target)]
    return source, spelt[0] if spelt else language_tags((source, target))[1]

"""Sentence pairs in TMX translation memories: 1.4b, and 1.1 to 1.3, which use `lang` instead of `xml:lang`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from clearhead.errors import DataError
from clearhead.files.streams import display_name
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.xml.escaping import language_tags, write_units
from clearhead.formats.xml.events import LANGUAGE, EndTag, StartTag, XmlEvent, read_events, skip_element
from clearhead.formats.xml.inline_elements import MAX_SIZE, InlineSegment, read_segment
from clearhead.formats.xml.translation_units import MAX_LANGUAGES, TranslationUnit, UnitFile, language_of, open_units
from clearhead.runtime.version import __version__


def open_tmx(path: str, wanted: Wanted) -> PairFile:
    """Open a TMX file of sentence pairs: one pair per unit (`tu`), including units without one of the two languages.

    If a unit has several texts in a language, the first one is read. Inline elements become short tags, see
    `inline_elements`; notes and properties are omitted.

    Arguments and errors are those of `open_units`; a file in another format also raises `DataError`.
    """
    return open_units(path, wanted, _read)


def write_tmx(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write a TMX 1.4 translation memory with one unit per pair, and return the number of pairs.

    Arguments and errors are those of `write_units`; an invalid language, or the same language on both sides, also
    raises `ConfigError`.
    """
    source_language, target_language = language_tags(languages)
    return write_units(
        path,
        pairs,
        head='<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
        f'<header creationtool="clearhead" creationtoolversion="{__version__}" segtype="sentence" '
        f'o-tmf="clearhead" adminlang="en" srclang="{source_language}" datatype="plaintext"/>\n<body>\n',
        unit=lambda _, source, target: (
            f'<tu>\n<tuv xml:lang="{source_language}"><seg>{source}</seg></tuv>\n'
            f'<tuv xml:lang="{target_language}"><seg>{target}</seg></tuv>\n</tu>\n'
        ),
        foot="</body>\n</tmx>\n",
    )


def _read(path: str) -> UnitFile:
    events: Iterator[XmlEvent] = read_events(path)
    root = next(event for event in events if isinstance(event, StartTag))
    if root.name != "tmx":
        raise DataError(f"{display_name(path)}, line {root.line}: the first element is <{root.name}>; a TMX has <tmx>")
    source_language = ""
    for event in events:
        if isinstance(event, StartTag):
            if event.name != "header":
                events = chain([event], events)
                break
            source_language = language_of(event.attributes, "srclang")
            skip_element(events)
    version = root.attributes.get("version", "")[:10]
    return UnitFile(f"TMX {version}".strip(), source_language, _units(events))


def _units(events: Iterator[XmlEvent]) -> Iterator[TranslationUnit]:
    for event in events:
        if isinstance(event, StartTag) and event.name == "tu":
            yield _unit(events, event.line)


def _unit(events: Iterator[XmlEvent], line: int) -> TranslationUnit:
    texts: dict[str, InlineSegment] = {}
    size, defect = 0, None
    for event in events:
        if isinstance(event, EndTag):
            break
        if not isinstance(event, StartTag):
            continue
        if event.name != "tuv":
            skip_element(events)
            continue
        language = language_of(event.attributes, LANGUAGE, "lang")
        segment = _segment(events)
        if language and segment is not None and language not in texts:
            size += segment.size
            if size > MAX_SIZE or len(texts) == MAX_LANGUAGES:
                defect = f"it has more than {MAX_LANGUAGES} languages, or {MAX_SIZE:,} characters in all of them"
            else:
                texts[language] = segment
    return TranslationUnit(line, [*texts.items()], defect=defect)


def _segment(events: Iterator[XmlEvent]) -> InlineSegment | None:
    """Read the text of a `tuv` up to its end tag; its start tag has been read."""
    segment = None
    for event in events:
        if isinstance(event, EndTag):
            break
        if isinstance(event, StartTag):
            if event.name == "seg" and segment is None:
                segment = read_segment(events)
            else:
                skip_element(events)
    return segment

"""Sentence pairs in TMX translation memories: versions 1.1 to 1.4 are read, 1.4 is written.

Versions before 1.4 use `lang` instead of `xml:lang`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from clearhead.files.streams import display_name
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.tmx.document import UNITS, refuse_other, texts_of
from clearhead.formats.xml.elements import MAX_SIZE, SPACE, XmlElement, elements
from clearhead.formats.xml.escaping import language_tags, write_units
from clearhead.formats.xml.events import read_events
from clearhead.formats.xml.translation_units import (
    MAX_LANGUAGES,
    TranslationUnit,
    UnitFile,
    language_of,
    open_units,
    read_units,
)
from clearhead.runtime.version import full_version


def open_tmx(path: str, wanted: Wanted) -> PairFile:
    """Open a TMX file of sentence pairs: one pair per unit (`tu`), including units without one of the two languages.

    If a unit has several texts in a language, the first one is read. Inline elements become numbered tags, see
    `inline_text`; notes and properties are omitted.

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
        f'<header creationtool="clearhead" creationtoolversion="{full_version()}" segtype="sentence" '
        f'o-tmf="clearhead" adminlang="en" srclang="{source_language}" datatype="plaintext"/>\n<body>\n',
        unit=lambda _, source, target: (
            f'<tu>\n<tuv xml:lang="{source_language}"><seg>{source}</seg></tuv>\n'
            f'<tuv xml:lang="{target_language}"><seg>{target}</seg></tuv>\n</tu>\n'
        ),
        foot="</body>\n</tmx>\n",
    )


def _read(path: str) -> UnitFile:
    forbidden: list[tuple[int, int]] = []
    root, units = elements(read_events(path, forbidden), UNITS, max_size=MAX_SIZE)
    refuse_other(root, display_name(path))
    first = [*islice(units, 1)]
    source_language = language_of(first[0][0].tag.attributes, "srclang") if first else ""
    version = root.attributes.get("version", "")[:10]
    return UnitFile(f"TMX {version}".strip(), source_language, read_units(path, chain(first, units), _units, forbidden))


def _units(element: XmlElement, said: Mapping[str, str]) -> Sequence[TranslationUnit]:
    if element.tag.name != "tu":
        return ()
    texts = texts_of(element)
    defect = f"it has more than {MAX_LANGUAGES} languages" if len(texts) > MAX_LANGUAGES else None
    return (TranslationUnit(element.tag.line, texts, None, said.get(SPACE) == "preserve", defect),)

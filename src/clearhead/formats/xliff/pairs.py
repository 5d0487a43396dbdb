"""Sentence pairs in XLIFF files: 1.x and 2.x are read (OASIS 2008, 2014, 2018), 1.2 is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from clearhead.files.streams import display_name
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.xliff.units import UNITS, exceptions_in, segments_of, unfinished_segments, units_of, version_of
from clearhead.formats.xml.elements import MAX_SIZE, XmlElement, elements
from clearhead.formats.xml.escaping import language_tags, write_units
from clearhead.formats.xml.events import LANGUAGE, read_events
from clearhead.formats.xml.inline_text import is_empty
from clearhead.formats.xml.translation_units import TranslationUnit, UnitFile, language_of, open_units, read_units


def open_xliff(path: str, wanted: Wanted) -> PairFile:
    """Open an XLIFF file of sentence pairs: one pair per `trans-unit` (1.x) or `segment` (2.x).

    An entry that the file marks as untranslated, unfinished or not to be translated keeps its texts and has the reason
    in `skipped`. A `trans-unit` with both sides segmented by `<mrk mtype="seg">` gives one pair per segment.
    Suggestions (`alt-trans`, `matches`) and notes are omitted. Inline elements become numbered tags, see `inline_text`.

    Arguments and errors are those of `open_units`; a file in another format also raises `DataError`.
    """
    return open_units(path, wanted, _read)


def write_xliff(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write XLIFF 1.2 with one `trans-unit` per pair, and return the number of pairs.

    Arguments and errors are those of `write_units`; an invalid language, or the same language on both sides, also
    raises `ConfigError`.
    """
    source_language, target_language = language_tags(languages)
    return write_units(
        path,
        pairs,
        head='<?xml version="1.0" encoding="UTF-8"?>\n'
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n'
        f'<file original="pairs" source-language="{source_language}" target-language="{target_language}" '
        'datatype="plaintext">\n<body>\n',
        unit=lambda number, source, target: (
            f'<trans-unit id="{number}" xml:space="preserve">\n<source>{source}</source>\n'
            f"<target>{target}</target>\n</trans-unit>\n"
        ),
        foot="</body>\n</file>\n</xliff>\n",
    )


def _read(path: str) -> UnitFile:
    forbidden: list[tuple[int, int]] = []
    root, units = elements(read_events(path, forbidden), UNITS, max_size=MAX_SIZE)
    version = version_of(root, display_name(path))
    return UnitFile(f"XLIFF {version[:10]}", "", read_units(path, units, _translation_units, forbidden))


def _translation_units(element: XmlElement, said: Mapping[str, str]) -> Iterator[TranslationUnit]:
    for unit in units_of(element, said):
        line = unit.element.tag.line
        if unit.source is None:
            yield TranslationUnit(line, (), defect="it has no <source>")
            continue
        source_language = language_of(said, "source-language", "srcLang") or _own_language(unit.source)
        target_language = language_of(said, "target-language", "trgLang") or _own_language(unit.target)
        sources, targets = segments_of(unit.seg_source), segments_of(unit.target)
        cut: dict[str, tuple[XmlElement | None, XmlElement | None]] = {"": (unit.source, unit.target)}
        unfinished: Set[str] = {""} if unit.is_unfinished else frozenset()
        is_cut = bool(sources and targets)
        if sources and targets:
            cut = {key: (sources.get(key), targets.get(key)) for key in sources | targets}
            unfinished = unfinished_segments(unit, targets)
        for key, (source, target) in cut.items():
            line = source.tag.line if is_cut and source is not None else line
            texts = (source_language, source), (target_language, target)
            skipped = _skipped(source, target, key in unfinished) if unit.translates(source) else "not_to_translate"
            yield TranslationUnit(
                line,
                texts,
                skipped,
                keeps_space=unit.keeps_space,
                protected=unit.protected,
                original_data=unit.original_data,
            )
            translated = exceptions_in(unit, target, in_target=True)
            for name, part in exceptions_in(unit, source, in_target=False).items():
                texts = (source_language, part), (target_language, translated.get(name))
                skipped = _skipped(part, translated.get(name), key in unfinished)
                yield TranslationUnit(
                    part.tag.line, texts, skipped, keeps_space=unit.keeps_space, original_data=unit.original_data
                )


def _own_language(text: XmlElement | None) -> str:
    return "" if text is None else language_of(text.tag.attributes, LANGUAGE)


def _skipped(source: XmlElement | None, target: XmlElement | None, is_unfinished: bool) -> str | None:
    """Return the key of `SKIPS` for a unit, or for a segment of it, that the file excludes."""
    if target is None or is_empty(target):
        return None if source is None or is_empty(source) else "untranslated"
    return "unfinished" if is_unfinished else None

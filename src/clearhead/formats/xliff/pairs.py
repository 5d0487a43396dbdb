"""Sentence pairs in XLIFF files: 1.1 and 1.2 (OASIS 2008), 2.0 and 2.1 (OASIS 2014, 2018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clearhead.errors import DataError
from clearhead.files.streams import display_name
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.xml.escaping import language_tags, write_units
from clearhead.formats.xml.events import LANGUAGE, EndTag, StartTag, XmlEvent, read_events, skip_element
from clearhead.formats.xml.inline_elements import InlineSegment, read_segment, split_segment
from clearhead.formats.xml.translation_units import TranslationUnit, UnitFile, language_of, open_units


def open_xliff(path: str, wanted: Wanted) -> PairFile:
    """Open an XLIFF file of sentence pairs: one pair per `trans-unit` (1.x) or `segment` (2.x).

    An entry that the file marks as untranslated, unfinished or not to be translated keeps its texts and has the reason
    in `skipped`. A `trans-unit` with both sides segmented by `<mrk mtype="seg">` gives one pair per segment.
    Suggestions (`alt-trans`, `matches`) and notes are omitted. Inline elements become short tags, see
    `inline_elements`.

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


@dataclass(frozen=True, slots=True)
class _Scope:
    """Properties that units inherit from the elements around them."""

    namespace: str
    """Namespace of XLIFF itself; extensions also use names such as `source`."""
    source_language: str = ""
    target_language: str = ""
    is_translatable: bool = True

    def within(self, tag: StartTag) -> _Scope:
        """Return the scope within an element, from this scope and the element's attributes."""
        said = tag.attributes
        return _Scope(
            self.namespace,
            language_of(said, "source-language", "srcLang") or self.source_language,
            language_of(said, "target-language", "trgLang") or self.target_language,
            said["translate"] != "no" if "translate" in said else self.is_translatable,
        )

    def name(self, tag: StartTag) -> str:
        """Return the name of an element in the XLIFF namespace; empty for any other element."""
        return tag.name if tag.namespace == self.namespace else ""


def _read(path: str) -> UnitFile:
    events = read_events(path)
    root = next(event for event in events if isinstance(event, StartTag))
    where = f"{display_name(path)}, line {root.line}"
    if root.name != "xliff":
        raise DataError(f"{where}: the first element is <{root.name}>; an XLIFF has <xliff>")
    version = root.attributes.get("version", "")
    if version[:2] not in ("1.", "2."):
        raise DataError(f"{where}: XLIFF 1.1 to 2.1 can be read, and the file says that its version is {version!r}")
    return UnitFile(f"XLIFF {version[:10]}", "", _units(events, _Scope(root.namespace).within(root)))


def _units(events: Iterator[XmlEvent], scope: _Scope) -> Iterator[TranslationUnit]:
    """Read the units of an element up to its end tag; its start tag has been read."""
    scopes = [scope]
    for event in events:
        if isinstance(event, EndTag):
            scopes.pop()
        elif isinstance(event, StartTag):
            inner = scopes[-1].within(event)
            match inner.name(event):
                case "trans-unit":
                    yield from _trans_unit(events, inner, event.line)
                case "unit":
                    yield from _unit(events, inner)
                case "":
                    skip_element(events)
                case _:
                    scopes.append(inner)


def _trans_unit(events: Iterator[XmlEvent], scope: _Scope, line: int) -> Iterator[TranslationUnit]:
    """Read a unit of XLIFF 1.x up to its end tag; its start tag has been read."""
    texts = _texts(events, scope)
    state = texts["target"][0].attributes.get("state", "") if "target" in texts else ""
    is_unfinished = state == "new" or state.startswith("needs-")
    cut = [texts[name][1] for name in ("seg-source", "target") if name in texts]
    sources, targets = map(split_segment, cut) if len(cut) == 2 else ({}, {})
    if "source" not in texts or not (sources and targets):
        yield _translation_unit(texts, scope, line, is_unfinished=is_unfinished)
        return
    for key in sources | targets:
        line, source = sources.get(key, (line, InlineSegment()))
        _, target = targets.get(key, (line, InlineSegment()))
        sides = {"source": (texts["source"][0], source), "target": (texts["target"][0], target)}
        yield _translation_unit(sides, scope, line, is_unfinished=is_unfinished)


def _unit(events: Iterator[XmlEvent], scope: _Scope) -> Iterator[TranslationUnit]:
    """Read a unit of XLIFF 2.x up to its end tag; its start tag has been read."""
    for event in events:
        if isinstance(event, EndTag):
            return
        if isinstance(event, StartTag):
            if scope.name(event) == "segment":
                is_unfinished = event.attributes.get("state") == "initial"
                yield _translation_unit(_texts(events, scope), scope, event.line, is_unfinished=is_unfinished)
            else:
                skip_element(events)


def _texts(events: Iterator[XmlEvent], scope: _Scope) -> dict[str, tuple[StartTag, InlineSegment]]:
    """Read the first text of each side in an element up to its end tag; its start tag has been read."""
    texts: dict[str, tuple[StartTag, InlineSegment]] = {}
    for event in events:
        if isinstance(event, EndTag):
            break
        if isinstance(event, StartTag):
            name = scope.name(event)
            if name in ("source", "seg-source", "target") and name not in texts:
                texts[name] = event, read_segment(events)
            else:
                skip_element(events)
    return texts


def _translation_unit(
    texts: dict[str, tuple[StartTag, InlineSegment]], scope: _Scope, line: int, *, is_unfinished: bool
) -> TranslationUnit:
    if "source" not in texts:
        return TranslationUnit(line, (), defect="it has no <source>")
    tag, source = texts["source"]
    source_language = scope.source_language or language_of(tag.attributes, LANGUAGE)
    tag, target = texts.get("target", (tag, InlineSegment()))
    target_language = scope.target_language or ("" if tag.name == "source" else language_of(tag.attributes, LANGUAGE))
    skipped = None
    if not scope.is_translatable:
        skipped = "not_to_translate"
    elif target.is_blank and not source.is_blank:
        skipped = "untranslated"
    elif is_unfinished and not target.is_blank:
        skipped = "unfinished"
    return TranslationUnit(line, ((source_language, source), (target_language, target)), skipped)

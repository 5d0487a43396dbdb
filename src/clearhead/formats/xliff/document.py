"""XLIFF documents (1.x and 2.x): sources to translate; targets are filled in and marked for review."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, count, islice
from typing import NamedTuple

from clearhead.errors import ConfigError
from clearhead.formats.document import Document, DocumentSegment, Filling, LengthLimit
from clearhead.formats.file_text import read_bytes
from clearhead.formats.xliff.estimates import with_estimate
from clearhead.formats.xliff.matches import PartMatch, alternatives, candidates, with_candidates
from clearhead.formats.xliff.units import (
    REVIEW_STATE,
    UNITS,
    XliffUnit,
    exceptions_in,
    is_for_review,
    is_wholly_unfinished,
    segments_of,
    tag_for_review,
    tag_of_reviewed,
    unfinished_segments,
    units_of,
    version_of,
)
from clearhead.formats.xml.elements import (
    SPACE,
    XmlElement,
    XmlFile,
    own_translate,
    tag_name,
    with_attribute,
    without_attribute,
)
from clearhead.formats.xml.escaping import LANGUAGE_TAG, language_tag
from clearhead.formats.xml.events import UNWRITABLE, StartTag
from clearhead.formats.xml.inline_text import InlineText, TagNumbers, is_empty
from clearhead.formats.xml.translation_units import are_related
from clearhead.text.lines import shortened

TRANSLATED_STATE = "translated"
"""State of an unreviewed `segment` in XLIFF 2.x."""
REVIEWED_STATES = "translated", "reviewed"
"""States of a reviewed translation: of a `target` in XLIFF 1.x, and of a `segment` in 2.x."""
EXACT_MATCH, FUZZY_MATCH = "exact-match", "fuzzy-match"
"""State qualifiers in XLIFF 1.x of a `target` from a translation memory, as it is or repaired."""
SIZE_RESTRICTION = "urn:oasis:names:tc:xliff:sizerestriction:2.0 sizeRestriction"
"""Attribute of the Size and Length Restriction module of XLIFF 2.x, with its namespace."""
MOST_ID = 60
"""Characters shown of the ids of a segment."""
_NUMBER = re.compile("[0-9]{1,9}")


class _Part(NamedTuple):
    """Text of one segment: the source of a unit, or a part of it marked by `<mrk mtype="seg">`."""

    element: XmlElement
    source: InlineText
    present: str
    """Existing content of the target for it, as raw XML."""


class _Segment(NamedTuple):
    """A segment with parts: marked in the source by `<mrk mtype="seg">`."""

    source: XmlElement
    target: XmlElement | None
    """Its counterpart in the target, if there is one."""
    num_parts: int


class _Unit(NamedTuple):
    """A unit to translate."""

    read: XliffUnit
    source: XmlElement
    """The `source`, or the `seg-source` if it is segmented."""
    first: int
    """Index in the document's segments of the first part."""
    parts: Sequence[_Part]
    segments: Sequence[_Segment] = ()
    """If it is segmented, the segments with parts."""
    kept: Sequence[tuple[int, int, str]] = ()
    """Changes of the source that give the segments without a part what they have in the target."""


class XliffDocument(Document):
    """An XLIFF file; its segments are the sources to translate."""

    format = "XLIFF"
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
            from_lang: Language of the sources, to be written where the file names none; None writes none. A part of the
                file that names another is kept.
            to_lang: Language of the targets, likewise.
            skip_bad_units: Leave out units with a character that XML forbids; `skipped` has their lines.

        Raises:
            ConfigError: If the file names other languages only.
            DataError: If the file is not XLIFF, or is refused by `XmlFile`.
        """
        self._file = XmlFile(data, name, skip_bad_units=skip_bad_units)
        self.skipped = self._file.skipped
        root, elements = self._file.elements(UNITS)
        self._is_first_version = version_of(root, name).startswith("1.")
        self._counts_code_points = SIZE_RESTRICTION.split()[1] in self._file.source.text and {
            tag.attributes.get("generalProfile") for tag in self._file.start_tags("profiles")
        } == {"xliff:codepoints"}
        names = ("source-language", "target-language") if self._is_first_version else ("srcLang", "trgLang")
        options = zip(names, (("--from-lang", from_lang), ("--to-lang", to_lang)), strict=True)
        asked = {key: (option, language_tag(given)) for key, (option, given) in options if given is not None}
        self._refuse_other_languages(name, asked)
        self._asked = asked
        self._target_language = names[1]
        self.segments: list[DocumentSegment] = []
        self._units: list[_Unit] = []
        self.target_languages = languages = set[str]()
        for element, said in elements:
            languages.update(filter(None, [said.get(names[1], "").strip()]))
            for unit in units_of(element, said):
                if not _other_language(said, asked):
                    self._add(unit)

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations as targets, marked as translated and as reviewed or not.

        The languages given are written wherever the file names none, even if nothing is translated; if that of the
        targets is not given, it is `language`.

        A translation-memory match is written next to its segment: in an `alt-trans` with `match-quality` (1.x), or as
        `mtc:match` of the Translation Candidates module (2.x).

        Raises:
            DataError: If a translation contains a character that XML forbids.
        """
        changes = [*self._language_changes()]
        of_units: dict[int, tuple[XmlElement, list[str]]] = {}
        for unit in self._units:
            chosen = fillings[unit.first : unit.first + len(unit.parts)]
            if any(filling is not None for filling in chosen):
                changes += self._changes(unit, chosen)
                if not self._is_first_version and (suggested := self._suggested(unit, chosen)):
                    of_units.setdefault(unit.read.around.start, (unit.read.around, []))[1].append(suggested)
        changes += (with_candidates(*of_unit, self._file) for of_unit in of_units.values())
        return self._file.spliced(changes)

    @property
    def _language_tags(self) -> Iterator[StartTag]:
        """The start tags that name languages."""
        return self._file.start_tags("file" if self._is_first_version else "xliff")

    def _refuse_other_languages(self, name: str, asked: Mapping[str, tuple[str, str]]) -> None:
        """Refuse a file that names other languages only.

        Args:
            name: Name of the file in messages.
            asked: For each attribute, the option and its language.

        Raises:
            ConfigError: If it does.
        """
        others = [(tag.line, _other_language(tag.attributes, asked)) for tag in self._language_tags] if asked else []
        if others and all(other for _, other in others):
            line, other = others[0]
            raise ConfigError(f"{name}, line {line}: {other}; ask for that language, or correct the file")

    def _language_changes(self) -> Iterator[tuple[int, int, str]]:
        """Yield the changes that write the languages of sources and targets where the file names none."""
        languages = {key: language for key, (_, language) in self._asked.items()}
        if LANGUAGE_TAG.fullmatch(own := self.language.replace("_", "-")):
            languages.setdefault(self._target_language, own)
        for tag in self._language_tags if languages else ():
            if not _other_language(tag.attributes, self._asked):
                start, end = self._file.tag_place(tag)
                written = self._file.raw(start, end)
                for key, language in languages.items():
                    if not tag.attributes.get(key, "").strip():
                        written = with_attribute(written, key, language)
                yield start, end, written

    def _add(self, unit: XliffUnit) -> None:
        """Add the segments of a unit; a unit without a source, or with a self-closing one, has none."""
        source = unit.source
        if source is None or source.is_closed:
            return
        segments = segments_of(unit.seg_source)
        present = _present_segments(unit, segments) if segments else None
        locked = unit.locked_segments
        if unit.is_locked or (locked and present is None):
            return
        first = len(self.segments)
        parts: list[_Part] = []
        if not segments or present is None:
            self._add_parts(unit, source, unit.target, parts, is_unfinished=is_wholly_unfinished(unit))
            if parts:
                self._units.append(_Unit(unit, source, first, parts))
            return
        unfinished = unfinished_segments(unit, present)
        with_parts: list[_Segment] = []
        kept: list[tuple[int, int, str]] = []
        for key, segment in segments.items():
            there, before = present.get(key), len(parts)
            if key not in locked and not segment.is_closed:
                self._add_parts(unit, segment, there, parts, is_unfinished=key in unfinished)
            if len(parts) > before:
                with_parts.append(_Segment(segment, there, len(parts) - before))
            elif there is not None or key in locked:
                raw = "" if there is None else self._file.raw(there.content, there.content_end)
                kept.append(self._file.with_content(segment, raw))
        if parts and unit.seg_source is not None:
            self._units.append(_Unit(unit, unit.seg_source, first, parts, with_parts, kept))

    def _add_parts(
        self,
        unit: XliffUnit,
        text: XmlElement,
        there: XmlElement | None,
        parts: list[_Part],
        *,
        is_unfinished: bool,
    ) -> None:
        """Add the segments of a text, and its parts.

        Args:
            unit: Its unit.
            text: The source, or a segment of it.
            there: Its translation, if there is one.
            parts: Receives the text, if it is translated, and those within it that are, see `exceptions_in`.
            is_unfinished: Whether the file marks its translation as unfinished.
        """
        is_finished = there is not None and not is_empty(there) and not is_unfinished
        if is_translated := unit.translates(text):
            parts.append(self._part(unit, text, there, unit.protected, is_finished=is_finished))
        exceptions = exceptions_in(unit, text, in_target=False)
        translated = exceptions_in(unit, there, in_target=True)
        # Without all its counterparts in a finished translation, it is not known which of them is missing there.
        is_kept = is_finished and (is_translated or not exceptions.keys() <= translated.keys())
        for name, inner in exceptions.items():
            inner_there = translated.get(name)
            is_done = inner_there is not None and not is_empty(inner_there) and not is_unfinished
            protected = frozenset[str](), frozenset[str]()
            parts.append(self._part(unit, inner, inner_there, protected, is_finished=is_kept or is_done))

    def _part(
        self,
        unit: XliffUnit,
        part: XmlElement,
        there: XmlElement | None,
        protected: tuple[frozenset[str], frozenset[str]],
        *,
        is_finished: bool,
    ) -> _Part:
        """Add the segment of a text, and return it.

        Args:
            unit: Its unit.
            part: The text.
            there: Its translation, if there is one.
            protected: As in `XliffUnit.protected`.
            is_finished: Whether its translation is finished.
        """
        numbers = TagNumbers(unit.original_data)
        in_source, in_target = protected
        read = numbers.read(part, keeps_space=unit.keeps_space, protects_tags=True, protected=in_source)
        raw = translation = ""
        if there is not None:
            raw = self._file.raw(there.content, there.content_end)
            of_target = numbers.read(there, keeps_space=unit.keeps_space, protects_tags=True, protected=in_target)
            translation = of_target.text
        named = [
            item.tag.attributes.get(key, "") for item, key in ((unit.around, "id"), (unit.element, "id"), (part, "mid"))
        ]
        ids = shortened("/".join(filter(None, dict.fromkeys(named))), MOST_ID)
        place = f"segment {len(self.segments) + 1}" + (f", id {ids}" if ids else "")
        limit = self._limit(unit)
        segment = DocumentSegment(
            read.text, part.tag.line, translation, is_finished, links=read.links, place=place, limit=limit
        )
        self.segments.append(self.watched(segment))
        return _Part(part, read, raw)

    def _limit(self, unit: XliffUnit) -> LengthLimit | None:
        said = unit.around.tag.attributes
        if self._is_first_version:
            most = said.get("maxwidth", "") if said.get("size-unit") == "char" else ""
        else:
            # "*", the maximum, or minimum and maximum.
            most = said.get(SIZE_RESTRICTION, "").rpartition(",")[2] if self._counts_code_points else ""
        return LengthLimit(unit.around.start, int(most)) if _NUMBER.fullmatch(most.strip()) else None

    def _changes(self, unit: _Unit, fillings: Sequence[Filling | None]) -> list[tuple[int, int, str]]:
        """Return the changes for a unit of which at least one part has a translation."""
        file, source, read = self._file, unit.source, unit.read
        target, content = read.target, self._target_content(unit, fillings)
        changes: list[tuple[int, int, str]] = []
        start, end = read.element.start, read.element.content
        if not self._is_first_version:
            tag = without_attribute(file.raw(start, end), "subState")
            if any(filling is not None and filling.suggestion for filling in fillings):
                tag = with_attribute(tag, "id", self._id(unit))
            state = TRANSLATED_STATE if any(self._unreviewed_parts(unit, fillings)) else REVIEWED_STATES[1]
            changes.append((start, end, with_attribute(tag, "state", state)))
        elif read.element.tag.attributes.get("approved") == "yes":
            changes.append((start, end, with_attribute(file.raw(start, end), "approved", "no")))
        if target is None:
            # Keep the namespace prefix of the source.
            name = re.sub(r"(seg-)?source$", "target", tag_name(file.raw(source.start, source.content)))
            tag = f"<{name}>"
            if source.tag.attributes.get(SPACE) == "preserve":
                tag = with_attribute(tag, "xml:space", "preserve")
            start = end = (read.seg_source or source).end
            space = file.space_before(source.start)
        else:
            tag = re.sub(r"\s*/>$", ">", file.raw(target.start, target.content))
            name, space = tag_name(tag), ""
            start, end = target.start, target.end
        beside = ""
        if self._is_first_version:
            state = REVIEW_STATE if any(self._unreviewed_parts(unit, fillings)) else REVIEWED_STATES[0]
            tag = with_attribute(without_attribute(tag, "state-qualifier"), "state", state)
            tag = with_estimate(tag, fillings)
            used = [new.suggestion for new in fillings if new and new.suggestion and new.suggestion.is_used]
            if len(used) == len(fillings):
                is_exact = all(match.percent == 100 for match in used)
                tag = with_attribute(tag, "state-qualifier", EXACT_MATCH if is_exact else FUZZY_MATCH)
            beside = self._suggested(unit, fillings)
        return [*changes, (start, end, f"{space}{tag}{content}</{name}>{beside}")]

    def _target_content(self, unit: _Unit, fillings: Sequence[Filling | None]) -> str:
        """Return the content of a unit's target in raw XML, with the translations of its parts."""
        file, source, target = self._file, unit.source, unit.read.target
        done: list[tuple[int, int, str]] = []
        in_parts = sorted(zip(unit.parts, fillings, strict=True), key=lambda item: item[0].element.content_end)
        for (element, text, present), filling in in_parts:  # a text within another comes first
            raw = present or file.raw(element.content, element.content_end, done)
            if filling is not None:
                raw = text.filled(filling.text, file, element.tag.line, done)
            while done and done[-1][0] >= element.content:
                done.pop()
            done.append((element.content, element.content_end, raw))
        are_unreviewed = self._unreviewed(unit, fillings)
        counterparts = [inner.target for inner in unit.segments if inner.target is not None]
        if target is None or not counterparts or len(counterparts) < len(unit.segments):
            marked = (segment.source for segment in compress(unit.segments, are_unreviewed))
            tags = ((inner.start, inner.content, tag_for_review(inner, file)) for inner in marked)
            return file.raw(source.content, source.content_end, sorted([*done, *unit.kept, *tags]))
        # What the target has besides these segments stays.
        filled: list[tuple[int, int, str]] = []
        for segment, there, is_unreviewed in zip(unit.segments, counterparts, are_unreviewed, strict=True):
            written = file.raw(segment.source.content, segment.source.content_end, done)
            if is_unreviewed or is_for_review(there):
                tag = tag_for_review(there, file) if is_unreviewed else tag_of_reviewed(there, file)
                tag = re.sub(r"\s*/>$", ">", tag)
                filled.append((there.start, there.end, f"{tag}{written}</{tag_name(tag)}>"))
            else:
                filled.append(file.with_content(there, written))
        return file.raw(target.content, target.content_end, sorted(filled))

    def _unreviewed(self, unit: _Unit, fillings: Sequence[Filling | None]) -> list[bool]:
        """Return which segments of a unit to mark as unreviewed: none, unless others are finished, or there are marks.

        Args:
            unit: The unit.
            fillings: The translations of its parts.
        """
        parts = iter(self._unreviewed_parts(unit, fillings))
        states = [any([*islice(parts, segment.num_parts)]) for segment in unit.segments]
        has_marks = any(segment.target is not None and is_for_review(segment.target) for segment in unit.segments)
        return states if has_marks or not all(states) else [False] * len(states)

    def _unreviewed_parts(self, unit: _Unit, fillings: Sequence[Filling | None]) -> list[bool]:
        """Return which parts of a unit are not reviewed: those with another new translation, or without a finished one.

        Args:
            unit: The unit.
            fillings: The translations of its parts.
        """
        own = zip(fillings, self.segments[unit.first : unit.first + len(unit.parts)], strict=True)
        return [not (old.is_finished if new is None else new.is_reviewed) for new, old in own]

    def _suggested(self, unit: _Unit, fillings: Sequence[Filling | None]) -> str:
        """Return the translation-memory matches for the parts of a unit, as XML elements."""
        matches = [
            PartMatch(part.element, part.source, new.suggestion)
            for part, new in zip(unit.parts, fillings, strict=True)
            if new is not None and new.suggestion is not None
        ]
        if self._is_first_version:
            return alternatives(unit.source, matches, self._file, has_parts=len(unit.parts) > 1)
        return candidates(unit.source, matches, self._file, self._id(unit)) if matches else ""

    def _id(self, unit: _Unit) -> str:
        """Return the id of a segment of XLIFF 2.x, or an unused one if it has none."""
        if own := unit.read.element.tag.attributes.get("id"):
            return own
        content = self._file.raw(unit.read.around.start, unit.read.around.end)
        free = (f"s{number}" for number in count(1) if f'"s{number}"' not in content)
        return next(islice(free, self._units.index(unit), None))


def read_xliff(
    path: str, from_lang: str | None = None, to_lang: str | None = None, *, skip_bad_units: bool = False
) -> XliffDocument:
    """Read an XLIFF file.

    Args:
        path: The file.
        from_lang: Language of the sources, for a file that names none.
        to_lang: Language of the targets, for a file that names none.
        skip_bad_units: Leave out units with a character that XML forbids; `skipped` has their lines.

    Raises:
        ConfigError: If the file names other languages only.
        DataError: If the file cannot be read, is too large, is not XLIFF, is not well-formed, or has entities of its
            own.
    """
    return XliffDocument(read_bytes(path), path, from_lang, to_lang, skip_bad_units=skip_bad_units)


def _present_segments(unit: XliffUnit, segments: Mapping[str, XmlElement]) -> Mapping[str, XmlElement] | None:
    """Return the segments of a unit's target, by `mid`; None if the target holds a translation that is kept as a whole.

    Args:
        unit: The unit.
        segments: The segments of its source, by `mid`.
    """
    if unit.target is None or is_empty(unit.target):
        return segments_of(unit.target) or {}
    present = segments_of(unit.target)
    # If segments are missing, the target is written anew, without what it has besides these.
    is_kept = present is not None and (present.keys() == segments.keys() or not _has_protected(unit.target))
    if present and is_kept and present.keys() <= segments.keys():
        return present
    return {} if is_wholly_unfinished(unit) else None


def _has_protected(target: XmlElement) -> bool:
    """Return whether a target has parts that are not to be translated, in which `segments_of` does not look."""
    return any(own_translate(element.tag) is False and not is_empty(element) for element in target.within())


def _other_language(said: Mapping[str, str], asked: Mapping[str, tuple[str, str]]) -> str:
    """Return which attribute names another language than asked for, in words; empty if none does."""
    for key, (option, language) in asked.items():
        there = said.get(key, "").strip()
        if there and not are_related(there, language):
            return f"{key} is {there!r}, and {option} {language!r}"
    return ""

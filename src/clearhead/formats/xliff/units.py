"""Units in an element of an XLIFF file (1.x, 2.x): texts, segments and state; and the check of a file's version."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from clearhead.errors import DataError
from clearhead.formats.xml.elements import (
    SPACE,
    XmlElement,
    XmlFile,
    inherited,
    own_translate,
    with_attribute,
    without_attribute,
)
from clearhead.formats.xml.events import StartTag
from clearhead.formats.xml.inline_text import holds_words, open_annotations, translated_parts

NAMESPACE = "urn:oasis:names:tc:xliff:document:"
"""Start of the namespaces of XLIFF; the version follows."""
UNITS = {"trans-unit", "unit"}
"""Names of the elements in which units are."""
REVIEW_STATE = "needs-review-translation"
"""State of an unreviewed `target` in XLIFF 1.x, and so of all its segments; where only some are unreviewed, it is also
the `comment` of those."""


class XliffUnit(NamedTuple):
    """A `trans-unit` of XLIFF 1.x, or a `segment` of 2.x."""

    around: XmlElement
    """The `trans-unit` itself, or the `unit` that contains the segment."""
    element: XmlElement
    said: Mapping[str, str]
    """Attributes of `INHERITED` that apply to it."""
    source: XmlElement | None
    seg_source: XmlElement | None
    """The source segmented by `<mrk mtype="seg">` (1.2)."""
    target: XmlElement | None
    protected: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """Ids of the annotations that forbid translation and are open at the start of the source, and of the target."""
    original_data: Mapping[str, str] = MappingProxyType({})
    """Code of XLIFF 2 that its inline elements refer to (`dataRef`), by its id."""

    def translates(self, text: XmlElement | None) -> bool:
        """Return whether the file does not exclude a text of it, such as a part of its source, from translation."""
        own = None if text is None else own_translate(text.tag)
        return self.said.get("translate") != "no" if own is None else own

    @property
    def is_locked(self) -> bool:
        """Whether a translation tool has locked it, as memoQ (`mq:locked`) and Phrase (`m:locked`) do."""
        return _is_locked(self.around.tag) or _is_locked(self.element.tag)

    @property
    def locked_segments(self) -> set[str]:
        """The `mid` of its segments that Trados has locked (`<sdl:seg id="1" locked="true"/>`)."""
        segments = (inner for part in self.around.elements if part.tag.name == "seg-defs" for inner in part.elements)
        return {inner.tag.attributes.get("id", "") for inner in segments if _is_locked(inner.tag)}

    @property
    def is_unfinished(self) -> bool:
        """Whether the file marks its translation as unfinished, and not as approved."""
        if self.element.tag.attributes.get("approved") == "yes":
            return False
        bearer = self.target if self.element is self.around else self.element
        state = "" if bearer is None else bearer.tag.attributes.get("state", "")
        return state in ("new", "initial") or state.startswith("needs-")

    @property
    def keeps_space(self) -> bool:
        """Whether line endings in it are significant."""
        own = {} if self.source is None else self.source.tag.attributes
        return own.get(SPACE, self.said.get(SPACE)) == "preserve"


def _is_locked(tag: StartTag) -> bool:
    said = (value.strip().lower() for name, value in tag.attributes.items() if name.split(" ")[-1] == "locked")
    return any(value not in ("", "0", "false", "no", "unlocked") for value in said)


def units_of(around: XmlElement, said: Mapping[str, str]) -> Iterator[XliffUnit]:
    """Yield the units in an element of `UNITS`, to which some attributes of `INHERITED` apply."""
    source_notes = target_notes = frozenset[str]()
    stored = (entry for part in around.children("originalData") for entry in part.children("data"))
    data = {entry.tag.attributes.get("id", ""): entry.text for entry in stored}
    for element in [around] if around.tag.name == "trans-unit" else around.elements:
        if element.tag.namespace != around.tag.namespace or element.tag.name not in (
            "trans-unit",
            "segment",
            "ignorable",
        ):
            continue
        texts = element.first_children()
        source, target = texts.get("source"), texts.get("target")
        if element.tag.name != "ignorable":
            notes = source_notes, target_notes
            own = said if element is around else inherited(said, element.tag)
            yield XliffUnit(around, element, own, source, texts.get("seg-source"), target, notes, data)
        if element is not around:
            source_notes, target_notes = open_annotations(source, source_notes), open_annotations(target, target_notes)


def exceptions_in(unit: XliffUnit, text: XmlElement | None, *, in_target: bool) -> dict[tuple[str, int], XmlElement]:
    """Return the texts within a text that are translated although what is around them is not, see `translated_parts`.

    Each key is an id and the number of earlier texts with that id.

    Args:
        unit: The unit of the text.
        text: A source or target of it, or a part of one; None has no texts.
        in_target: Whether it is a target.
    """
    if text is None:
        return {}
    seen = Counter[str]()
    exceptions: dict[tuple[str, int], XmlElement] = {}
    for part in translated_parts(text, is_translated=unit.translates(text), protected=unit.protected[in_target]):
        key = next((part.tag.attributes[name] for name in ("id", "mid") if name in part.tag.attributes), "")
        exceptions[key, seen[key]] = part
        seen[key] += 1
    return exceptions


def segments_of(text: XmlElement | None) -> dict[str, XmlElement] | None:
    """Return the segments that `<mrk mtype="seg">` marks in a text, by `mid`, also those within markup such as `<g>`.

    The result is empty if nothing is marked, and None if the segments are not the whole text: there are words outside
    of them, or two have the same `mid`.
    """
    segments: dict[str, XmlElement] = {}
    is_whole = True
    waiting: list[str | XmlElement] = [] if text is None else text.parts[::-1]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            is_whole &= not part.strip()
        elif _is_segment(part):
            key = part.tag.attributes.get("mid", "")
            is_whole &= key not in segments
            segments[key] = part
        elif holds_words(part) and own_translate(part.tag) is not False:
            waiting += part.parts[::-1]
    return segments if is_whole or not segments else None


def _is_segment(part: XmlElement) -> bool:
    return part.tag.name == "mrk" and part.tag.attributes.get("mtype") == "seg"


def unfinished_segments(unit: XliffUnit, segments: Mapping[str, XmlElement]) -> Set[str]:
    """Return the `mid` of the segments that the file marks as unfinished: all of an unfinished target, or some of them.

    Args:
        unit: The unit.
        segments: The segments of its target, by `mid`.
    """
    if not unit.is_unfinished:
        return frozenset()
    return {key for key, segment in segments.items() if is_for_review(segment)} or segments.keys()


def is_wholly_unfinished(unit: XliffUnit) -> bool:
    """Return whether nothing of a unit's target is to be kept: it is unfinished, and no segment of it is finished."""
    if not unit.is_unfinished or unit.locked_segments:
        return False
    segments = unit.target.within() if unit.target is not None else ()
    return {is_for_review(segment) for segment in segments if _is_segment(segment)} != {False, True}


def is_for_review(segment: XmlElement) -> bool:
    """Return whether a segment of a target is itself marked as unreviewed, see `REVIEW_STATE`."""
    return REVIEW_STATE in segment.tag.attributes.get("comment", "")


def tag_for_review(segment: XmlElement, file: XmlFile) -> str:
    """Return the start tag of a segment of a target, marked as unreviewed."""
    said = segment.tag.attributes.get("comment", "")
    comment = said if is_for_review(segment) else f"{said} {REVIEW_STATE}".strip()
    return with_attribute(file.raw(segment.start, segment.content), "comment", html.escape(comment))


def tag_of_reviewed(segment: XmlElement, file: XmlFile) -> str:
    """Return the start tag of a segment of a target, no longer marked as unreviewed."""
    comment = segment.tag.attributes["comment"].replace(REVIEW_STATE, "").strip()
    tag = file.raw(segment.start, segment.content)
    return with_attribute(tag, "comment", html.escape(comment)) if comment else without_attribute(tag, "comment")


def version_of(root: StartTag, name: str) -> str:
    """Return the version of an XLIFF file; one that names none has the version of its namespace.

    Args:
        root: Start tag of its first element.
        name: Name of the file in messages.

    Raises:
        DataError: If it is not XLIFF, or of a version that cannot be read.
    """
    if root.name != "xliff":
        raise DataError(f"{name}, line {root.line}: the first element is <{root.name}>; an XLIFF has <xliff>")
    version = root.attributes.get("version") or root.namespace.partition(NAMESPACE)[2]
    if version[:2] not in ("1.", "2."):
        raise DataError(
            f"{name}, line {root.line}: XLIFF 1.1, 1.2 and 2.0 to 2.2 can be read, and this has version {version!r}"
        )
    return version

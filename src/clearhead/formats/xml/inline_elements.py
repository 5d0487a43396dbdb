"""Inline elements of TMX 1.4b and XLIFF 1.2 and 2.0, replaced by short numbered tags in the text of a segment.

An element for code, such as bold or a picture, becomes `<g1>`, `</g1>` or `<x1/>` in both formats. A model thus learns
one set of tags, which `placeholders.PLACEHOLDER` matches. The code itself is omitted. Numbers count from 1 in each
unit, and an element has the same number in every language of the unit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clearhead.formats.xml.events import EndTag, StartTag, XmlEvent, skip_element

ROLES = {
    **dict.fromkeys(("ph", "x", "it", "ut"), "alone"),
    **dict.fromkeys(("bpt", "bx", "sc"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec"), "end"),
}
"""Roles of elements that contain code, not text."""
ANNOTATIONS = {"hi", "mrk", "sm", "em"}
"""Annotations of words, such as marking a term; they represent no code, so only their text is kept."""
TAG_ROLES = {"alone", "begin", "end"}

MAX_SIZE = 10_000_000
"""Maximum size of a text, in characters; each part counts `PART_SIZE` more, for the memory of an object."""
PART_SIZE = 100
LINE_END = re.compile(r"\r\n?|\n")


class InlineElement(NamedTuple):
    """An inline tag for code, or the start or end of a segment within a text."""

    name: str
    role: str
    """`alone`, `begin` or `end` for code; `segment` or `segment end` for a segment."""
    key: str
    """Key shared by the same element in other languages; empty if there is none."""
    pair: str = ""
    """Key shared by the start and end of one element, within a segment."""
    line: int = 0
    """Line number of a `segment`, counted from 1."""


@dataclass(slots=True)
class InlineSegment:
    """A text with inline elements."""

    parts: list[str | InlineElement] = field(default_factory=list)
    size: int = 0
    """Characters of all parts, and `PART_SIZE` for each part."""
    defect: str | None = None
    """Why it cannot be read; parts after the defect are not stored."""

    @property
    def is_blank(self) -> bool:
        """Whether it has neither text nor inline tags."""
        return not any(part.strip() if isinstance(part, str) else part.role in TAG_ROLES for part in self.parts)

    def add(self, part: str | InlineElement) -> None:
        """Append a part; if the segment would become too long, set a defect. With a defect, nothing is appended."""
        self.size += PART_SIZE + (len(part) if isinstance(part, str) else len(part.key) + len(part.pair))
        if self.size > MAX_SIZE and self.defect is None:
            self.defect = f"its text is longer than {MAX_SIZE:,} characters"
        if self.defect is None:
            self.parts.append(part)


class TagNumbers:
    """Numbers for the inline elements of a unit, in order of appearance, whatever ids the file gives them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def text(self, segment: InlineSegment) -> str:
        r"""Return the text of a segment, with tags for inline elements and spaces for line endings.

        Elements of two segments are the same if they have the same `x` (TMX) or `id` (XLIFF). Elements without one are
        matched by name and order. A start without its end, or an end without its start, becomes a standalone tag.

        >>> bold = InlineElement("bpt", "begin", key="x=7", pair="1"), InlineElement("ept", "end", key="", pair="1")
        >>> TagNumbers().text(InlineSegment(["to\nthe ", bold[0], "end", bold[1]]))
        'to the <g1>end</g1>'
        """
        ends = _ends(segment.parts)
        begins = {end: begin for begin, end in ends.items()}
        nameless: Counter[str] = Counter()
        keys: dict[int, str] = {}
        texts = []
        for place, part in enumerate(segment.parts):
            if isinstance(part, str):
                texts.append(part)
                continue
            if part.role not in TAG_ROLES:
                continue
            if place in begins:
                texts.append(f"</g{self._number('pair', keys[begins[place]])}>")
                continue
            key = part.key
            if not key:
                nameless[part.name] += 1
                key = f"{part.name} {nameless[part.name]}"
            keys[place] = key
            texts.append(f"<g{self._number('pair', key)}>" if place in ends else f"<x{self._number(part.name, key)}/>")
        return LINE_END.sub(" ", "".join(texts))

    def _number(self, kind: str, key: str) -> int:
        return self._numbers.setdefault((kind, key), len(self._numbers) + 1)


def read_segment(events: Iterator[XmlEvent]) -> InlineSegment:
    """Read the content of an element up to its end tag; its start tag has been read.

    Code in inline elements is omitted, and so are texts within code (`sub`). An unknown element, such as HTML's `b`, is
    treated as a pair of tags around its text.
    """
    segment = InlineSegment()
    open_elements: list[InlineElement | None] = []  # for each open element: what to add at its end
    for event in events:
        if isinstance(event, str):
            segment.add(event)
        elif isinstance(event, EndTag):
            if not open_elements:
                break
            if (ending := open_elements.pop()) is not None:
                segment.add(ending)
        elif event.name in ANNOTATIONS:
            is_segment = event.name == "mrk" and event.attributes.get("mtype") == "seg"
            if is_segment:
                key = event.attributes.get("mid", "")
                segment.add(InlineElement("mrk", "segment", key, line=event.line))
            open_elements.append(InlineElement("mrk", "segment end", "") if is_segment else None)
        elif event.name == "cp":
            _add_character(segment, event)
            skip_element(events)
        elif event.name in ROLES:
            segment.add(element_of(event))
            skip_element(events)
        else:
            around = _around(event, len(segment.parts))
            segment.add(around)
            open_elements.append(around._replace(role="end"))
    return segment


def split_segment(segment: InlineSegment) -> dict[str, tuple[int, InlineSegment]]:
    """Return the segments that `<mrk mtype="seg">` marks in a text (XLIFF 1.2), by `mid`, each with its line.

    White space between them is omitted. The result is empty if the text has no segments or has a defect, if there are
    words outside its segments, or if two segments have the same `mid`.
    """
    if segment.defect is not None:
        return {}
    found: dict[str, tuple[int, InlineSegment]] = {}
    current: InlineSegment | None = None
    for part in segment.parts:
        if isinstance(part, str) or part.role in TAG_ROLES:
            if current is not None:
                current.add(part)
            elif isinstance(part, str) and part.strip():
                return {}
        elif part.role == "segment":
            if part.key in found:
                return {}
            current = InlineSegment()
            found[part.key] = part.line, current
        else:
            current = None
    return found


def _ends(parts: Sequence[str | InlineElement]) -> dict[int, int]:
    """Return the index of each element's start, mapped to the index of its end."""
    ends: dict[int, int] = {}
    waiting: dict[str, int] = {}
    for place, part in enumerate(parts):
        if isinstance(part, str):
            continue
        if part.role == "begin":
            waiting[part.pair] = place
        elif part.role == "end" and part.pair in waiting:
            ends[waiting.pop(part.pair)] = place
    return ends


def element_of(tag: StartTag) -> InlineElement:
    """Return the inline element for a tag whose name is in `ROLES`."""
    role = ROLES[tag.name]
    # TMX: x is equal in every language, i joins bpt and ept. XLIFF: rid (1.2) or startRef (2.0) refers to the start.
    key = _first_of(tag, "x", "id", *(() if role == "alone" else ("i",)))
    pair = "" if role == "alone" else _first_of(tag, "i", "startRef", "rid", "id").partition("=")[2]
    return InlineElement(tag.name, role, key, pair)


def _around(tag: StartTag, place: int) -> InlineElement:
    return InlineElement(tag.name, "begin", _first_of(tag, "id"), pair=f"{tag.name} {place}")


def _first_of(tag: StartTag, *names: str) -> str:
    return next((f"{name}={tag.attributes[name]}" for name in names if name in tag.attributes), "")


def _add_character(segment: InlineSegment, tag: StartTag) -> None:
    r"""Add a character that XML cannot represent directly (XLIFF 2.0, `<cp hex="0001"/>`)."""
    code = tag.attributes.get("hex", "")
    try:
        character = chr(int(code, 16))
        character.encode()
    except (ValueError, OverflowError):
        segment.defect = segment.defect or f'<cp hex="{code[:20]}"/> is no character'
    else:
        segment.add(character)

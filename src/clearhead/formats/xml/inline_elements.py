"""Segments with inline elements, as TMX 1.4b and XLIFF 1.2 and 2.0 write them, as text with short tags.

What stands for code, such as bold or a picture, becomes `<g1>`, `</g1>` or `<x1/>`, whichever format it comes from: a
model learns them once, and `placeholders.PLACEHOLDER` knows them. The code itself is left out. Numbers count from 1 in
each unit, and an element has the same one in every language of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from clearhead.formats.xml.events import EndTag, StartTag, XmlEvent, skip_element

__all__ = ["ROLES", "InlineElement", "Segment", "TagNumbers", "element_of", "read_segment", "split_segment"]

ROLES = {
    **dict.fromkeys(("ph", "x", "it", "ut"), "alone"),
    **dict.fromkeys(("bpt", "bx", "sc"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec"), "end"),
}
"""What an element stands for that has no text of its own but code."""
ANNOTATIONS = {"hi", "mrk", "sm", "em"}
"""They say something about words, such as that they are a term, and stand for no code: their text alone is read."""
TAG_ROLES = {"alone", "begin", "end"}

MAX_SIZE = 10_000_000
"""Characters of a text that is read; each of its parts counts as so many more as take the memory of one."""
PART_SIZE = 100
LINE_END = re.compile(r"\r\n?|\n")


class InlineElement(NamedTuple):
    """A tag that stands for code, or where a segment of a text in several segments begins or ends."""

    name: str
    role: str
    """`alone`, `begin`, `end`, or `segment` and `segment end`."""
    key: str
    """What the same element has in the other languages; empty if nothing tells."""
    pair: str = ""
    """What the beginning and the end of one element share, within a segment."""
    line: int = 0
    """Where a `segment` begins, counted from 1."""


@dataclass(slots=True)
class Segment:
    """A text and its inline elements, in order."""

    parts: list[str | InlineElement] = field(default_factory=list)
    size: int = 0
    """Characters, and 100 for each part."""
    defect: str | None = None
    """Why it cannot be read; what came after that is not in `parts`."""

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in it to read."""
        return not any(part.strip() if isinstance(part, str) else part.role in TAG_ROLES for part in self.parts)

    def add(self, part: str | InlineElement) -> None:
        """Put a part at the end, unless it has a defect, or has one now because it would become too long."""
        self.size += PART_SIZE + (len(part) if isinstance(part, str) else len(part.key) + len(part.pair))
        if self.size > MAX_SIZE and self.defect is None:
            self.defect = f"its text is longer than {MAX_SIZE:,} characters"
        if self.defect is None:
            self.parts.append(part)


class TagNumbers:
    """Numbers of a unit's inline elements: the first that is met has 1, whatever its own name or number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def text(self, segment: Segment) -> str:
        r"""Return a segment with tags in place of its inline elements, and a space in place of every line end.

        Elements are the same in two segments if they have the same `x` (TMX) or `id` (XLIFF); without, the nth of a
        name is the nth of that name. A beginning without its end, or the other way round, is an element by itself.

        >>> bold = InlineElement("bpt", "begin", key="x=7", pair="1"), InlineElement("ept", "end", key="", pair="1")
        >>> TagNumbers().text(Segment(["to\nthe ", bold[0], "end", bold[1]]))
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


def read_segment(events: Iterator[XmlEvent]) -> Segment:
    """Read the content of an element whose start tag has come, to its end tag.

    Code within an inline element is left out, with the texts (`sub`) that stand within code. An element that none of
    the formats has, such as HTML's `b`, is taken for one around its text.
    """
    segment = Segment()
    open_elements: list[InlineElement | None] = []  # what its end adds
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


def split_segment(segment: Segment) -> dict[str, tuple[int, Segment]]:
    """Return the segments that a text is cut into by `<mrk mtype="seg">` (XLIFF 1.2), by `mid`, each with its line.

    Spaces between them are left out. It is empty if the text is not cut or cannot be read, if words stand outside its
    segments, or if two of these have the same `mid`.
    """
    if segment.defect is not None:
        return {}
    found: dict[str, tuple[int, Segment]] = {}
    current: Segment | None = None
    for part in segment.parts:
        if isinstance(part, str) or part.role in TAG_ROLES:
            if current is not None:
                current.add(part)
            elif isinstance(part, str) and part.strip():
                return {}
        elif part.role == "segment":
            if part.key in found:
                return {}
            current = Segment()
            found[part.key] = part.line, current
        else:
            current = None
    return found


def _ends(parts: Sequence[str | InlineElement]) -> dict[int, int]:
    """Return the places where elements begin, each with the place where it ends."""
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
    """Return what an element of `ROLES` stands for."""
    role = ROLES[tag.name]
    # TMX: x is the same in every language, i joins bpt and ept. XLIFF: rid (1.2) or startRef (2.0) names the beginning.
    key = _first_of(tag, "x", "id", *(() if role == "alone" else ("i",)))
    pair = "" if role == "alone" else _first_of(tag, "i", "startRef", "rid", "id").partition("=")[2]
    return InlineElement(tag.name, role, key, pair)


def _around(tag: StartTag, place: int) -> InlineElement:
    return InlineElement(tag.name, "begin", _first_of(tag, "id"), pair=f"{tag.name} {place}")


def _first_of(tag: StartTag, *names: str) -> str:
    return next((f"{name}={tag.attributes[name]}" for name in names if name in tag.attributes), "")


def _add_character(segment: Segment, tag: StartTag) -> None:
    r"""Add a character that XML cannot hold (XLIFF 2.0, `<cp hex="0001"/>`)."""
    code = tag.attributes.get("hex", "")
    try:
        character = chr(int(code, 16))
        character.encode()
    except (ValueError, OverflowError):
        segment.defect = segment.defect or f'<cp hex="{code[:20]}"/> is no character'
    else:
        segment.add(character)

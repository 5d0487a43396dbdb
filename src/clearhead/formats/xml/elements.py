"""Elements of XLIFF, TMX and Word files: read from a stream or with their positions, and ranges of a file replaced."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.formats.file_text import FileText
from clearhead.formats.xml.events import (
    EndTag,
    StartTag,
    XmlEvent,
    encoding_of,
    skip_element,
    text_events,
    without_forbidden,
)

SPACE = "http://www.w3.org/XML/1998/namespace space"
"""Name of the attribute `xml:space`, with its namespace."""
ITS_TRANSLATE = "http://www.w3.org/2005/11/its translate"
"""Name of the attribute `its:translate` of the Internationalization Tag Set, with its namespace."""

_TAG = re.compile(rb"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")
_ATTRIBUTE = re.compile(r"""\s+([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")

INHERITED = {SPACE, "translate", ITS_TRANSLATE, "source-language", "target-language", "srcLang", "trgLang"}
"""Attributes that apply to the elements within an element, too."""

_MARKED = {"protected": "no", "x-its-translate-no": "no", "x-its-translate-yes": "yes"}
"""Values of `mtype` in XLIFF 1.2 that mean the attribute `translate`."""

MAX_SIZE = 10_000_000
"""Maximum size of a unit that is read from a stream, in characters of its texts and attributes."""
PART_SIZE = 100
"""Size that each text and element counts besides its characters, for the memory of an object."""


@dataclass(slots=True, eq=False)
class XmlElement:
    """An element with its content; its positions count bytes of the file's text as UTF-8."""

    tag: StartTag
    size: int = 0
    """Characters of its texts and attributes, and `PART_SIZE` for each text and element."""
    parts: list[str | XmlElement] = field(default_factory=list)
    """Texts and child elements, in order."""
    content_end: int = 0
    """Position of its end tag."""
    content: int = 0
    """Position after its start tag; set by `XmlFile`, like the two fields below."""
    end: int = 0
    is_closed: bool = False
    """Whether it is written as a self-closing tag, such as `<x/>`."""

    @property
    def start(self) -> int:
        """Position of its start tag."""
        return self.tag.place

    @property
    def place(self) -> tuple[int, int]:
        """Start and end of the element."""
        return self.start, self.end

    @property
    def elements(self) -> list[XmlElement]:
        """Its child elements."""
        return [part for part in self.parts if isinstance(part, XmlElement)]

    @property
    def text(self) -> str:
        """Its own text, without that of its child elements."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def children(self, name: str) -> list[XmlElement]:
        """Return the child elements with a name, in the namespace of this element."""
        namespace = self.tag.namespace
        return [
            part
            for part in self.parts
            if isinstance(part, XmlElement) and part.tag.name == name and part.tag.namespace == namespace
        ]

    def first_children(self) -> dict[str, XmlElement]:
        """Return the first child element of each name, in the namespace of this element."""
        children: dict[str, XmlElement] = {}
        for part in self.parts:
            if isinstance(part, XmlElement) and part.tag.namespace == self.tag.namespace:
                children.setdefault(part.tag.name, part)
        return children

    def within(self) -> Iterator[XmlElement]:
        """Yield all descendants, in no particular order."""
        waiting = self.elements
        while waiting:
            element = waiting.pop()
            waiting += element.elements
            yield element

    @property
    def is_blank(self) -> bool:
        """Whether it contains only white space."""
        return not any(isinstance(part, XmlElement) or part.strip() for part in self.parts)


FoundElement = tuple[XmlElement, Mapping[str, str]]
"""An element, and the attributes of `INHERITED` that apply to it: its own, and those of the elements around it."""


def elements(
    events: Iterator[XmlEvent], names: Collection[str], *, max_size: float = math.inf
) -> tuple[StartTag, Iterator[FoundElement]]:
    """Return the root's start tag, and the elements with one of some names, without elements nested in them.

    Args:
        events: Tags and texts of a file.
        names: Names without prefix, in the namespace of the root element; the root element itself is never returned.
        max_size: Size of an element from which its further content is left out, so that memory is bounded.

    """
    root = next(event for event in events if isinstance(event, StartTag))
    return root, _elements(events, root, names, max_size)


def _elements(
    events: Iterator[XmlEvent], root: StartTag, names: Collection[str], max_size: float
) -> Iterator[FoundElement]:
    around = [inherited({}, root)]
    for event in events:
        if isinstance(event, EndTag):
            around.pop()
        elif isinstance(event, StartTag):
            if event.namespace != root.namespace:
                skip_element(events)
            elif event.name in names:
                yield read_element(events, event, max_size), inherited(around[-1], event)
            else:
                around.append(inherited(around[-1], event))


def inherited(said: Mapping[str, str], tag: StartTag) -> Mapping[str, str]:
    """Return the attributes of `INHERITED` that apply to an element; `translate` also means `its:translate`.

    Args:
        said: Attributes that apply to the element around it.
        tag: Its start tag.
    """
    if INHERITED.isdisjoint(tag.attributes):
        return said
    own = {name: value for name, value in tag.attributes.items() if name in INHERITED}
    if (is_translated := own_translate(tag)) is not None:
        own["translate"] = "yes" if is_translated else "no"
    return {**said, **own}


def own_translate(tag: StartTag) -> bool | None:
    """Return whether the content of an element is translated; None if that depends on the element around it."""
    said = tag.attributes
    own = {said.get("translate"), said.get(ITS_TRANSLATE), _MARKED.get(said.get("mtype", ""))}
    return False if "no" in own else True if "yes" in own else None


def read_element(events: Iterator[XmlEvent], tag: StartTag, max_size: float) -> XmlElement:
    """Read the rest of an element, up to its end tag; its start tag has been read.

    Args:
        events: Tags and texts behind the start tag.
        tag: The start tag.
        max_size: Size from which further content is left out, so that memory is bounded; `size` counts it all the same.
    """
    stack = [XmlElement(tag)]
    parts = stack[0].parts
    size = PART_SIZE
    for event in events:
        if isinstance(event, str):
            size += PART_SIZE + len(event)
            if size <= max_size:
                parts.append(event)
        elif isinstance(event, StartTag):
            element = XmlElement(event, size, [])
            size += PART_SIZE
            if event.attributes:
                size += sum(map(len, event.attributes.values()))
            if size <= max_size:
                parts.append(element)
            stack.append(element)
            parts = element.parts
        else:
            element = stack.pop()
            element.content_end = event.place
            element.size = size - element.size  # until here, the size before its start
            if not stack:
                return element
            parts = stack[-1].parts
    raise AssertionError("the parser refuses an element without an end")


class XmlFile:
    """An XML file read completely."""

    def __init__(self, data: bytes, path: str, *, skip_bad_units: bool = False) -> None:
        """Decode the bytes of a file.

        Args:
            data: All bytes of the file.
            path: Name of the file in messages.
            skip_bad_units: Whether elements that contain a character that XML forbids are left out.

        Raises:
            DataError: If they are not valid text in their encoding, or that encoding does not allow replacing parts.
        """
        encoding = encoding_of(data[:1000], path)
        self.source = FileText.of(data, path, encoding)
        if not self.source.is_exact:
            raise DataError(
                f"{path} is in {encoding}, which cannot be kept; convert it to UTF-8, also in its first line"
            )
        self._utf8 = self.source.text.encode()
        self.skipped: list[int] = []
        """Lines of the elements that were left out."""
        self._parsed, self._forbidden = (
            without_forbidden(self.source.text) if skip_bad_units else (self.source.text, [])
        )

    def elements(self, names: Collection[str]) -> tuple[StartTag, Iterator[FoundElement]]:
        """Return the root's start tag, and the elements with one of some names, see `elements`; with all positions.

        Raises:
            DataError: If the file is not well-formed, or contains something that `formats.xml.events` refuses; also
                during iteration.
        """
        root, inner = elements(self._events(), names)
        return root, self._good(inner)

    def _events(self) -> Iterator[XmlEvent]:
        return text_events(self._parsed, self.source.path, advice="; or leave out its unit with --skip-bad-units")

    def _good(self, candidates: Iterator[FoundElement]) -> Iterator[FoundElement]:
        self.skipped.clear()
        for element, said in candidates:
            at = bisect_left(self._forbidden, (element.start,))
            if any(place < element.content_end for place, _ in self._forbidden[at : at + 1]):
                self.skipped.append(element.tag.line)
            else:
                yield with_positions(element, self._utf8), said

    def start_tags(self, name: str) -> Iterator[StartTag]:
        """Yield the start tags of all elements with a name; raises as `elements` does."""
        return (event for event in self._events() if isinstance(event, StartTag) and event.name == name)

    def tag_place(self, tag: StartTag) -> tuple[int, int]:
        """Return start and end of a start tag."""
        return tag.place, _tag_end(self._utf8, tag.place)

    def raw(self, start: int, end: int, changes: Sequence[tuple[int, int, str]] = ()) -> str:
        """Return the text of the file between two positions.

        Args:
            start: The first position.
            end: The position after the last.
            changes: Start, end and new text of ranges to replace, in order.
        """
        parts: list[str] = []
        at = start
        for place in range(bisect_left(changes, (start,)), len(changes)):
            begins, ends, text = changes[place]
            if begins >= end:
                break
            parts += [self._utf8[at:begins].decode(), text]
            at = ends
        return "".join([*parts, self._utf8[at:end].decode()])

    def with_content(self, element: XmlElement, content: str) -> tuple[int, int, str]:
        """Return the change that gives an element another content, in raw XML."""
        if not element.is_closed:
            return element.content, element.content_end, content
        tag = self.raw(element.start, element.end).removesuffix("/>").rstrip()
        return element.start, element.end, f"{tag}>{content}</{tag_name(tag)}>"

    def space_before(self, place: int) -> str:
        """Return the white space before a position, at most 200 characters."""
        before = self._utf8[max(place - 200, 0) : place]
        return before[len(before.rstrip(b" \t\r\n")) :].decode()

    def written(self, text: str) -> str:
        """Return a text with character references for characters that the file's encoding lacks."""
        return text.encode(self.source.encoding, "xmlcharrefreplace").decode(self.source.encoding)

    def spliced(self, changes: Iterable[tuple[int, int, str]]) -> bytes:
        """Return the file's bytes with ranges replaced.

        Args:
            changes: Start, end and new text of each range, in any order and without overlaps.
        """
        splices: list[tuple[int, int, str]] = []
        at = position = 0
        for start, end, text in sorted(changes):
            first = position + len(self._utf8[at:start].decode())
            at, position = end, first + len(self._utf8[start:end].decode())
            splices.append((first, position, text))
        return self.source.replaced(splices)


def with_positions(element: XmlElement, data: bytes) -> XmlElement:
    """Return an element with all its positions set, and those of its descendants.

    Args:
        element: An element as `read_element` returns it.
        data: The file's text as UTF-8.
    """
    for inner in (element, *element.within()):
        inner.content = _tag_end(data, inner.start)
        inner.is_closed = data.startswith(b"/>", inner.content - 2)
        inner.end = inner.content if inner.is_closed else _tag_end(data, inner.content_end)
    return element


def _tag_end(data: bytes, place: int) -> int:
    """Return the position after the tag at a position."""
    match = _TAG.match(data, place)
    assert match is not None, place
    return match.end()


def tag_name(tag: str) -> str:
    """Return the name in a start tag, with its namespace prefix.

    >>> tag_name("<x:target/>"), tag_name("<seg")
    ('x:target', 'seg')
    """
    match = re.match(r"<([^\s/>]+)", tag)
    assert match is not None
    return match[1]


def with_attribute(tag: str, name: str, value: str) -> str:
    """Return a start tag with an attribute set: replaced if it exists, otherwise added at the end.

    >>> with_attribute("<target state='new'>", "state", "final"), with_attribute("<target/>", "state", "final")
    ('<target state="final">', '<target state="final"/>')
    """
    for match in _ATTRIBUTE.finditer(tag):
        if match[1] == name:
            return f'{tag[: match.start(2)]}"{value}"{tag[match.end(2) :]}'
    end = "/>" if tag.endswith("/>") else ">"
    return f'{tag.removesuffix(end).rstrip()} {name}="{value}"{end}'


def without_attribute(tag: str, name: str) -> str:
    """Return a start tag with an attribute removed.

    >>> without_attribute("<target state='new' state-qualifier='exact-match'>", "state-qualifier")
    "<target state='new'>"
    """
    return _ATTRIBUTE.sub(lambda match: "" if match[1] == name else match[0], tag)

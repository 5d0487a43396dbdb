"""Elements of an XML file with their positions, and replacing ranges of the file; used for XLIFF, TMX and Word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.formats.file_text import FileText
from clearhead.formats.xml.events import EndTag, StartTag, XmlEvent, encoding_of, placed_events

MAX_ELEMENTS = 1_000_000
"""Maximum number of elements in an element that is read completely."""

SPACE = "http://www.w3.org/XML/1998/namespace space"
"""Name of the attribute `xml:space`, with its namespace."""

_TAG = re.compile(rb"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")
_ATTRIBUTE = re.compile(r"""\s+([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")


@dataclass(slots=True, eq=False)
class XmlElement:
    """An element; its positions count bytes of the file's text as UTF-8."""

    tag: StartTag
    start: int
    content: int
    """Position after its start tag."""
    content_end: int = 0
    """Position of its end tag."""
    end: int = 0
    parts: list[str | XmlElement] = field(default_factory=list)
    """Texts and child elements, in order."""

    @property
    def is_closed(self) -> bool:
        """Whether it is a self-closing tag, such as `<x/>`."""
        return self.content == self.end

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
        return [one for one in self.elements if one.tag.name == name and one.tag.namespace == self.tag.namespace]

    def within(self) -> Iterator[XmlElement]:
        """Yield all descendants, in no particular order."""
        waiting = self.elements
        while waiting:
            element = waiting.pop()
            waiting += [part for part in element.parts if isinstance(part, XmlElement)]
            yield element

    @property
    def is_blank(self) -> bool:
        """Whether it contains only white space."""
        return not any(isinstance(part, XmlElement) or part.strip() for part in self.parts)


class XmlFile:
    """An XML file read completely."""

    def __init__(self, data: bytes, path: str) -> None:
        """Decode the bytes of a file.

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

    def elements(self, names: Collection[str]) -> Iterator[tuple[XmlElement, Sequence[StartTag]]]:
        """Yield the elements with one of some names, without elements nested in them.

        Args:
            names: Names without prefix, in the namespace of the root element; the root element itself is never yielded.

        Yields:
            An element, and the start tags of its ancestors, from the root inwards.

        Raises:
            DataError: If the file is not well-formed, or contains something that `formats.xml.events` refuses.
        """
        events = placed_events(self.source.text, self.source.path)
        around: list[StartTag] = []
        for event, place in events:
            if isinstance(event, EndTag):
                around.pop()
            elif isinstance(event, StartTag):
                if around and event.namespace != around[0].namespace:
                    self._element(events, event, place)
                elif around and event.name in names:
                    yield self._element(events, event, place), around
                else:
                    around.append(event)

    def root(self) -> StartTag:
        """Return the start tag of the root element.

        Raises:
            DataError: If the file does not begin like XML.
        """
        events = (event for event, _ in placed_events(self.source.text, self.source.path))
        return next(event for event in events if isinstance(event, StartTag))

    def raw(self, start: int, end: int) -> str:
        """Return the text of the file between two positions."""
        return self._utf8[start:end].decode()

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
        found: list[tuple[int, int, str]] = []
        at = position = 0
        for start, end, text in sorted(changes):
            first = position + len(self._utf8[at:start].decode())
            at, position = end, first + len(self._utf8[start:end].decode())
            found.append((first, position, text))
        return self.source.replaced(found)

    def _element(self, events: Iterator[tuple[XmlEvent, int]], tag: StartTag, start: int) -> XmlElement:
        return read_element(events, tag, start, self._utf8, self.source.path)


def read_element(
    events: Iterator[tuple[XmlEvent, int]], tag: StartTag, start: int, data: bytes, name: str
) -> XmlElement:
    """Read the rest of an element, up to its end tag; its start tag has been read.

    Args:
        events: Events behind the start tag, see `placed_events`.
        tag: The start tag.
        start: Its position.
        data: The file's text as UTF-8.
        name: Name of the file in messages.

    Raises:
        DataError: If it has more than `MAX_ELEMENTS` elements.
    """

    def opened(tag: StartTag, place: int) -> XmlElement:
        match = _TAG.match(data, place)
        assert match is not None, place
        return XmlElement(tag, place, match.end())

    stack = [opened(tag, start)]
    num_elements = 1
    for event, place in events:
        if isinstance(event, str):
            stack[-1].parts.append(event)
        elif isinstance(event, StartTag):
            num_elements += 1
            if num_elements > MAX_ELEMENTS:
                raise DataError(f"{name}, line {tag.line}: what begins here has more than {MAX_ELEMENTS:,} elements")
            element = opened(event, place)
            stack[-1].parts.append(element)
            stack.append(element)
        else:
            element = stack.pop()
            if data.startswith(b"/>", element.content - 2):
                element.content_end = element.end = element.content
            else:
                element.content_end, element.end = place, data.index(b">", place) + 1
            if not stack:
                return element
    raise AssertionError("the parser refuses an element without an end")


def said_within(tags: Sequence[StartTag], name: str) -> str:
    """Return the value of an attribute on the innermost of nested elements that has it; empty if none does."""
    return next((tag.attributes[name] for tag in reversed(tags) if name in tag.attributes), "")


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

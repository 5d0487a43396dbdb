"""XML of Word files: the paragraphs of a part as elements with byte positions (ECMA-376, part 1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from clearhead.errors import DataError

WORD = "w:"
"""Prefix of WordprocessingML names in this package, whatever prefix the file uses."""

_NAMESPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": WORD,
    "http://purl.oclc.org/ooxml/wordprocessingml/main": WORD,  # the strict form
    "http://www.w3.org/XML/1998/namespace": "xml:",
    "": "",
}
_START_TAG = re.compile(rb"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")

MAX_DEPTH = 200
"""Maximum nesting depth of elements; each text box takes about twenty levels."""
MAX_ELEMENTS = 1_000_000
"""Maximum elements of a paragraph, including its text boxes."""


@dataclass(slots=True, eq=False)
class WordElement:
    """An element, with its byte positions in the file."""

    name: str
    """Name with the prefix `WORD`, or with its namespace and a space."""
    attributes: dict[str, str]
    start: int
    content: int
    """Position after its start tag."""
    content_end: int = 0
    """Position of its end tag."""
    end: int = 0
    children: list[WordElement] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Pieces of its own text, without that of its children."""

    @property
    def place(self) -> tuple[int, int]:
        """Start and end of the element."""
        return self.start, self.end

    @property
    def text(self) -> str:
        """Its own text, without that of its children."""
        return "".join(self.words)

    def within(self) -> Iterator[WordElement]:
        """Yield all descendants, in no particular order."""
        waiting = list(self.children)
        while waiting:
            element = waiting.pop()
            waiting += element.children
            yield element


def parse_xml(
    data: bytes,
    name: str,
    start: Callable[[str, dict[str, str], int], None],
    end: Callable[[int], None],
    words: Callable[[str], None] = lambda words: None,
) -> None:
    """Parse UTF-8 XML; document types are refused, because entities could make it endless or read another file.

    Args:
        data: All bytes of the XML.
        name: Name of the file in messages.
        start: Called with the name, attributes and position of each start tag.
        end: Called with the position of each end tag; for a self-closing tag, the position after it.
        words: Called with each piece of text.

    Raises:
        DataError: If the XML is not well-formed, is not UTF-8, declares a document type, or is nested too deeply.
    """
    try:
        is_utf8 = "\0" not in data.decode()
    except UnicodeDecodeError:
        is_utf8 = False
    if not is_utf8:
        raise DataError(f"{name} is not in UTF-8, as Word writes it; save the file again in Word")
    parser = expat.ParserCreate("utf-8", " ")
    parser.buffer_text = True
    depth = 0

    def short(long_name: str) -> str:
        namespace, _, local = long_name.rpartition(" ")
        return f"{_NAMESPACES.get(namespace, namespace + ' ')}{local}"

    def on_start(long_name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise DataError(f"{name}: more than {MAX_DEPTH} elements are nested in each other")
        start(short(long_name), {short(key): value for key, value in attributes.items()}, parser.CurrentByteIndex)

    def on_end(_: str) -> None:
        nonlocal depth
        depth -= 1
        end(parser.CurrentByteIndex)

    def on_document_type(*_: object) -> None:
        raise DataError(f"{name} declares a document type, which no Word file has; it is refused")

    parser.StartElementHandler = on_start
    parser.EndElementHandler = on_end
    parser.CharacterDataHandler = words
    parser.StartDoctypeDeclHandler = on_document_type
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        words_of_error = expat.ErrorString(error.code)
        raise DataError(
            f"{name}, line {error.lineno}, column {error.offset + 1}: not well-formed XML: {words_of_error}"
        ) from None


def paragraphs(data: bytes, name: str) -> list[WordElement]:
    """Return the outermost paragraphs of a part, each with all elements in it.

    Raises:
        DataError: If the XML is refused by `parse_xml`, or a paragraph has more than `MAX_ELEMENTS` elements.
    """
    found: list[WordElement] = []
    stack: list[WordElement] = []
    num_elements = 0

    def start(element_name: str, attributes: dict[str, str], at: int) -> None:
        nonlocal num_elements
        if not stack:
            if element_name != f"{WORD}p":
                return
            num_elements = 0
        num_elements += 1
        if num_elements > MAX_ELEMENTS:
            raise DataError(f"{name}: a paragraph has more than {MAX_ELEMENTS:,} elements")
        tag = _START_TAG.match(data, at)
        assert tag is not None
        element = WordElement(element_name, attributes, at, tag.end())
        if stack:
            stack[-1].children.append(element)
        stack.append(element)

    def end(at: int) -> None:
        if not stack:
            return
        element = stack.pop()
        if data[element.content - 2 : element.content] == b"/>":
            element.content_end = element.end = element.content
        else:
            element.content_end, element.end = at, data.index(b">", at) + 1
        if not stack:
            found.append(element)

    def words(text: str) -> None:
        if stack:
            stack[-1].words.append(text)

    parse_xml(data, name, start, end, words)
    return found

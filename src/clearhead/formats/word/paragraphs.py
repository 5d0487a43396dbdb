"""XML of Word files (ECMA-376): events with `w:` for Word's namespace, and the outermost paragraphs as elements.

Each paragraph comes with the area it is in, which names it as readers do: `paragraph 3`, `table 1, row 2, cell 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from clearhead.errors import DataError
from clearhead.formats.xml.elements import PART_SIZE, XmlElement, read_element, with_positions
from clearhead.formats.xml.events import EndTag, StartTag, XmlEvent, text_events

WORD = "w:"
"""Prefix of WordprocessingML names in this package, whatever prefix the file uses."""

_MAX_SIZE = 1_000_000 * PART_SIZE
"""Maximum size of a paragraph, see `XmlElement.size`."""
_NAMESPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": WORD,
    "http://purl.oclc.org/ooxml/wordprocessingml/main": WORD,  # the strict form
    "http://www.w3.org/XML/1998/namespace": "xml:",
    "": "",
}
_AREAS = {
    f"{WORD}tbl": "table",
    f"{WORD}tr": "row",
    f"{WORD}tc": "cell",
    f"{WORD}hdr": "header",
    f"{WORD}ftr": "footer",
    f"{WORD}footnote": "footnote",
    f"{WORD}endnote": "endnote",
}
_MAX_TAG_CHARACTERS = 16_000_000
"""Word saves a drawing with its pictures as text in one attribute, `o:gfxdata`; the parser's time grows with the square
of a tag's size: 1.5 s for this one."""


def word_events(data: bytes, name: str) -> Iterator[XmlEvent]:
    """Yield the events of a part; names have the prefix `WORD`, or their namespace and a space.

    Args:
        data: All bytes of the part.
        name: Name of the file in messages.

    Raises:
        DataError: If it is not UTF-8, or the parser of `formats.xml.events` refuses it.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise DataError(f"{name} is not in UTF-8, as Word writes it; save the file again in Word")
    for event in text_events(text, name, _MAX_TAG_CHARACTERS):
        if isinstance(event, StartTag):
            said = event.attributes
            said = said and {_short(*key.rpartition(" ")[::2]): value for key, value in said.items()}
            event = StartTag(_short(event.namespace, event.name), "", said, event.line, event.place)
        yield event


@lru_cache(maxsize=1_000)
def _short(namespace: str, name: str) -> str:
    return f"{_NAMESPACES.get(namespace, namespace + ' ')}{name}"


class Area:
    """A part of a file in which readers count paragraphs: the body, a cell, a header, a note."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._counts: Counter[str] = Counter()

    def next(self, kind: str) -> str:
        """Return the name of the next thing of a kind in it."""
        self._counts[kind] += 1
        return f"{self._name}{self._name and ', '}{kind} {self._counts[kind]}"

    def next_paragraph(self) -> str:
        """Return the name of the next paragraph with text; the first in a cell or note has the name of that."""
        name = self.next("paragraph")
        return self._name if self._name and self._counts["paragraph"] == 1 else name


def paragraphs(data: bytes, name: str, body: Area) -> Iterator[tuple[XmlElement, Area]]:
    """Yield the outermost paragraphs of a part, each with all elements in it, and with its area.

    Args:
        data: All bytes of the part.
        name: Name of the file in messages.
        body: Area of the whole file.

    Raises:
        DataError: If the part is refused by `word_events`, or a paragraph is larger than `_MAX_SIZE`.
    """
    events = word_events(data, name)
    areas = [body]  # that of each open element
    for event in events:
        if isinstance(event, EndTag):
            areas.pop()
        elif isinstance(event, StartTag) and event.name != f"{WORD}p":
            # The notes that are lines between text and notes have a type, and no number.
            kind = None if f"{WORD}type" in event.attributes else _AREAS.get(event.name)
            areas.append(areas[-1] if kind is None else Area(areas[-1].next(kind)))
        elif isinstance(event, StartTag):
            paragraph = read_element(events, event, _MAX_SIZE)
            if paragraph.size > _MAX_SIZE:
                raise DataError(f"{name}, line {event.line}: this paragraph is larger than {_MAX_SIZE:,} characters")
            yield with_positions(paragraph, data), areas[-1]

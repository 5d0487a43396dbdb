"""XML of Word files: the paragraphs of a part as elements with byte positions (ECMA-376, part 1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from clearhead.errors import DataError
from clearhead.formats.xml.elements import XmlElement, read_element
from clearhead.formats.xml.events import StartTag, XmlEvent, placed_events

WORD = "w:"
"""Prefix of WordprocessingML names in this package, whatever prefix the file uses."""

_NAMESPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": WORD,
    "http://purl.oclc.org/ooxml/wordprocessingml/main": WORD,  # the strict form
    "http://www.w3.org/XML/1998/namespace": "xml:",
    "": "",
}


def word_events(data: bytes, name: str) -> Iterator[tuple[XmlEvent, int]]:
    """Yield the events of a part with their positions; names have the prefix `WORD`, or their namespace and a space.

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
    for placed in placed_events(text, name):
        event, place = placed
        if isinstance(event, StartTag):
            said = event.attributes
            said = said and {_short(*key.rpartition(" ")[::2]): value for key, value in said.items()}
            placed = StartTag(_short(event.namespace, event.name), "", said, event.line), place
        yield placed


@lru_cache(maxsize=1_000)
def _short(namespace: str, name: str) -> str:
    return f"{_NAMESPACES.get(namespace, namespace + ' ')}{name}"


def paragraphs(data: bytes, name: str) -> Iterator[XmlElement]:
    """Yield the outermost paragraphs of a part, each with all elements in it.

    Raises:
        DataError: If the part is refused by `word_events` or `read_element`.
    """
    events = word_events(data, name)
    for event, place in events:
        if isinstance(event, StartTag) and event.name == f"{WORD}p":
            yield read_element(events, event, place, data, name)

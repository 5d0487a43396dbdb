"""The language of a Word file: `w:lang` in its styles, by which Word checks spelling (ECMA-376, part 1, 17.3.2.20)."""

from __future__ import annotations

import math
import re

from clearhead.formats.document import Splice, spliced
from clearhead.formats.languages import is_variant, without_region
from clearhead.formats.word.paragraphs import WORD, word_events
from clearhead.formats.xml.elements import read_element, with_attribute, with_positions
from clearhead.formats.xml.events import StartTag
from clearhead.text.languages import is_right_to_left

_EAST_ASIAN = frozenset({"ja", "ko", "zh"})
_ATTRIBUTE = re.compile(r"\s([^\s=]*:)?val\s*=")


def in_language(data: bytes, name: str, language: str) -> bytes:
    """Return styles in another language: each `w:lang` that equals the first one, that of the defaults, is changed.

    Args:
        data: Content of the part with the styles.
        name: Name of the part in messages.
        language: The new language; a variant of it stays.

    Raises:
        DataError: As `word_events`.
    """
    language = language.replace("_", "-")
    events = word_events(data, name)
    found = [
        with_positions(read_element(events, event, math.inf), data)
        for event in events
        if isinstance(event, StartTag) and event.name == f"{WORD}lang"
    ]
    usual = found[0].tag.attributes.get(f"{WORD}val", "") if found else ""
    if not usual or is_variant(usual, language):
        return data
    splices: list[Splice] = []
    for element in found:
        if element.tag.attributes.get(f"{WORD}val") == usual:
            tag = data[element.start : element.content].decode()
            splices.append(Splice(element.start, element.content, _in_language(tag, language).encode()))
    return spliced(data, splices)


def _in_language(tag: str, language: str) -> str:
    """Return a `w:lang` with another language; East Asian and right-to-left text have an attribute of their own."""
    prefix = found[1] or "" if (found := _ATTRIBUTE.search(tag)) else ""
    tag = with_attribute(tag, f"{prefix}val", language)
    if without_region(language) in _EAST_ASIAN:
        return with_attribute(tag, f"{prefix}eastAsia", language)
    return with_attribute(tag, f"{prefix}bidi", language) if is_right_to_left(language) else tag

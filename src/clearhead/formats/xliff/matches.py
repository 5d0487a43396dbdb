"""Translation-memory matches in XLIFF: `alt-trans` beside a target (1.x), `mtc:match` in a unit (2.x)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from clearhead.formats.document import Suggestion
from clearhead.formats.xml.elements import XmlElement, XmlFile, tag_name
from clearhead.formats.xml.events import UNWRITABLE
from clearhead.formats.xml.inline_text import InlineText

NAMESPACE = "urn:oasis:names:tc:xliff:matches:2.0"
"""Namespace of the Translation Candidates module of XLIFF 2.x."""
_START_TAG = re.compile(r"""<(?:[^<>"']++|"[^"]*+"|'[^']*+')*+>""")
_DATA_REFERENCE = re.compile(r"""\s+dataRef(?:Start|End)?\s*=\s*(?:"[^"]*"|'[^']*')""")
_UNKNOWN = "\ufffd"


class PartMatch(NamedTuple):
    """The match of a part of a unit."""

    part: XmlElement
    text: InlineText
    """Text of the part, whose markup the match has."""
    match: Suggestion


def alternatives(source: XmlElement, matches: Sequence[PartMatch], file: XmlFile, *, has_parts: bool) -> str:
    """Return matches as `alt-trans` elements of XLIFF 1.x.

    Args:
        source: The source of the unit.
        matches: The matches of its parts.
        file: The file.
        has_parts: Whether the unit has several parts; a match then names its own.
    """
    space, prefix = file.space_before(source.start), _prefix(file.raw(source.start, source.content))
    written: list[str] = []
    for (part, _, match), texts in zip(matches, _texts(prefix, matches, file), strict=True):
        mid = part.tag.attributes.get("mid") if has_parts else None
        of_part = "" if mid is None else f' mid="{html.escape(mid)}"'
        quality = f'match-quality="{match.percent}%"'
        written.append(f"{space}<{prefix}alt-trans{of_part} {quality}>{texts}</{prefix}alt-trans>")
    return "".join(written)


def candidates(source: XmlElement, matches: Sequence[PartMatch], file: XmlFile, ref: str) -> str:
    """Return matches as elements of XLIFF 2.x, for `with_candidates`.

    Args:
        source: The source of the segment.
        matches: The matches of its parts.
        file: The file.
        ref: Id of the segment.
    """
    written: list[str] = []
    prefix = _prefix(file.raw(source.start, source.content))
    for (_, _, match), texts in zip(matches, _texts(prefix, matches, file), strict=True):
        quality = f'type="tm" similarity="{match.percent}.0"'
        # A match has original data of its own, not that of its unit.
        own = _START_TAG.sub(lambda tag: _DATA_REFERENCE.sub("", tag[0]), texts)
        written.append(f'{{match}} ref="#{html.escape(ref)}" {quality}>{own}{{end}}')
    return "".join(written)


def with_candidates(unit: XmlElement, written: Sequence[str], file: XmlFile) -> tuple[int, int, str]:
    """Return the change that adds `candidates` to a unit of XLIFF 2.x."""
    there = next((element for element in unit.children("matches") if not element.is_closed), None)
    prefix = "mtc:" if there is None else _prefix(file.raw(there.start, there.content))
    content = "".join(written).replace("{match}", f"<{prefix}match").replace("{end}", f"</{prefix}match>")
    if there is not None:
        return there.content_end, there.content_end, content
    return unit.content, unit.content, f'<mtc:matches xmlns:mtc="{NAMESPACE}">{content}</mtc:matches>'


def _texts(prefix: str, matches: Sequence[PartMatch], file: XmlFile) -> Iterator[str]:
    """Yield source and target of each match as elements."""
    for _, text, match in matches:
        yield "".join(
            f"<{prefix}{name}>{text.markup(UNWRITABLE.sub(_UNKNOWN, side), file)}</{prefix}{name}>"
            for name, side in (("source", match.source), ("target", match.target))
        )


def _prefix(tag: str) -> str:
    """Return the namespace prefix of an element's name, with its colon."""
    before, colon, _ = tag_name(tag).rpartition(":")
    return before + colon

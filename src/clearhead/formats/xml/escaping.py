"""Writing XML files of segments: escaped texts, language tags, and a check for characters that cannot be written."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import SentencePair
from clearhead.formats.xml.events import UNWRITABLE

_UNWRITABLE_IN_SEGMENTS = re.compile(rf"[\n\r]|{UNWRITABLE.pattern}")
"""Line endings too, because a segment is always a single line."""
LANGUAGE_TAG = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def write_units(
    path: str | None,
    pairs: Iterable[SentencePair],
    *,
    head: str,
    unit: Callable[[int, str, str], str],
    foot: str,
) -> int:
    """Write one unit per pair, and return the number of pairs.

    Args:
        path: The file; `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written. Tags in a text are written as literal text.
        head: Text before the units.
        unit: Returns the XML of a unit from its number, counted from 1, and its two texts, escaped by `xml_texts`.
        foot: Text after the units.

    Raises:
        DataError: If a text contains a line ending, which reading would change, or a character that XML forbids; or the
            file cannot be written.
    """
    count = 0
    with open_output(path) as file:
        file.write(head)
        for count, pair in enumerate(pairs, start=1):
            file.write(unit(count, *xml_texts(pair)))
        file.write(foot)
    return count


def xml_texts(pair: SentencePair) -> tuple[str, str]:
    """Return source and target, escaped as the content of elements.

    Raises:
        DataError: If a text contains a character that cannot be written.

    >>> xml_texts(SentencePair("a < b", "<x1/>", "f:1"))
    ('a &lt; b', '&lt;x1/&gt;')
    """
    for side, text in (("source", pair.source), ("target", pair.target)):
        if match := _UNWRITABLE_IN_SEGMENTS.search(text):
            raise DataError(
                f"{pair.origin}: the {side} holds U+{ord(match[0]):04X} at character {match.start() + 1}, which an XML "
                f"file of segments cannot keep; replace it"
            )
    return html.escape(pair.source, quote=False), html.escape(pair.target, quote=False)


def language_tags(languages: tuple[str, str]) -> tuple[str, str]:
    """Return both languages as XML language tags (RFC 3066), with hyphens instead of underscores.

    Raises:
        ConfigError: If one of them is not a language tag, or both are the same.

    >>> language_tags(("en", "pt_BR"))
    ('en', 'pt-BR')
    """
    source, target = map(language_tag, languages)
    if source.casefold() == target.casefold():
        raise ConfigError(f"source and target are both {source!r}; the file must name a different language for each")
    return source, target


def language_tag(language: str) -> str:
    """Return a language as an XML language tag (RFC 3066), with hyphens instead of underscores.

    Raises:
        ConfigError: If it is not a language tag.
    """
    tag = language.replace("_", "-")
    if not LANGUAGE_TAG.fullmatch(tag):
        raise ConfigError(f"{tag!r} is no language; give one such as en, de-AT or zh-Hant")
    return tag

"""Texts and languages as an XML file holds them: escaped, or refused where they would not come back as they are."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import open_output
from clearhead.formats.pair import SentencePair

__all__ = ["language_tags", "write_units", "xml_texts"]

UNWRITABLE = re.compile(r"[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Line ends, for a segment is a line everywhere, and what XML 1.0 (section 2.2) cannot hold."""
LANGUAGE_TAG = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


def write_units(
    path: str | None,
    pairs: Iterable[SentencePair],
    *,
    head: str,
    unit: Callable[[int, str, str], str],
    foot: str,
) -> int:
    """Write a unit for every pair, and return their number.

    Args:
        path: `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written, and tags are written as the text that they are.
        head: What stands before the units.
        unit: Makes the XML of one of its number, counted from 1, and its texts as `xml_texts` returns them.
        foot: What stands behind them.

    Raises:
        DataError: If a text holds what would not come back: a line end, or a character that XML does not have; or the
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
    """Return source and target as the content of elements.

    Raises:
        DataError: If a character would not come back.

    >>> xml_texts(SentencePair("a < b", "<x1/>", "f:1"))
    ('a &lt; b', '&lt;x1/&gt;')
    """
    for side, text in (("source", pair.source), ("target", pair.target)):
        if found := UNWRITABLE.search(text):
            raise DataError(
                f"{pair.origin}: the {side} holds U+{ord(found[0]):04X} at character {found.start() + 1}, which an XML "
                f"file of segments cannot keep; replace it"
            )
    return html.escape(pair.source, quote=False), html.escape(pair.target, quote=False)


def language_tags(languages: tuple[str, str]) -> tuple[str, str]:
    """Return the languages of both sides as XML spells them (RFC 3066), with hyphens where programs write underscores.

    Raises:
        ConfigError: If one of them is no language tag, or both are the same.

    >>> language_tags(("en", "pt_BR"))
    ('en', 'pt-BR')
    """
    source, target = (language.replace("_", "-") for language in languages)
    for language in (source, target):
        if not LANGUAGE_TAG.fullmatch(language):
            raise ConfigError(f"{language!r} is no language; give one such as en, de-AT or zh-Hant")
    if source.casefold() == target.casefold():
        raise ConfigError(f"source and target are both {source!r}; the file must name a different language for each")
    return source, target

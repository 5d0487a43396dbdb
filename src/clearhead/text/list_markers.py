"""Markers of lists, quotations and speakers at the beginning of a line: `- `, `* `, `> `, `a) `, `1. `.

They are the structure of a text. A model that has seen few of them drops or doubles them, so it reads the line without
them, and its translation gets them back.
"""

from __future__ import annotations

import re

from clearhead.text.placeholders import has_words

_GERMAN_DATE = (
    r"\s+(?:Januar|Jänner|Februar|Feber|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    r"|Jan|Feb|Mär|Mrz|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez)(?!\w)"
)
"""Pattern of a month behind its day in German, where months have a capital."""
MARKER = re.compile(
    r"\s*(?:(?:[*•‣▪+–—-]|>{1,3}|\(?(?:[A-Za-z]|[ivxIVX]{2,4}|[0-9]{1,3})\)"
    rf"|[0-9]{{1,3}}\.(?!{_GERMAN_DATE}))[ \t\u00a0]+)+(?=\S)"
)
"""Pattern of the markers at the beginning of a line, each with the space behind it."""


def list_marker(text: str) -> str:
    """Return the markers at the beginning of a line, with their white space; "" if there are none, or no words behind.

    A number with a full stop is a marker only before a word with a capital, or in a script without capitals: before a
    small letter, a digit or a German month it is an ordinal.

    >>> list_marker("- Open it."), list_marker("1. Open it."), list_marker("> - a) Open it.")
    ('- ', '1. ', '> - a) ')
    >>> (
    ...     list_marker("-5 °C"),
    ...     list_marker("12. März 2004"),
    ...     list_marker("3. května"),
    ...     list_marker("a dog"),
    ...     list_marker("- 5"),
    ... )
    ('', '', '', '', '')
    """
    match = MARKER.match(text)
    if match is None or not has_words(text[match.end() :]):
        return ""
    first = text[match.end()]
    is_ordinal = match[0].rstrip().endswith(".") and (first.isdecimal() or first.islower())
    return "" if is_ordinal else match[0]

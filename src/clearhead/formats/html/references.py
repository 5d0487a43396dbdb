"""Character references of HTML and Markdown, such as `&nbsp;` and `&#8211;`: decoding, and keeping a file's style."""

from __future__ import annotations

import html
import re

TEXT_REFERENCE = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[a-zA-Z][a-zA-Z0-9]{1,31};?)")
ATTRIBUTE_REFERENCE = re.compile(
    r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[a-zA-Z][a-zA-Z0-9]{1,31}(?:;|(?![=a-zA-Z0-9])))"
)
"""References in attributes: as in text, except that `?a=1&copy=2` in an address contains none."""


def resolved(text: str, reference: re.Pattern[str] = TEXT_REFERENCE) -> str:
    """Return a text with its character references decoded.

    >>> resolved("Tom &amp; Jerry &#8211; caf&eacute;")
    'Tom & Jerry – café'
    """
    return reference.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def habits(text: str) -> dict[int, str]:
    """Return the reference that a file uses for each character it writes as one, as a table for `str.translate`.

    If a file uses several for a character, the first one counts. ASCII letters, digits and white space are left out,
    because nobody wants all of them written as references.

    >>> habits("a&nbsp;b&#160;c &#65;")
    {160: '&nbsp;'}
    """
    found: dict[int, str] = {}
    for reference in re.findall(TEXT_REFERENCE, text):
        character = html.unescape(reference)
        is_plain = character.isascii() and (character.isalnum() or character.isspace())
        if reference.endswith(";") and len(character) == 1 and not is_plain:
            found.setdefault(ord(character), reference)
    return found

"""Character references such as `&nbsp;` and `&#8211;`, which HTML and Markdown have: read, and written as they were."""

from __future__ import annotations

import html
import re

__all__ = ["ATTRIBUTE_REFERENCE", "TEXT_REFERENCE", "habits", "resolved"]

TEXT_REFERENCE = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[a-zA-Z][a-zA-Z0-9]{1,31};?)")
ATTRIBUTE_REFERENCE = re.compile(
    r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[a-zA-Z][a-zA-Z0-9]{1,31}(?:;|(?![=a-zA-Z0-9])))"
)
"""As in text, but `?a=1&copy=2` in an address is none."""


def resolved(text: str, reference: re.Pattern[str] = TEXT_REFERENCE) -> str:
    """Return a text with the characters that are referred to.

    >>> resolved("Tom &amp; Jerry &#8211; caf&eacute;")
    'Tom & Jerry – café'
    """
    return reference.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text


def habits(text: str) -> dict[int, str]:
    """Return how a file writes characters that it does not have plainly, for `str.translate`: the first way of each.

    Letters of ASCII, digits and white space are left out, for nobody means them to be written so everywhere.

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

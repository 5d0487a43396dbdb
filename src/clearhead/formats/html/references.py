"""Character references of HTML and Markdown, such as `&nbsp;` and `&#8211;`: decoding, and keeping a file's style."""

from __future__ import annotations

import html
import re
import sys
from html.entities import html5

_TEXT_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[a-zA-Z][a-zA-Z0-9]{1,31};?)")
_ATTRIBUTE_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[a-zA-Z][a-zA-Z0-9]{1,31}(?:;|(?![=a-zA-Z0-9])))")
_MOST_DIGITS = len(str(sys.maxunicode))


def resolved(text: str, *, is_attribute: bool = False) -> str:
    """Return a text with its character references decoded, as browsers do (WHATWG HTML, section 13.2.5.72).

    Args:
        text: Text of a file.
        is_attribute: Whether it is the value of an attribute, where `?a=1&copy=2` contains no reference.

    >>> resolved("Tom &amp; Jerry &#8211; caf&eacute;")
    'Tom & Jerry – café'
    """
    if "&" not in text:
        return text
    if is_attribute:
        return _ATTRIBUTE_REFERENCE.sub(lambda match: _numbered(match[0]) or html5.get(match[0][1:], match[0]), text)
    return _TEXT_REFERENCE.sub(lambda match: _numbered(match[0]) or html.unescape(match[0]), text)


def _numbered(reference: str) -> str:
    """Return the character of a numeric reference; empty if the reference is a name."""
    if reference[1] != "#":
        return ""
    digits = reference.lstrip("&#xX").rstrip(";").lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return "\ufffd"
    code = int(digits or "0", 16 if reference[2] in "xX" else 10)
    return html.unescape(f"&#{code};") or chr(code)  # it drops control characters and noncharacters, browsers do not


def habits(text: str) -> dict[int, str]:
    """Return the reference that a file uses for each character it writes as one, as a table for `str.translate`.

    If a file uses several for a character, the first one counts. ASCII letters, digits and white space are left out,
    because nobody wants all of them written as references.

    >>> habits("a&nbsp;b&#160;c &#65;")
    {160: '&nbsp;'}
    """
    references: dict[int, str] = {}
    for reference in _TEXT_REFERENCE.findall(text):
        character = resolved(reference)
        is_plain = character.isascii() and (character.isalnum() or character.isspace())
        if reference.endswith(";") and len(character) == 1 and not is_plain:
            references.setdefault(ord(character), reference)
    return references

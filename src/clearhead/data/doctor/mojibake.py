"""Text that was decoded wrongly: UTF-8 taken for Latin-1 or Windows-1252, and characters that were lost."""

from __future__ import annotations

import re

__all__ = ["garbled"]


def _windows(byte: int) -> str:
    """Return the character that Windows-1252 has for a byte, or Latin-1 where it has none."""
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


_NEXT = "".join(sorted({character for byte in range(0x80, 0xC0) for character in (chr(byte), _windows(byte))}))
"""What the second and later bytes of a character in UTF-8 are taken for."""
_NEXT = f"[{re.escape(_NEXT)}]"

_CERTAIN = re.compile(
    rf"""
      \ufffd+                                   # lost
    | (?:[ÃÄÅ]|Â(?!\ ?[»”“)]))(?:{_NEXT})        # a letter of Latin; Â also before what most signs end in
    | â(?:[€\x80‚„†‡ˆ]|[\x80-\x8f])(?:{_NEXT})    # a quotation mark, dash, sign or arrow
    | ï»¿ | ï¿½                                  # a byte order mark, and what was lost before
    | ð[Ÿ\x9f](?:{_NEXT}){{2}}                    # an emoji
    """,
    re.VERBOSE,
)

_LIKELY = re.compile(rf"(?:[ÐÑÎÏØÙ×]{_NEXT}|[àâãäåæçèéêëìí]{_NEXT}{{2}}){{3,}}")
"""Several characters in a row of Cyrillic, Greek, Hebrew, Arabic or of East Asia; one alone may be an accent and a
quotation mark."""


def garbled(text: str) -> str:
    """Return the first part of a text that was decoded wrongly; empty if there is none.

    >>> garbled("schÃ¶n"), garbled("Itâ€™s"), garbled("ÐŸÑ€Ð¸Ð²ÐµÑ‚"), garbled("„Spaß“, dit-il à l’été…»")
    ('Ã¶', 'â€™', 'ÐŸÑ€Ð¸Ð²ÐµÑ‚', '')
    """
    match = _CERTAIN.search(text) or _LIKELY.search(text)
    return match[0] if match else ""

"""Detection of mojibake: UTF-8 decoded as Latin-1 or Windows-1252, and lost characters."""

from __future__ import annotations

import re


def _windows(byte: int) -> str:
    """Return the Windows-1252 character of a byte, or the Latin-1 character if there is none."""
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


_NEXT = "".join(sorted({character for byte in range(0x80, 0xC0) for character in (chr(byte), _windows(byte))}))
"""Characters that the second and later bytes of a UTF-8 sequence decode to."""
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
"""Several consecutive characters of Cyrillic, Greek, Hebrew, Arabic or East Asian scripts.

A single one may be an accented letter and a quotation mark.
"""


def garbled(text: str) -> str:
    """Return the first part of a text that was decoded wrongly; empty if there is none.

    >>> garbled("schÃ¶n"), garbled("Itâ€™s"), garbled("ÐŸÑ€Ð¸Ð²ÐµÑ‚"), garbled("„Spaß“, dit-il à l’été…»")
    ('Ã¶', 'â€™', 'ÐŸÑ€Ð¸Ð²ÐµÑ‚', '')
    """
    match = _CERTAIN.search(text) or _LIKELY.search(text)
    return match[0] if match else ""

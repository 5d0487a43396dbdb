"""Mojibake, UTF-8 that was decoded as Latin-1, Windows-1252 or an older code page: found, and mended where certain."""

from __future__ import annotations

import re

from clearhead.data.doctor.code_pages import read_in_code_page


def _windows(byte: int) -> str:
    """Return the Windows-1252 character of a byte, or the Latin-1 character if there is none."""
    try:
        return bytes([byte]).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


_NEXT = "".join(sorted({character for byte in range(0x80, 0xC0) for character in (chr(byte), _windows(byte))}))
"""Characters that the second and later bytes of a UTF-8 sequence decode to."""
_NEXT = f"[{re.escape(_NEXT)}]"

_END_OF_CAPITALS = r"(?<=[A-ZÀ-ÖØ-Þ])[ÂÃÄÅ](?:[\xa0—]|[…–“”‘’«»‹›](?![^\W\d_]))"
"""The end of a word in capital letters, and punctuation: `HYVÄ…`, `”BLÅ”`."""

_CERTAIN = re.compile(
    rf"""
      \ufffd+                                   # lost
    | (?!{_END_OF_CAPITALS})(?:[ÃÄÅ]|Â(?!\ ?[»”“)]))(?:{_NEXT})  # a letter of Latin; Â also before other signs
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


_BYTES = {_windows(byte): chr(byte) for byte in range(0x80, 0x100)}
"""Windows-1252 characters, and the Latin-1 characters of the same bytes."""

_SEQUENCE = re.compile(rf"[Â-ô]{_NEXT}")
"""The beginning of what may be a character of UTF-8."""

_LEAST_SHORTENED = 4
"""Least number of characters by which decoding must shorten a text to show that all of it was garbled."""

_LOST_SPACE = re.compile("([ÃÅ]) ")
"""The no-break space of à or Š, made a space by some program."""

_CUT = re.compile(r"[ÂÃÄÅ](?:\s|$)")
"""What is left of a letter that was cut."""


def garbled(text: str) -> str:
    """Return the first part of a text that was decoded wrongly; empty if there is none.

    >>> garbled("schÃ¶n"), garbled("Itâ€™s"), garbled("ÐŸÑ€Ð¸Ð²ÐµÑ‚"), garbled("„Spaß“, dit-il à l’été…»")
    ('Ã¶', 'â€™', 'ÐŸÑ€Ð¸Ð²ÐµÑ‚', '')
    """
    if match := _CERTAIN.search(text) or _LIKELY.search(text):
        return match[0]
    if (found_in_page := read_in_code_page(text)) is not None:
        return found_in_page[0]
    found = _SEQUENCE.search(text)
    if found is None:
        return ""
    decoded = _as_utf8(text)
    return found[0] if decoded is not None and len(text) - len(decoded) >= _LEAST_SHORTENED else ""


def repaired_text(text: str) -> str | None:
    """Return a garbled text as it was; None if that is not certain.

    It is certain if all of the text is the UTF-8 of other characters, or if every part that might be is clearly one. It
    is not if several encodings give different texts.

    >>> (
    ...     repaired_text("schÃ¶n"),
    ...     repaired_text("Ich sage â€žjaâ€œ – schÃ¶n"),
    ...     repaired_text("ÃƒÂ¶"),
    ...     repaired_text("sch\ufffdn"),
    ... )
    ('schön', 'Ich sage „ja“ – schön', 'ö', None)
    """
    whole, in_page = _whole(text), read_in_code_page(text)
    if in_page is not None and not garbled(in_page[1]):
        return in_page[1] if in_page[1] and whole in (None, in_page[1]) else None
    if whole is None:
        parts = _CERTAIN.sub(_part, text)
        whole = _whole(parts := _LIKELY.sub(_part, parts)) or parts
        if _SEQUENCE.search(whole) or _CUT.search(whole):
            return None
    return whole if whole != text and not garbled(whole) else None


def _whole(text: str) -> str | None:
    """Return a text decoded as UTF-8 as often as possible; None if it is not possible once."""
    found = None
    while (decoded := _as_utf8(text) or _as_utf8(_LOST_SPACE.sub("\\1\xa0", text))) is not None and decoded != text:
        found = text = decoded
    return found


def _part(match: re.Match[str]) -> str:
    return _as_utf8(match[0]) or match[0]


def _as_utf8(text: str) -> str | None:
    """Return the characters whose UTF-8 the characters of a text are in Windows-1252 or Latin-1; None if of none."""
    try:
        return "".join(_BYTES.get(one, one) for one in text).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None

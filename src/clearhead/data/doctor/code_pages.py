"""Mojibake of older code pages: UTF-8 that was decoded as that of Central Europe, the Baltic, DOS or the Macintosh.

A text is only taken for garbled if all of its characters beyond ASCII are UTF-8 in such a page, if that gives letters
and punctuation that occur together, and if what it looks like now is no spelling: a sign amid small letters, or a
capital letter behind a small one.
"""

from __future__ import annotations

import re

CODE_PAGES = ("cp1250", "cp1257", "cp437", "cp850", "mac_roman")

_FIRST_BYTES = (*range(0xC2, 0xC6), 0xCE, 0xCF, 0xD0, 0xD1, 0xD7, 0xD8, 0xD9, *range(0xE1, 0xEE), 0xF0)
"""First bytes of letters and signs in UTF-8."""

LEADS = frozenset(bytes([byte]).decode(page) for page in CODE_PAGES for byte in _FIRST_BYTES)
"""Characters with which a garbled letter may begin."""

_TABLES = {
    page: {bytes([byte]).decode(page, "ignore") or chr(byte): byte for byte in range(0x100)} for page in CODE_PAGES
}
"""The byte of each character of a page; programs read one that is undefined as a control character."""
_UNDEFINED = re.compile(r"[\x80-\x9f]")
"""The control characters that undefined bytes are read as."""
_ALONE = re.compile(r"(?<![^\x00-\x7f])[^\x00-\x7f](?![^\x00-\x7f])")
"""A single character beyond ASCII, which is UTF-8 in no page."""

_BESIDE_CAPITALS = "‘’‚“”„«»‹›…–—\xa0\xad®™©°"
_NO_LETTERS = "ƒ"
"""A letter to Unicode, but of no word."""
_COMMON = re.compile("[\xa0-\u017f\u0218-\u021b\u1ea0-\u1ef9\u2010-\u2027\u2030-\u203a€™←-⇿−\U0001f000-\U0001faff]")
"""Latin letters, and signs that stand in text of any script."""
_OTHER_SCRIPTS = re.compile(
    "[\u0370-\u03ff\u0400-\u04ff\u0590-\u05ff\u0600-\u06ff\u0e00-\u0e7f\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e]"
)
_FEWEST_OTHERS = 3
"""Fewest letters of other scripts, which a few signs and accented letters in a row may give by chance."""


def read_in_code_page(text: str) -> tuple[str, str] | None:
    """Return the first garbled part of a text, and the text as it was; None if it is not clearly garbled.

    The second is empty if several code pages give different texts.

    >>> (
    ...     read_in_code_page("schĂ¶n"),
    ...     read_in_code_page("sch├╢n"),
    ...     read_in_code_page("sch√∂n"),
    ...     read_in_code_page("schön"),
    ... )
    (('Ă¶', 'schön'), ('├╢', 'schön'), ('√∂', 'schön'), None)
    """
    found: dict[str, str] = {}
    if text.isascii() or _ALONE.search(text):
        return None
    for page in CODE_PAGES:
        original = _original(text, page)
        if original is not None and (garbled := _garbled_part(text, original)):
            found.setdefault(original, garbled)
    if not found:
        return None
    return next(iter(found.values())), next(iter(found)) if len(found) == 1 else ""


def _original(text: str, page: str) -> str | None:
    """Return the text whose UTF-8 was read in a page; None if there is none."""
    try:
        if _UNDEFINED.search(text):
            return bytes(_TABLES[page][one] for one in text).decode("utf-8")
        return text.encode(page).decode("utf-8")
    except (UnicodeError, KeyError):
        return None


def _garbled_part(text: str, original: str) -> str:
    """Return the first part of a text that is no spelling; empty if there is none, or its original is none either."""
    place, num_others, first = 0, 0, ""
    for letter in original:
        if letter.isascii():
            place += 1
            continue
        end = place + len(letter.encode())
        part = text[place:end]
        if _OTHER_SCRIPTS.match(letter):
            num_others += 1
        elif not _COMMON.match(letter):
            return ""
        elif not first and _is_no_spelling(part, text[max(0, place - 1) : place], text[end : end + 1]):
            first = part
        place = end
    return first or (text if num_others >= _FEWEST_OTHERS else "")


def _is_no_spelling(part: str, before: str, after: str) -> bool:
    """Return whether a part of a text, between two other characters, is nothing that is written so."""
    lead, last = part[0], part[-1]
    if len(part) > 2 or "€" in part or (lead.isupper() and before.islower()):
        return True
    if before.isupper() and lead.isupper() and last.islower():
        return True
    if last == "\xa0" and after == " ":
        return True
    if not lead.isalpha() or lead in _NO_LETTERS:
        return before.isalpha() or after.isalpha() or "\xc0" <= last <= "\u024f" or last == "†"  # à in Mac Roman
    has_sign = not last.isalnum() and last not in _BESIDE_CAPITALS
    is_in_word = before.isalpha() or after.isalpha()
    return (has_sign and is_in_word) or (after.islower() and (part.isupper() or not last.isalpha()))

"""Mojibake, UTF-8 that was decoded as Latin-1, Windows-1252 or an older code page: found, and mended where certain.

The older pages are those of Central Europe, the Baltic, DOS and the Macintosh. In these a text is only taken for
garbled if all of its characters beyond ASCII are UTF-8 in such a page, if that gives letters and punctuation that occur
together, and if what it looks like now is no spelling: a sign amid small letters, or a capital letter behind a small
one.
"""

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
    if text.isascii():
        return ""
    sequence = _SEQUENCE.search(text)
    # Everything certain or likely has such a sequence, which is found in a tenth of their time, or U+FFFD.
    if (sequence or "\ufffd" in text) and (match := _CERTAIN.search(text) or _LIKELY.search(text)):
        return match[0]
    if (found_in_page := read_in_code_page(text)) is not None:
        return found_in_page[0]
    if sequence is None:
        return ""
    decoded = _as_utf8(text)
    return sequence[0] if decoded is not None and len(text) - len(decoded) >= _LEAST_SHORTENED else ""


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
    whole = None
    while (decoded := _as_utf8(text) or _as_utf8(_LOST_SPACE.sub("\\1\xa0", text))) is not None and decoded != text:
        whole = text = decoded
    return whole


def _part(match: re.Match[str]) -> str:
    return _as_utf8(match[0]) or match[0]


def _as_utf8(text: str) -> str | None:
    """Return the characters whose UTF-8 the characters of a text are in Windows-1252 or Latin-1; None if of none."""
    try:
        return "".join(_BYTES.get(character, character) for character in text).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None


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
_ALONE = re.compile(r"[^\x00-\x7f](?<![^\x00-\x7f]{2})(?![^\x00-\x7f])")
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
    originals: dict[str, str] = {}
    if text.isascii() or _ALONE.search(text):
        return None
    for page in CODE_PAGES:
        original = _original(text, page)
        if original is not None and (garbled := _garbled_part(text, original)):
            originals.setdefault(original, garbled)
    if not originals:
        return None
    return next(iter(originals.values())), next(iter(originals)) if len(originals) == 1 else ""


def _original(text: str, page: str) -> str | None:
    """Return the text whose UTF-8 was read in a page; None if there is none."""
    try:
        if _UNDEFINED.search(text):
            return bytes(_TABLES[page][character] for character in text).decode("utf-8")
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

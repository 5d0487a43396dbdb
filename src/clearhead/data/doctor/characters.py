"""What is known of every character: its kind as bits, its script, its plain form; learned at first sight."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clearhead.text.scripts import script_of

__all__ = [
    "BRACKET",
    "CAPITAL",
    "CONTROL",
    "DIGIT",
    "ENTITY",
    "GARBLED",
    "INVISIBLE",
    "LETTER",
    "MARK",
    "SPACE",
    "WORD",
    "CharacterTable",
    "character_table",
]

_KNOWN = 1
SPACE = 1 << 1
LETTER = 1 << 2
DIGIT = 1 << 3
CAPITAL = 1 << 4
WORD = 1 << 5
"""A digit, or a letter of a script with capitals: of words that may be copied into the other language."""
MARK = 1 << 6
"""A placeholder, a tag or an address has one of these."""
ENTITY = 1 << 7
"""Begins a character reference."""
BRACKET = 1 << 8
CONTROL = 1 << 9
"""Not text: a control character but for tab and line feed, one of private use, half of a surrogate pair."""
INVISIBLE = 1 << 10
"""Takes no room: zero-width and soft hyphens, byte order marks, directions."""
GARBLED = 1 << 11
"""Stands in text that was decoded wrongly; most such characters stand in other text too."""

_JOINERS = "\u200c\u200d"
"""Part of the spelling in Persian and Hindi, and of emoji."""
_GARBLED = {"\ufffd", *"ÂÃÄÅâãïðÐÑÎÏØÙ×"}
_PUNCTUATION = {
    **dict.fromkeys("?؟", 1),
    "!": 2,
    ":": 4,
    **dict.fromkeys("([", 8),
    **dict.fromkeys('"“”„«»「」', 16),
    ";": 32,
    "%": 64,
}
"""Signs that a translation keeps, each a bit; what stands for the same has the same."""


class CharacterTable:
    """A row for every code point, filled when a text first has it."""

    def __init__(self) -> None:
        size = sys.maxunicode + 1
        self.kinds: NDArray[np.uint16] = np.zeros(size, dtype=np.uint16)
        """Bits such as `LETTER`; 0 is a character that was not seen yet."""
        self.scripts: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        """Place in `script_names` of a letter's script; 0 for what is no letter."""
        self.plain: NDArray[np.uint32] = np.zeros(size, dtype=np.uint32)
        """Small letter or ASCII digit; a space for what is neither."""
        self.punctuation: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        self.script_names = [""]

    def learn(self, codes: NDArray[np.uint32]) -> None:
        """Fill the rows of characters that were not seen before."""
        unseen = codes[self.kinds[codes] == 0]
        for code in np.unique(unseen).tolist():
            self._fill(code, chr(code))

    def _fill(self, code: int, character: str) -> None:
        category = unicodedata.category(character)
        kind = _KNOWN
        plain = unicodedata.normalize("NFKC", character).casefold()[:1] or character
        if character.isspace():
            kind |= SPACE
        if category[0] == "L":
            kind |= LETTER
            if character.lower() != character.upper():
                kind |= WORD | (CAPITAL if category in ("Lu", "Lt") else 0)
            self.scripts[code] = self._script(character)
        if category == "Nd":
            kind |= DIGIT | WORD
            plain = str(unicodedata.decimal(character))
        if character in "%{$<&@:`|":
            kind |= MARK
        if character == "&":
            kind |= ENTITY
        if plain in tuple("()[]{}"):
            kind |= BRACKET
        if (category in ("Cc", "Co", "Cs") and character not in "\t\n") or character in "\ufffe\uffff":
            kind |= CONTROL
        if (category == "Cf" and character not in _JOINERS) or category in ("Zl", "Zp"):
            kind |= INVISIBLE
        if character in _GARBLED:
            kind |= GARBLED
        self.kinds[code] = kind
        self.plain[code] = ord(plain) if category[0] in "LM" or category == "Nd" else ord(" ")
        self.punctuation[code] = _PUNCTUATION.get(character, _PUNCTUATION.get(plain, 0))

    def _script(self, letter: str) -> int:
        name = script_of(letter) or ""
        if name not in self.script_names:
            if len(self.script_names) == 256:  # rarer ones than that share a number
                return 255
            self.script_names.append(name)
        return self.script_names.index(name)


@cache
def character_table() -> CharacterTable:
    """Return the one table of this process: what a character is, it is in every corpus."""
    return CharacterTable()

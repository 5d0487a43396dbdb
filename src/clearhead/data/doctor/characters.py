"""Character properties, computed on first use: kind as bit flags, script, and normalized form."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clearhead.data.doctor.mojibake import LEADS
from clearhead.text.languages import script_of

_KNOWN = 1
SPACE = 1 << 1
LETTER = 1 << 2
DIGIT = 1 << 3
CAPITAL = 1 << 4
WORD = 1 << 5
"""A digit, or a letter of a script with capitals; words of these may be copied into the other language."""
MARK = 1 << 6
"""A character of placeholders, tags or addresses; each of these contains at least one."""
ENTITY = 1 << 7
"""The first character of a character reference."""
BRACKET = 1 << 8
CONTROL = 1 << 9
"""Not text: a control character other than tab and line feed, a private-use character, half of a surrogate pair."""
INVISIBLE = 1 << 10
"""Invisible: zero-width and soft hyphens, byte order marks, direction marks."""
GARBLED = 1 << 11
"""Occurs in wrongly decoded text; most such characters occur in other text too."""

_JOINERS = "\u200c\u200d"
"""Used in the spelling of Persian and Hindi, and in emoji."""
_GARBLED = {"\ufffd", *"ÂÃÄÅâãïðÐÑÎÏØÙ×", *LEADS}
_PUNCTUATION = {
    **dict.fromkeys("?؟", 1),
    "!": 2,
    ":": 4,
    **dict.fromkeys("([", 8),
    **dict.fromkeys('"“”„«»「」', 16),
    ";": 32,
    "%": 64,
}
"""Punctuation that translations keep, each with a bit; equivalent characters share one."""


class CharacterTable:
    """Properties of every code point, computed when a text first contains it."""

    def __init__(self) -> None:
        size = sys.maxunicode + 1
        self.kinds: NDArray[np.uint16] = np.zeros(size, dtype=np.uint16)
        """Bit flags such as `LETTER`; 0 for a character not yet seen."""
        self.scripts: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        """Index in `script_names` of a letter's script; 0 for other characters."""
        self.plain: NDArray[np.uint32] = np.zeros(size, dtype=np.uint32)
        """Lower-case letter or ASCII digit; a space for other characters."""
        self.punctuation: NDArray[np.uint8] = np.zeros(size, dtype=np.uint8)
        self.script_names = [""]

    def learn(self, codes: NDArray[np.uint32]) -> None:
        """Compute the properties of characters not yet seen."""
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
            if len(self.script_names) == 256:  # rarer scripts share a number
                return 255
            self.script_names.append(name)
        return self.script_names.index(name)


@cache
def character_table() -> CharacterTable:
    """Return the table shared by the whole process; character properties are the same in every corpus."""
    return CharacterTable()

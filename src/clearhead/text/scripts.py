"""Scripts of letters, from their Unicode names; character ranges of the scripts without spaces between words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
_SCRIPTS = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "KATAKANA-HIRAGANA": "KATAKANA", "HENTAIGANA": "HIRAGANA"}
"""First words of Unicode names that differ from the name of the script."""

_CHINESE_AND_JAPANESE = {
    "HAN": "\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u31c0-\u31ef\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "HIRAGANA": "\u3040-\u309f\U0001b000-\U0001b16f",
    "KATAKANA": "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001afff",
    "BOPOMOFO": "\u3100-\u312f\u31a0-\u31bf",
}
_OTHERS_WITHOUT_SPACES = {
    "THAI": "\u0e00-\u0e7f",
    "LAO": "\u0e80-\u0eff",
    "TIBETAN": "\u0f00-\u0fff",
    "MYANMAR": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\U000116d0-\U000116ff",
    "KHMER": "\u1780-\u17ff\u19e0-\u19ff",
}
CHINESE_AND_JAPANESE = frozenset(_CHINESE_AND_JAPANESE)
"""Scripts without spaces between sentences either; a line may be broken between any two of their letters."""
WITHOUT_SPACES = CHINESE_AND_JAPANESE.union(_OTHERS_WITHOUT_SPACES)
"""Scripts without spaces between words."""
CHINESE_AND_JAPANESE_LETTERS = "".join(_CHINESE_AND_JAPANESE.values())
"""Ranges of the characters of `CHINESE_AND_JAPANESE`, for a set in a regular expression."""
LETTERS_WITHOUT_SPACES = CHINESE_AND_JAPANESE_LETTERS + "".join(_OTHERS_WITHOUT_SPACES.values())
"""Ranges of the characters of `WITHOUT_SPACES`."""
CHINESE_AND_JAPANESE_MARKS = "\u3001-\u303f\uff00-\uff65"
"""Ranges of the punctuation of Chinese and Japanese, and of the full-width forms."""


@lru_cache(maxsize=10_000)  # a text repeats few letters
def script_of(letter: str) -> str | None:
    """Return the script of a letter, from its Unicode name, such as `LATIN`; None for other characters.

    >>> script_of("ß"), script_of("語"), script_of("カ"), script_of("ﾊ"), script_of("7")
    ('LATIN', 'HAN', 'KATAKANA', 'KATAKANA', None)
    """
    if unicodedata.category(letter)[0] != "L":
        return None
    words = unicodedata.name(letter, "UNNAMED").split()
    first = words[1] if words[0] in _WIDTHS else words[0]
    return _SCRIPTS.get(first, first)


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """Return the number of letters of each script in the texts.

    >>> count_scripts(["Пётр I."])
    Counter({'CYRILLIC': 4, 'LATIN': 1})
    """
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if script := script_of(character):
            scripts[script] += count
    return scripts

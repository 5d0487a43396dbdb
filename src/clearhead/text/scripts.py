"""Scripts of letters, derived from their Unicode names."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
_SCRIPTS = {"CJK": "HAN", "KATAKANA-HIRAGANA": "KATAKANA", "IDEOGRAPHIC": "HAN"}
"""First words of Unicode names that differ from the name of the script."""


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

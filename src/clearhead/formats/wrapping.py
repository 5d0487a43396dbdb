"""Wrapping of text to a width or a number of lines, joining of lines, and the width of a text in columns.

Width is measured in terminal columns: a wide character, such as those of Chinese and Japanese, has two.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise

from clearhead.text.languages import CHINESE_AND_JAPANESE_LETTERS

_IN_ROWS = CHINESE_AND_JAPANESE_LETTERS
_OPENING = "「『（【《〈｢"
_CLOSING = "、。，．！？：；・」』）】》〉ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々\u3099\u309a｡､･｣ｰｧｨｩｪｫｬｭｮｯﾞﾟ"
_BREAK = re.compile(rf"([ \t\n]+|(?<=[{_IN_ROWS}{_CLOSING}])(?=[{_IN_ROWS}{_OPENING}])(?![{_CLOSING}]))")
"""Places where a line may end: breaking spaces, and between characters of scripts without spaces."""
_UNSPACED = re.compile(f"[{_IN_ROWS}{_OPENING}{_CLOSING}]{{2}}")


def width_of(text: str) -> int:
    """Return the width of a text in columns.

    >>> width_of("Hund"), width_of("犬です"), width_of("e\u0301")
    (4, 6, 1)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def unwrapped(lines: Sequence[str]) -> str:
    """Join lines with spaces, except between Chinese or Japanese characters.

    >>> unwrapped(["Zwei Männer", "sitzen."]), unwrapped(["犬が", "走る。"])
    ('Zwei Männer sitzen.', '犬が走る。')
    """
    gaps = [gap_between(before, after) for before, after in pairwise(lines)]
    return "".join(chain.from_iterable(zip(lines, [*gaps, ""], strict=False)))


def gap_between(before: str, after: str) -> str:
    """Return what joins two lines: nothing between Chinese or Japanese characters, otherwise a space.

    >>> gap_between("a", "b"), gap_between("犬が", "走る"), gap_between("", "走る")
    (' ', '', ' ')
    """
    return "" if _UNSPACED.fullmatch(before[-1:] + after[:1]) else " "


def wrapped(text: str, width: int, *, first: int = 0) -> list[str]:
    """Wrap a text to a maximum width; a longer word gets a line of its own.

    Args:
        text: Any text.
        width: Maximum width of a line, in columns.
        first: Number of columns by which the first line is shorter.

    >>> wrapped("Zwei Männer sitzen auf einer Bank.", 12)
    ['Zwei Männer', 'sitzen auf', 'einer Bank.']
    >>> wrapped("犬が走る。猫です。", 8)
    ['犬が走', 'る。猫で', 'す。']
    """
    return _lines(list(_words(text, width_of)), width, first)


def balanced(text: str, count: int, *, width: Callable[[str], int] = width_of) -> list[str]:
    """Wrap a text to at most `count` lines, so that the longest line is as short as possible.

    Args:
        text: Any text.
        count: Maximum number of lines.
        width: Returns the width of a text in columns; it may leave out markup.

    >>> balanced("Zwei Männer sitzen auf einer Bank.", 2)
    ['Zwei Männer sitzen', 'auf einer Bank.']
    """
    words = list(_words(text, width))
    narrow = max(columns for _, _, columns in words)
    widths = range(narrow, max(narrow, width(text)))
    return _lines(words, narrow + bisect_left(widths, True, key=lambda width: len(_lines(words, width)) <= count))


def _lines(words: Iterable[tuple[str, str, int]], width: int, first: int = 0) -> list[str]:
    lines: list[list[str]] = [[]]  # joined at the end, because a line grows by copies otherwise
    room = width - first
    for gap, word, columns in words:
        if lines[-1] and len(gap) + columns > room:
            lines.append([])
            room = width
        if lines[-1]:
            lines[-1].append(gap)
            room -= len(gap)
        if word:
            lines[-1].append(word)
        room -= columns
    return ["".join(line) for line in lines]


def _words(text: str, width: Callable[[str], int]) -> Iterator[tuple[str, str, int]]:
    """Yield each unbreakable part of a text, with the gap before it and its width in columns."""
    parts = ["", *_BREAK.split(text.strip())]
    for gap, word in zip(parts[::2], parts[1::2], strict=True):
        yield " " if gap else "", word, width(word)

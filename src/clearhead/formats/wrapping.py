"""A text on several lines: of a given width, or on so many that are about equally long.

Width counts columns, as of a terminal: a wide character, such as those of Chinese and Japanese, has two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

__all__ = ["balanced", "unwrapped", "width_of", "wrapped"]

_IN_ROWS = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # Chinese and Japanese; Korean has spaces
_OPENING, _CLOSING = "「『（【《〈", "、。，．！？：；・」』）】》〉ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々"
_BREAK = re.compile(rf"([ \t\n]+|(?<=[{_IN_ROWS}{_CLOSING}])(?=[{_IN_ROWS}{_OPENING}])(?![{_CLOSING}]))")
"""Where a line may end: at spaces that break, and between characters that are written without any."""
_UNSPACED = re.compile(f"[{_IN_ROWS}{_OPENING}{_CLOSING}]{{2}}")


def width_of(text: str) -> int:
    """Return how many columns a text takes.

    >>> width_of("Hund"), width_of("犬です"), width_of("e\u0301")
    (4, 6, 1)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def unwrapped(lines: Sequence[str]) -> str:
    """Return lines as one, with a space between them but where Chinese and Japanese have none.

    >>> unwrapped(["Zwei Männer", "sitzen."]), unwrapped(["犬が", "走る。"])
    ('Zwei Männer sitzen.', '犬が走る。')
    """
    gaps = ["" if _UNSPACED.fullmatch(before[-1:] + after[:1]) else " " for before, after in pairwise(lines)]
    return "".join(chain.from_iterable(zip(lines, [*gaps, ""], strict=True)))


def wrapped(text: str, width: int, *, first: int = 0) -> list[str]:
    """Return a text on lines of at most some width; a word that is longer has a line of its own.

    Args:
        text: Any text.
        width: Columns of a line.
        first: Columns that the first line has less.

    >>> wrapped("Zwei Männer sitzen auf einer Bank.", 12)
    ['Zwei Männer', 'sitzen auf', 'einer Bank.']
    >>> wrapped("犬が走る。猫です。", 8)
    ['犬が走', 'る。猫で', 'す。']
    """
    lines, room = [""], width - first
    for gap, word, columns in _words(text):
        if lines[-1] and len(gap) + columns > room:
            lines.append("")
            room = width
        if lines[-1]:
            lines[-1] += gap
            room -= len(gap)
        lines[-1] += word
        room -= columns
    return lines


def balanced(text: str, count: int) -> list[str]:
    """Return a text on at most so many lines, the longest of which is as short as it can be.

    >>> balanced("Zwei Männer sitzen auf einer Bank.", 2)
    ['Zwei Männer sitzen', 'auf einer Bank.']
    """
    narrow = max((columns for _, _, columns in _words(text)), default=0)
    wide = max(narrow, width_of(text))
    while narrow < wide:
        middle = (narrow + wide) // 2
        if len(wrapped(text, middle)) <= count:
            wide = middle
        else:
            narrow = middle + 1
    return wrapped(text, wide)


def _words(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield every part of a text that stays on one line, with the gap before it and the columns it takes."""
    parts = ["", *_BREAK.split(text.strip())]
    for gap, word in zip(parts[::2], parts[1::2], strict=True):
        yield " " if gap else "", word, width_of(word)

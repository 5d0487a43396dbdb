"""Lines: their ends, shortened ones, and control characters escaped for a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

WHITE_SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Ranges of the characters of `str.isspace`, for a set in a pattern of JavaScript, whose own `\\s` is another."""
LINE_ENDS = r"\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
"""Ranges of the characters that end a line for `str.splitlines`, likewise."""

_OF_FILES = re.compile(r"\r\n|\n|\r")
LINE_BREAK = re.compile(r"[\n\v\f\r\x85\u2028\u2029]")
"""A line end of any kind."""


def on_one_line(text: str) -> str:
    r"""Return a text with line ends of every kind replaced by spaces.

    >>> on_one_line("one\u2028two\n")
    'one two '
    """
    return LINE_BREAK.sub(" ", text)


def segment_on_one_line(text: str) -> str:
    r"""Return a text with each line end of a file replaced by a space; a segment of a corpus is always a single line.

    Form feeds and the separators of Unicode are text, as in a file of lines (`files.streams.read_lines`).

    >>> segment_on_one_line("one\r\ntwo\u2028\n")
    'one two\u2028 '
    """
    return _OF_FILES.sub(" ", text) if "\n" in text or "\r" in text else text


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters; a longer one ends in an ellipsis.

    >>> shortened("Zwei Männer", 11), shortened("Zwei Männer", 6)
    ('Zwei Männer', 'Zwei …')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def percent(share: float) -> int:
    """Return a share as a percentage, rounded down, so that only a whole is 100.

    >>> percent(0.58), percent(0.9999)
    (58, 99)
    """
    return int(share * 100 + 1e-9)  # 0.58 * 100 is below 58


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    r"""Return the first texts of a list, and the number of the others.

    Args:
        texts: The texts.
        most: Number of texts shown.
        separator: Text between them, and before the number unless it is a comma.

    >>> first_few(["a", "b", "c"], 2), first_few(["a", "b", "c"], 1, "; ")
    ('a, b and 1 more', 'a; and 2 more')
    """
    more = f"{' ' if separator == ', ' else separator}and {len(texts) - most:,} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


# Line feeds and tabs lay out a message; the marks of direction at the end can reverse what is shown.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""Return a text with its control characters as escape sequences of Python, except line feeds and tabs.

    >>> for_terminal("\x1b[2Jé.txt is\n\u202ecut off")
    '\\x1b[2Jé.txt is\n\\u202ecut off'
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)

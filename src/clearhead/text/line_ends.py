"""Replace line ends by spaces: line ends of every kind, or only the line ends of files."""

from __future__ import annotations

import re

_OF_FILES = re.compile(r"\r\n|\n|\r")
_OF_UNICODE = re.compile("[\n\v\f\r\x85\u2028\u2029]")


def on_one_line(text: str) -> str:
    r"""Return a text with line ends of every kind replaced by spaces.

    >>> on_one_line("one\u2028two\n")
    'one two '
    """
    return _OF_UNICODE.sub(" ", text)


def segment_on_one_line(text: str) -> str:
    r"""Return a text with each line end of a file replaced by a space; a segment of a corpus is always a single line.

    Form feeds and the separators of Unicode are text, as in a file of lines (`files.streams.read_lines`).

    >>> segment_on_one_line("one\r\ntwo\u2028\n")
    'one two\u2028 '
    """
    return _OF_FILES.sub(" ", text) if "\n" in text or "\r" in text else text

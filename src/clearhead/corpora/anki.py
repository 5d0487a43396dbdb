"""Anki's exports ("Notes in Plain Text"): lines that say how the table is written stand before it.

See https://docs.ankiweb.net/importing/text-files.html#file-headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from clearhead.corpora.rows import SEPARATOR_NAMES, TableFormat

__all__ = ["anki_format", "text_of_html"]

HEADER = re.compile(
    r"#(separator|html|columns|tags|notetype|deck|guid|if matches|(?:tags|notetype|deck|guid) column):(.*)"
)
SEPARATORS = {name: sign for sign, name in SEPARATOR_NAMES.items()}
MEDIA = re.compile(r"\[sound:[^\]]*\]")
"""What Anki writes where a card plays a file."""
LINE_BREAKS = {"br", "dd", "div", "dt", "h1", "h2", "h3", "hr", "li", "ol", "p", "pre", "table", "td", "th", "tr", "ul"}
UNSPOKEN = {"script", "style"}


def anki_format(head: Sequence[str]) -> TableFormat | None:
    """Return how a table is written that Anki exported; None if the first lines are not Anki's.

    Args:
        head: The first lines of the file.
    """
    said: dict[str, str] = {}
    for line in head:
        match = HEADER.fullmatch(line)
        if match is None:
            break
        said[match[1]] = match[2].strip()
    if not said:
        return None
    separator = said.get("separator", "tab")
    separator = SEPARATORS.get(separator.lower(), "\t" if separator == r"\t" else separator[:1] or "\t")
    name = f"exported from Anki, {SEPARATOR_NAMES.get(separator, repr(separator))}-separated"
    is_html = said.get("html") == "true"
    return TableFormat(
        f"{name}, HTML removed" if is_html else name,
        separator,
        is_quoted=True,
        is_html=is_html,
        num_preamble=len(said),
        names=tuple(said["columns"].split(separator)) if said.get("columns") else (),
        other_columns=frozenset(
            int(value) - 1 for key, value in said.items() if key.endswith(" column") and value.isdecimal()
        ),
    )


def text_of_html(html: str) -> str:
    """Return what a reader sees: without tags and references to sounds, character references resolved, on one line.

    >>> text_of_html("<div>Ich <b>geh</b>e&nbsp;&amp; <br>komme.</div>[sound:ich_gehe.mp3]")
    'Ich gehe & komme.'
    """
    html = MEDIA.sub("", html)
    if "<" in html or "&" in html:
        parser = _TextParser()
        parser.feed(html)
        parser.close()
        html = "".join(parser.parts)
    return " ".join(html.split())


class _TextParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._unspoken = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._unspoken += tag in UNSPOKEN
        if tag in LINE_BREAKS:
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._unspoken = max(0, self._unspoken - (tag in UNSPOKEN))
        if tag in LINE_BREAKS:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._unspoken:
            self.parts.append(data)

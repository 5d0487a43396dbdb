"""Anki exports ("Notes in Plain Text"): header lines that describe the table, and text from HTML cells.

See https://docs.ankiweb.net/importing/text-files.html#file-headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clearhead.formats.html.references import resolved
from clearhead.formats.tables.rows import SEPARATOR_NAMES, TableFormat

HEADER = re.compile(
    r"#(separator|html|columns|tags|notetype|deck|guid|if matches|(?:tags|notetype|deck|guid) column):(.*)"
)
_NUMBER = re.compile("[0-9]{1,6}")
SEPARATORS = {name: sign for sign, name in SEPARATOR_NAMES.items()}
MEDIA = re.compile(r"\[sound:[^\]]{0,300}\]")
"""Reference to a sound file that the card plays."""
TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*+)[^<>]*+>")
DECLARATION = re.compile(r"<[!?][^>]*>?")
"""Declarations and processing instructions, which browsers skip as they skip comments."""
LINE_BREAKS = {"br", "dd", "div", "dt", "h1", "h2", "h3", "hr", "li", "ol", "p", "pre", "table", "td", "th", "tr", "ul"}
UNSPOKEN = {"script", "style"}


def anki_format(head: Sequence[str]) -> TableFormat | None:
    """Return the format of a table exported from Anki; None if the file does not begin with Anki's header lines.

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
    separator = SEPARATORS.get(separator.lower(), separator)
    if len(separator) != 1 or separator in '"\r':  # not usable as a separator; `\t` is written so
        separator = "\t"
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
            int(value) - 1 for key, value in said.items() if key.endswith(" column") and _NUMBER.fullmatch(value)
        ),
    )


def text_of_html(html: str) -> str:
    """Return the visible text of HTML, on one line: no tags or sounds, character references decoded.

    The standard library's parser is not used: it takes minutes for a crafted cell, and raises AssertionError for markup
    of word processors (`<![if x]>`). Every step here takes time linear in the length of the text.

    >>> text_of_html("<div>Ich <b>geh</b>e&nbsp;&amp; <br>komme.</div>[sound:ich_gehe.mp3]")
    'Ich gehe & komme.'
    """
    start, *rest = MEDIA.sub("", html).split("<!--")
    html = DECLARATION.sub("", start + "".join(comment.partition("-->")[2] for comment in rest))
    parts: list[str] = []
    end, unspoken = 0, None
    for tag in TAG.finditer(html):
        is_end, name = bool(tag[1]), tag[2].lower()
        if unspoken is None:
            parts += (html[end : tag.start()], " " if name in LINE_BREAKS else "")
            unspoken = name if name in UNSPOKEN and not is_end else None
        elif is_end and name == unspoken:
            unspoken = None
        end = tag.end()
    if unspoken is None:
        parts.append(html[end:])
    return " ".join(resolved("".join(parts)).split())

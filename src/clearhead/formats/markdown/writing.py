"""Writing a translation as the simplest Markdown that is parsed as intended, found by trial."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from markdown_it import MarkdownIt

from clearhead.formats.markdown.containers import containers_plugin
from clearhead.formats.markdown.inline import InlineEvent, scanned

BLOCKS = MarkdownIt("commonmark").enable("table").use(containers_plugin)
"""Parser for block structure; inline content is left unparsed."""
BLOCKS.core.ruler.disable(["inline", "text_join"])

_FRAMES = {
    "paragraph": "{}",
    "definition": ": {}",
    "heading": "# {}",
    "underlined": "{}\n---",
    "cell": "| {} |\n| --- |",
    "description": "![{}](x)",
    "quoted": '=== "{}"',
    "label": ":::x[{}]",
    "words": ":::x {}",
    "own": ":::{card} {}",
    "block": "/// x | {}",
}
"""Template of each kind of block; the last ones are titles, see `containers`."""

# Amount of escaping, and form of emphasis; the simplest manner first.
_MANNERS = (
    ("none", "own"),
    ("start", "own"),
    ("all", "own"),
    ("all", "star"),
    ("all", "html"),
    ("every", "own"),
    ("every", "html"),
)

_LINE_START = re.compile(r"([#>+*=|:~-])|([0-9]{1,9})([.)])")
# A star between spaces, or an underscore within a word, needs no escape.
_SPECIAL = re.compile(
    r"[\\`\[\]|{~]|\*(?!\s)|(?<!\s)\*|_(?![^\W_])|(?<![^\W_])_|<(?=[a-zA-Z/!?])|&(?=[#a-zA-Z])|#(?=#*\s*$)"
)
# Marks with an escape of their own in a kind of block; a full stop needs one only in the number of a list.
_OTHERWISE = {"cell": frozenset("|\\."), "description": frozenset("`."), "underlined": frozenset("|.")}
_EVERY = re.compile(f"[{re.escape(string.punctuation)}]")
_PIPE = re.compile(r"\\?\|")
_STARS = {"_": "*", "__": "**"}
_ELEMENTS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~": "del", "~~": "del"}


class MarkdownPart(NamedTuple):
    """Words of a translation, or markup in it."""

    form: str
    """Form, see `InlineEvent`."""
    text: str
    """Words without escapes, or the markup as in the text of the block."""
    in_file: str = ""
    """The markup as in the file, where lines may begin with prefixes of enclosing blocks."""


class Surroundings(NamedTuple):
    """Context of a translation."""

    kind: str
    """`paragraph`, `definition` (behind a mark on its line), `heading`, `underlined` (a heading too), `cell`,
    `description` (of an image), or a title."""
    before: str
    """Text of the block before the translation."""
    behind: str
    meaning_before: Sequence[tuple[str, str]]
    """Parsed content of `before`, see `meaning`."""
    meaning_behind: Sequence[tuple[str, str]]
    is_label: Callable[[str], bool]
    """Returns whether a label has a link reference definition, see `scanned`."""
    escaped: frozenset[str] = frozenset()
    """Punctuation marks that the source escapes, which have a meaning in the program that it is written for."""


def meaning(events: Iterable[InlineEvent], text: str) -> list[tuple[str, str]]:
    """Return the content of a parsed text: words, and for markup its form and source text.

    Tags of HTML and templates have the form `tag`, because the same one may be parsed as part of a pair or alone.
    """
    return [
        # An address is the same whether its characters are parsed as words or as markup.
        ("words", (event.form == "words" and event.words) or text[event.start : event.end])
        if event.form == "words" or (event.form == "alone" and text[event.start] == "h")
        else ("tag" if text[event.start] in "<{" else event.form, text[event.start : event.end])
        for event in events
    ]


def escapes(events: Iterable[InlineEvent], text: str) -> frozenset[str]:
    """Return the punctuation marks that a text escapes with a backslash, or, of those of MDX, with a reference."""
    signs = ((event.words, text[event.start]) for event in events if event.form == "words")
    return frozenset(word for word, first in signs if (first == "\\" or (first == "&" and word in "{}<>")) and word)


def written(parts: Sequence[MarkdownPart], around: Surroundings, habits: Mapping[int, str]) -> str | None:
    """Return the Markdown of a translation, for insertion into the file; None if no manner of writing is read back.

    Args:
        parts: Words and markup of the translation.
        around: Context of the translation.
        habits: Character references that the file uses, see `references.habits`.
    """
    following = [*(part.text for part in parts[1:]), around.behind][: len(parts)]
    for escape, marks in _MANNERS:
        in_block, in_file = [around.before], []
        meant = list(around.meaning_before)
        for part, behind in zip(parts, following, strict=True):
            if part.form == "words":
                words = _escaped(part.text, escape, in_block[-1], behind, around).translate(habits)
                pair = words, words
                meant.append(("words", part.text))
            else:
                marked = _marked(part, marks)
                pair = (marked, marked) if marked is not None else (part.text, part.in_file)
                meant += meaning([InlineEvent(part.form, 0, len(pair[0]))], pair[0])
            in_block.append(pair[0])
            in_file.append(pair[1])
        meant += around.meaning_behind
        if _is_read("".join([*in_block, around.behind]), meant, around):
            return "".join(in_file)
    return None


def _escaped(words: str, escape: str, before: str, behind: str, around: Surroundings) -> str:
    """Return words with escapes.

    Args:
        words: Words without escapes.
        escape: Amount of escaping, see `_MANNERS`.
        before: What precedes them in the block.
        behind: What follows them.
        around: Context of the translation.
    """
    kind = around.kind
    # At markup, whatever the amount: `!` makes a link an image, and parsers differ on the others.
    first = "(" if words.startswith("(") and before.endswith("]") else ""
    is_joined = (words.endswith("!") and behind.startswith("[")) or (words.endswith("\\") and behind != "")
    last = words[-1] if is_joined and len(words) > len(first) else ""
    words = words[len(first) : len(words) - len(last)]
    if escape == "every":
        words = _EVERY.sub(r"\\\g<0>", words)
    else:
        words = _special(escape == "all", around.escaped - _OTHERWISE.get(kind, frozenset("."))).sub(r"\\\g<0>", words)
        if kind == "cell" and escape != "all":
            words = _PIPE.sub(r"\\|", words)
    if escape in ("start", "all") and before[-1:] in ("", "\n") and (match := _LINE_START.match(words)):
        at = match.start(3) if match[3] else 0
        words = f"{words[:at]}\\{words[at:]}"
    # A backslash does not help in code that a backtick before the image would begin, nor above `---`, which makes
    # even a line with an escaped `|` the head of a table.
    if kind == "description":
        words = words.replace("\\`", "`").replace("`", "&#96;")
    elif kind == "underlined" and escape in ("all", "every"):
        words = words.replace(r"\|", "&#124;")
    return "".join(f"\\{edge}" for edge in first) + words + "".join(f"\\{edge}" for edge in last)


@cache
def _special(are_all: bool, escaped: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of what is escaped: marks that the source escapes, and perhaps all that have a meaning."""
    own = [f"[{re.escape(''.join(sorted(escaped)))}]"] if escaped else []
    return re.compile("|".join([*own, *([_SPECIAL.pattern] if are_all else [])]) or r"(?!)")


def _marked(part: MarkdownPart, marks: str) -> str | None:
    """Return the markup in another notation than the file's; None if this manner does not change it."""
    if marks == "star":
        return _STARS.get(part.text)
    if marks == "html" and part.form != "alone" and part.text in _ELEMENTS:
        return f"<{'/' if part.form == 'close' else ''}{_ELEMENTS[part.text]}>"
    if marks == "html" and part.form == "alone" and part.text.endswith("\n"):
        return "<br>"
    return None


def _is_read(text: str, meant: Sequence[tuple[str, str]], around: Surroundings) -> bool:
    """Return whether a text is parsed as one block of its kind with the intended content."""
    if _joined(meaning(scanned(text, around.is_label).events, text)) != _joined(meant):
        return False
    framed = _FRAMES[around.kind].replace("{}", text)
    if around.kind == "description":
        event = scanned(framed, around.is_label).events[0]
        return (event.form, event.end) == ("alone", len(framed))
    blocks = BLOCKS.parse(framed)
    if blocks and blocks[0].type == "container":
        return (blocks[0].info, blocks[0].content) == (around.kind, text)
    inline = [token.content for token in blocks if token.type == "inline"]
    tags = {token.tag for token in blocks if token.tag} - {"table", "thead", "tr"}
    expected = {"paragraph": "p", "definition": "p", "cell": "th", "heading": "h1"}.get(around.kind, "h2")
    content = {"cell": text.replace(r"\|", "|"), "definition": framed}.get(around.kind, text)
    return inline == [content] and tags == {expected}


def _joined(pieces: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    for is_words, group in groupby(pieces, key=lambda piece: piece[0] == "words"):
        together = list(group)
        joined += [("words", "".join(text for _, text in together))] if is_words else together
    return joined

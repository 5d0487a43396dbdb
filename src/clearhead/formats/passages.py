"""Passages: ranges of a file's text that form segments of words and inline markup, and their replacement."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from clearhead.formats.document import Filling
from clearhead.formats.inline_tags import Tag, repaired_tags, tokens
from clearhead.formats.wrapping import gap_between

_SPACES = re.compile(r"[ \t]+")

Change = tuple[int, int, str]
"""Start, end and new text of a replaced range of a text."""


@dataclass(frozen=True, slots=True)
class Element:
    """The part of the file behind a numbered tag. Positions count characters of the file's text."""

    opening: tuple[int, int] | str
    """Start and end of a pair's opening tag or of a standalone element; or, as a string, words of the text that look
    like a numbered tag."""
    closing: tuple[int, int] | None = None
    """Start and end of a pair's closing tag."""
    is_link: bool = False
    """Whether it is a pair that is a link, and must not be inside another link."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A range of a file's text that is a segment."""

    start: int
    end: int
    text: str
    """The segment's text, see `DocumentSegment.text`."""
    elements: tuple[Element, ...] = ()
    """Elements of the numbered tags; number 1 is the first."""
    kind: str = "text"
    """Kind of passage, from which the format chooses how to write it."""

    def tokens_of(self, translation: str) -> list[str | Tag]:
        """Return the words and tags of a translation, repaired so that each tag of the passage comes once."""
        return tokens(repaired_tags(translation, self.text, self.links)[0])

    @property
    def links(self) -> frozenset[int]:
        """Numbers of the pairs of tags that are links."""
        return frozenset(number for number, element in enumerate(self.elements, start=1) if element.is_link)


@dataclass(slots=True, eq=False)
class _Item:
    """A piece of a run, words or markup, with its position in the file."""

    form: str  # a form of Tag, or `words`
    start: int
    end: int
    words: str = ""  # of a tag of a pair: the pair's name
    is_seen: bool = False  # whether it is visible to a reader of the file
    partner: _Item | None = None  # the other tag of a pair
    number: int = 0  # number of the pair that it opens
    is_link: bool = False
    is_line_end: bool = False  # whether it is a line end that the file's readers see as a space or as nothing


class Run:
    """Collects the content between two block boundaries, in file order, and builds a passage from it."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def words(self, words: str, start: int, end: int) -> None:
        """Add words in decoded form; white space that could be at an edge of the segment must be added separately."""
        if words:
            self._items.append(_Item("words", start, end, words, not words.isspace()))

    def line_end(self, start: int, end: int) -> None:
        """Add a line end between words, with the white space around it."""
        self._items.append(_Item("words", start, end, " ", is_line_end=True))

    def alone(self, start: int, end: int, *, is_seen: bool) -> None:
        """Add a standalone element; an invisible one at an edge is left out of the segment."""
        last = self._items[-1] if self._items else None
        if not is_seen and last is not None and last.form == "alone" and not last.is_seen and last.end == start:
            last.end = end
            return
        self._items.append(_Item("alone", start, end, is_seen=is_seen))

    def opening(self, name: str, start: int, end: int, *, is_seen: bool = False, is_link: bool = False) -> None:
        """Add the opening tag of a named pair; a visible pair around the whole segment is kept in the segment."""
        self._items.append(_Item("open", start, end, name, is_seen, is_link=is_link))

    def closing(self, name: str, start: int, end: int) -> None:
        """Add the closing tag of a named pair."""
        self._items.append(_Item("close", start, end, name))

    def passage(
        self, kind: str = "text", *, is_text: Callable[[str], bool] = lambda words: any(map(str.isalpha, words))
    ) -> Passage | None:
        """Return the collected content as a passage, without non-text at its edges.

        Args:
            kind: See `Passage.kind`.
            is_text: Returns whether words make it a passage; by default, whether they have a letter.

        Returns:
            None if none of its words make it a passage.
        """
        if not any(item.form == "words" and is_text(item.words) for item in self._items):
            return None
        _join_lines(self._items)
        items = _trimmed(_without_empty_pairs(_paired(self._items)))
        parts: list[str] = []
        elements: list[Element] = []
        for form, group in groupby(items, key=lambda item: item.form):
            if form == "words":
                for token in tokens(_SPACES.sub(" ", "".join(item.words for item in group))):
                    if isinstance(token, Tag):
                        elements.append(Element(str(token)))
                        token = Tag("alone", len(elements))
                    parts.append(str(token))
                continue
            for item in group:
                if item.form == "close":
                    assert item.partner is not None
                    number = item.partner.number
                    is_link = item.partner.is_link
                    elements[number - 1] = Element(elements[number - 1].opening, (item.start, item.end), is_link)
                else:
                    elements.append(Element((item.start, item.end)))
                    number = item.number = len(elements)
                parts.append(str(Tag(item.form, number)))
        return Passage(items[0].start, items[-1].end, "".join(parts), tuple(elements), kind)


def _join_lines(items: Iterable[_Item]) -> None:
    """Choose the words of each line end from the characters before and after it, on whatever side of tags they are."""
    before, line_ends = "", list[_Item]()
    for item in items:
        if item.is_line_end:
            line_ends.append(item)
        elif item.form == "words" or item.is_seen:
            after = item.words if item.form == "words" else ""
            for line_end in line_ends:
                line_end.words = gap_between(before, after)
            before, line_ends = after, []


def _paired(items: Iterable[_Item]) -> list[_Item]:
    """Link matching tags as partners; tags without a partner, or that cross others, become standalone."""
    items = list(items)
    stack: list[_Item] = []
    num_open: Counter[str] = Counter()
    for item in items:
        if item.form == "open":
            stack.append(item)
            num_open[item.words] += 1
        elif item.form == "close":
            if not num_open[item.words]:
                item.form = "alone"
                continue
            while True:
                opening = stack.pop()
                num_open[opening.words] -= 1
                if opening.words == item.words:
                    break
                opening.form = "alone"
            opening.partner, item.partner = item, opening
    for item in stack:
        item.form = "alone"
    return items


def _without_empty_pairs(items: Iterable[_Item]) -> list[_Item]:
    """Replace each pair with no visible content, such as a link target, by one standalone element."""
    kept: list[_Item] = []
    begun: list[tuple[int, int]] = []  # for each open pair: its index in `kept`, and `num_seen` at its start
    num_seen = 0
    for item in items:
        if item.form == "open":
            begun.append((len(kept), num_seen))
        elif item.form == "close":
            place, num_before = begun.pop()
            if num_seen == num_before:
                item = _Item("alone", kept[place].start, item.end)
                del kept[place:]
        num_seen += item.is_seen
        kept.append(item)
    return kept


def _trimmed(items: list[_Item]) -> list[_Item]:
    """Remove invisible items and enclosing pairs from both ends."""
    first, last = 0, len(items) - 1
    while True:
        if items[first].form in ("words", "alone") and not items[first].is_seen:
            first += 1
        elif items[last].form in ("words", "alone") and not items[last].is_seen:
            last -= 1
        elif items[first].partner is items[last] and not items[first].is_seen:
            first, last = first + 1, last - 1
        else:
            return items[first : last + 1]


def changes(
    text: str,
    passages: Sequence[Passage],
    fillings: Sequence[Filling | None],
    write: Callable[[Passage, str, Callable[[tuple[int, int]], str]], str],
) -> list[Change]:
    """Return the replacements that insert the translations into a text, in order.

    Args:
        text: The whole text of the file.
        passages: Passages of the text; they may be nested, such as an attribute within the tag of an element.
        fillings: One per passage; None leaves a passage unchanged, and so does its own text.
        write: Returns the file's text for a passage and its translation. Its last argument is a function that returns
            the text of a range of the file, with the translations of passages in that range inserted.
    """
    done: list[Change] = []
    for index in sorted(range(len(passages)), key=lambda index: (passages[index].end, -passages[index].start)):
        passage = passages[index]
        if (filling := fillings[index]) is None or filling.text == passage.text:
            continue
        inner: list[Change] = []
        while done and done[-1][0] >= passage.start:
            inner.append(done.pop())
        inner.reverse()
        done.append((passage.start, passage.end, write(passage, filling.text, partial(_changed, text, inner))))
    return done


def _changed(text: str, done: Sequence[Change], place: tuple[int, int]) -> str:
    """Return the text of a range, with the replacements in it made."""
    at, end = place
    parts = []
    for index in range(bisect_left(done, (at,)), len(done)):
        start, behind, replacement = done[index]
        if start >= end:
            break
        parts += [text[at:start], replacement]
        at = behind
    return "".join([*parts, text[at:end]])

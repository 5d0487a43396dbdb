"""Places of a file's text that are segments: made of words and markup in their order, and replaced by translations."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from clearhead.formats.document import Filling
from clearhead.formats.inline_tags import Tag, tokens

__all__ = ["Change", "Element", "Passage", "Run", "changes"]

_SPACES = re.compile(r"[ \t]+")

Change = tuple[int, int, str]
"""Where a place of a text begins and ends, and what it is to have instead."""


@dataclass(frozen=True, slots=True)
class Element:
    """What of the file a numbered tag stands for. Positions count characters of the file's text."""

    opening: tuple[int, int] | str
    """Where the first tag of a pair, or what stands alone, begins and ends; or words of the text that look like a tag
    of ours."""
    closing: tuple[int, int] | None = None
    """The second tag of a pair."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A place of a file's text that is a segment."""

    start: int
    end: int
    text: str
    """As `Segment.text`."""
    elements: tuple[Element, ...] = ()
    """By number, from 1."""
    kind: str = "text"
    """Tells the format how to write it."""


@dataclass(slots=True, eq=False)
class _Item:
    """A piece of a run: words, or markup, with where it stands in the file."""

    form: str  # as of Tag, or `words`
    start: int
    end: int
    words: str = ""  # or the name of a pair
    is_seen: bool = False  # whether a reader of the file sees something there
    partner: _Item | None = None  # the other tag of a pair
    number: int = 0  # of the pair that it begins


class Run:
    """Gathers what stands between two borders of blocks, in the order of the file, and makes a passage of it."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def words(self, words: str, start: int, end: int) -> None:
        """Add words as a reader sees them; white space that may end up at an edge is to be added by itself."""
        if words:
            self._items.append(_Item("words", start, end, words, not words.isspace()))

    def alone(self, start: int, end: int, *, is_seen: bool) -> None:
        """Add markup that stands alone; at the edges, what is not seen stays outside of the segment."""
        last = self._items[-1] if self._items else None
        if not is_seen and last is not None and last.form == "alone" and not last.is_seen and last.end == start:
            last.end = end
            return
        self._items.append(_Item("alone", start, end, is_seen=is_seen))

    def opening(self, name: str, start: int, end: int, *, is_seen: bool = False) -> None:
        """Add a tag that begins a pair of this name; the pair stays in a segment that it is all of if it is seen."""
        self._items.append(_Item("open", start, end, name, is_seen))

    def closing(self, name: str, start: int, end: int) -> None:
        """Add a tag that ends a pair of this name."""
        self._items.append(_Item("close", start, end, name))

    def passage(self, kind: str = "text") -> Passage | None:
        """Return what was gathered, without what is no text at its edges; None if it has no letter."""
        if not any(item.form == "words" and any(map(str.isalpha, item.words)) for item in self._items):
            return None
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
                    elements[number - 1] = Element(elements[number - 1].opening, (item.start, item.end))
                else:
                    elements.append(Element((item.start, item.end)))
                    number = item.number = len(elements)
                parts.append(str(Tag(item.form, number)))
        return Passage(items[0].start, items[-1].end, "".join(parts), tuple(elements), kind)


def _paired(items: Iterable[_Item]) -> list[_Item]:
    """Make partners of the tags that belong together; those that have none, or that cross others, stand alone."""
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
    """Make one piece that stands alone of each pair in which nothing is seen, such as the target of a link."""
    kept: list[_Item] = []
    begun: list[tuple[int, int]] = []  # of the pairs: their place in `kept`, and how much had been seen before
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
    """Leave out, from both ends, what is not seen and the pairs that are around all the rest."""
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
    """Return what of a text is to be replaced so that its passages have their translations, in order.

    Args:
        text: All of the file's.
        passages: They may stand within each other: an attribute within the tag of an element, for example.
        fillings: One for every passage; None leaves it as it is.
        write: Makes the file's text of a passage and its translation; the last argument returns what stands at a place
            of the file, with the translations of what stands there.
    """
    done: list[Change] = []
    for index in sorted(range(len(passages)), key=lambda index: (passages[index].end, -passages[index].start)):
        if (filling := fillings[index]) is None:
            continue
        passage = passages[index]
        inner: list[Change] = []
        while done and done[-1][0] >= passage.start:
            inner.append(done.pop())
        inner.reverse()
        done.append((passage.start, passage.end, write(passage, filling.text, partial(_changed, text, inner))))
    return done


def _changed(text: str, done: Sequence[Change], place: tuple[int, int]) -> str:
    """Return what stands at a place, with what was done there."""
    at, end = place
    parts = []
    for start, behind, replacement in done[bisect_left(done, (at,)) :]:
        if start >= end:
            break
        parts += [text[at:start], replacement]
        at = behind
    return "".join([*parts, text[at:end]])

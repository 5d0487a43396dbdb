"""Placeholders and tags put where they belong in a translation that lacks some, for models without tokens for them.

Tags and marks go around the words that are linked with those that they stood around; a model that did not keep them is
given the text without. What stands for a word, such as `%s` or an address, is given to the model as it is; of what the
model made of it the most alike gives way to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from clearhead.text.placeholder_masking import Unit, units_of
from clearhead.text.placeholders import PLACEHOLDER
from clearhead.text.word_links import Link, Span, parts_of_words

__all__ = ["Stripped", "is_tag", "parts_with_placeholders", "strip_markup"]

_ALIKE = 0.5
"""Of `SequenceMatcher.ratio`, with `_LINKED` added for a link: from here on a placeholder is what became of another."""
_LINKED = 0.25


@dataclass(frozen=True, slots=True)
class _Mark:
    """A placeholder, or two that belong together, and where in the stripped text it stood, or stands."""

    unit: Unit
    start: int
    end: int
    """Of a pair around what is within."""
    is_kept: bool
    """Whether it stands in the stripped text."""
    spaces: tuple[bool, bool]
    """Whether white space stood before and behind it."""

    @property
    def is_pair(self) -> bool:
        return len(self.unit.texts) == 2


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without its tags and marks."""

    text: str
    marks: tuple[_Mark, ...]
    """What must be in the translation, in the order in which it begins."""
    has_lost: bool
    """Whether tags or marks were taken out, so that there are none in the translation."""

    def placed(self, translation: str, links: Sequence[Link]) -> str:
        """Return a translation with all of the markup in it, and no other; tags are well nested.

        Args:
            translation: Of the text.
            links: Between the parts (`parts_with_placeholders`) of both.
        """
        return _Placing(self, translation, links).text()


def strip_markup(text: str, *, tags: bool = True) -> Stripped:
    """Return a text without its tags and marks.

    Args:
        text: Any text.
        tags: Take them out; otherwise they are words like others.

    >>> strip_markup("Delete <b>%s</b>?").text
    'Delete %s?'
    """
    units = [unit for unit in units_of(text) if tags or not is_tag(unit.texts[0])]
    spots = sorted((start, number, end) for number, unit in enumerate(units) for end, start in enumerate(unit.starts))
    stripped, at = "", 0
    begun: dict[int, tuple[int, bool]] = {}
    marks: dict[int, _Mark] = {}
    for start, number, which in spots:
        unit = units[number]
        stripped += text[at:start]
        at = start + len(unit.texts[which])
        is_kept = not is_tag(unit.texts[which])
        before, behind = not stripped or stripped[-1].isspace(), at == len(text) or text[at].isspace()
        if which == 0:
            begun[number] = len(stripped), before
        if is_kept:
            stripped += unit.texts[which]
        elif before and behind and at < len(text):
            at += 1  # one of the two spaces
        if which == len(unit.texts) - 1:
            first, is_spaced = begun[number]
            marks[number] = _Mark(unit, first, len(stripped), is_kept, (is_spaced, behind))
    found = tuple(marks[number] for number in sorted(marks))
    return Stripped(stripped + text[at:], found, any(not mark.is_kept for mark in found))


def is_tag(placeholder: str) -> bool:
    """Tell whether a placeholder is a tag or a mark, which stands for no word."""
    return placeholder.startswith(("<", "*"))


def parts_with_placeholders(text: str) -> list[Span]:
    """Return the parts of words of a text, of which every placeholder is one.

    >>> [text_of for start, end in parts_with_placeholders("Ein %s.") if (text_of := "Ein %s."[start:end])]
    ['Ein', '%s', '.']
    """
    return list(_parts(text))


def _parts(text: str) -> Iterator[Span]:
    at = 0
    for match in PLACEHOLDER.finditer(text):
        yield from ((start + at, end + at) for start, end in parts_of_words(text[at : match.start()]))
        yield match.span()
        at = match.end()
    yield from ((start + at, end + at) for start, end in parts_of_words(text[at:]))


@dataclass(slots=True)
class _Node:
    """A mark in the translation, with what is within."""

    mark: _Mark | None
    """None for the whole text."""
    start: int
    """The first of its parts."""
    end: int
    """Behind the last of them; none is within where it is the first."""
    within: list[_Node] = field(default_factory=list)
    words: str = ""
    """What stands within where no part does."""


class _Placing:
    """The marks of one text on their way into its translation."""

    def __init__(self, stripped: Stripped, translation: str, links: Sequence[Link]) -> None:
        self._source = stripped.text
        self._translation = translation
        self._source_parts = parts_with_placeholders(stripped.text)
        self._parts = parts_with_placeholders(translation)
        self._texts = [translation[start:end] for start, end in self._parts]
        self._links = set(links)
        self._root = _Node(None, 0, len(self._parts))
        missing = self._kept(stripped)
        self._place([mark for mark in stripped.marks if not mark.is_kept or mark in missing])

    def text(self) -> str:
        """Return the translation with the marks in it."""
        first, last = (self._parts[0][0], self._parts[-1][1]) if self._parts else (len(self._translation),) * 2
        return self._translation[:first] + self._written(self._root) + self._translation[last:]

    def _kept(self, stripped: Stripped) -> set[_Mark]:
        """Put placeholders that stand for words in the places of what became of them, and return those that have none.

        Where what is left is no placeholder of the source, it goes: a program would read it.
        """
        free = [part for part, span in enumerate(self._parts) if PLACEHOLDER.fullmatch(self._translation[slice(*span)])]
        free = [part for part in free if stripped.has_lost or not is_tag(self._texts[part])]
        missing = []
        for mark in (mark for mark in stripped.marks if mark.is_kept):
            same = next((part for part in free if self._texts[part] == mark.unit.texts[0]), None)
            if same is None:
                missing.append(mark)
            else:
                free.remove(same)
        free_words = [part for part in free if not is_tag(self._texts[part])]
        choices = sorted(
            (
                (self._likeness(mark, part), -number, -part)
                for number, mark in enumerate(missing)
                for part in free_words
            ),
            reverse=True,
        )
        found: dict[int, int] = {}
        for likeness, number, part in choices:
            if likeness >= _ALIKE and -number not in found and -part not in found.values():
                found[-number] = -part
                self._texts[-part] = missing[-number].unit.texts[0]
        for part in set(free).difference(found.values()):
            self._texts[part] = ""
        return {mark for number, mark in enumerate(missing) if number not in found}

    def _likeness(self, mark: _Mark, part: int) -> float:
        alike = SequenceMatcher(None, mark.unit.texts[0], self._texts[part], autojunk=False).ratio()
        return alike + _LINKED * any((own, part) in self._links for own in self._inside(mark))

    def _place(self, marks: Sequence[_Mark]) -> None:
        """Place marks, those within a pair within what it goes around now."""
        around = [self._root]
        for mark in marks:
            while (pair := around[-1].mark) is not None and mark.unit.starts[0] > pair.unit.starts[1]:
                around.pop()
            parent = around[-1]
            start, end = self._around(mark, parent) if mark.is_pair else (self._between(mark, parent),) * 2
            node = _Node(mark, start, end)
            inner = self._source[mark.start : mark.end]
            if mark.is_pair and start == end and not re.search(r"\s", inner) and not PLACEHOLDER.search(inner):
                node.words = inner  # such as a name, which is better there than nowhere
            parent.within.append(node)
            if mark.is_pair:
                around.append(node)

    def _inside(self, mark: _Mark) -> list[int]:
        """Return the parts of the source that a mark is about."""
        return [n for n, (start, end) in enumerate(self._source_parts) if mark.start <= start and end <= mark.end]

    def _around(self, mark: _Mark, parent: _Node) -> tuple[int, int]:
        """Return the stretch of the translation that a pair goes around: most words of its own, and fewest others."""
        inside = set(self._inside(mark))
        own = {target for source, target in self._links if source in inside}
        others = {target for source, target in self._links if source not in inside} - own
        taken = {part for one in parent.within for part in range(one.start, one.end)}
        best, best_sum, start, total = None, 0, parent.start, 0
        for part in range(parent.start, parent.end):
            total += (part in own) - (part in others)
            if part in taken or total <= 0:
                start, total = part + 1, 0
            elif total > best_sum:
                best, best_sum = (start, part + 1), total
        return best or (self._between(mark, parent),) * 2

    def _between(self, mark: _Mark, parent: _Node) -> int:
        """Return before which part of the translation a mark goes without words: where it parts fewest links.

        It parts no word, such as `l'ami`, from what is written together with it, unless there is no other place.
        """
        within = {place for one in parent.within for place in range(one.start + 1, one.end)}
        places = [place for place in range(parent.start, parent.end + 1) if place not in within]
        places = [place for place in places if self._is_apart(place)] or places

        def wrong(place: int) -> int:
            before = ((self._source_parts[source][0] < mark.start, target < place) for source, target in self._links)
            return sum(one != other for one, other in before)

        return min(places, key=wrong)

    def _is_apart(self, place: int) -> bool:
        """Tell whether a word may stand before a part: at white space, within a bracket or before a full stop."""
        return self._is_edge(place) or any(
            self._is_edge(other) and not self._texts[part][:1].isalnum()
            for part, other in ((place, place + 1), (place - 1, place - 1))
        )

    def _is_edge(self, place: int) -> bool:
        return not 0 < place < len(self._parts) or bool(self._gap(place))

    def _written(self, node: _Node) -> str:
        """Return the text of a stretch, with the marks in it; the white space around it is not its own."""
        written = [node.words]
        at, has_gap = node.start, True  # whether what stands between the last part and the next is written
        for one in sorted(node.within, key=lambda one: (one.start, one.end)):
            assert one.mark is not None
            text, has_gap = self._stretch(at, one.start, has_gap)
            written.append(text)
            at = max(at, one.start)
            is_empty = one.end <= one.start
            if not has_gap and (not is_empty or one.mark.spaces[0]):
                written.append(self._gap(at) or " " * is_empty)
                has_gap = True
            texts = one.mark.unit.texts
            written.append(texts[0] + (self._written(one) + texts[1] if one.mark.is_pair else ""))
            if not is_empty:
                at, has_gap = one.end, False
            elif has_gap and at < node.end and self._is_edge(at):
                is_word = one.mark.is_kept and self._texts[at][:1].isalnum()  # two words, whatever stood there before
                written.append(" " * (one.mark.spaces[1] or is_word))
        return "".join([*written, self._stretch(at, node.end, has_gap)[0]])

    def _stretch(self, start: int, end: int, has_gap: bool) -> tuple[str, bool]:
        """Return the text of some parts with what stands between them, and whether that behind them is written."""
        written = ""
        for part in range(start, end):
            if self._texts[part]:
                written += ("" if has_gap else self._gap(part)) + self._texts[part]
                has_gap = False
        return written, has_gap

    def _gap(self, part: int) -> str:
        """Return what stands between a part and the one before it."""
        if not 0 < part < len(self._parts):
            return ""
        return self._translation[self._parts[part - 1][1] : self._parts[part][0]]

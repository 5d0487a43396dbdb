"""Markup projection: strip the tags of a text, and place them in its translation by word alignment.

For models without tokens for placeholders. Tags and marks are placed around the words linked with those that they
enclosed in the source. If the model did not keep them, it is given the text without them. Placeholders for words, such
as `%s` or an address, are given to the model unchanged; the most similar text in the translation is replaced by the
original.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate, pairwise, product

from clearhead.text.languages import WITHOUT_SPACES, script_of
from clearhead.text.placeholder_masking import Unit, units_of
from clearhead.text.placeholders import STATEMENT_SIGNS, TAG, find_placeholders, pair_role, placeholder
from clearhead.text.word_links import Link, Span, parts_of_words

_ALIKE = 0.5
"""Minimum of `SequenceMatcher.ratio`, with `_LINKED` added for a link, at which a placeholder counts as an altered form
of another."""
_LINKED = 0.25
_MOST_COMPARED = 30
"""Placeholders of each side that are compared as altered forms of each other; comparing all with all would take
quadratic time."""
_MOST_CHARACTERS = 200
"""Characters of a placeholder that are compared, for the same reason; fewer where many are compared (`_MOST_STEPS`)."""
_BESIDE_CODES = WITHOUT_SPACES | {"HANGUL"}
"""Scripts whose letters stand beside placeholders without a space: Korean has particles."""
_MOST_STEPS = 3_000_000
"""Pairs of characters that are compared for a text, about a second of work."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A placeholder or a pair of them, with its position in the stripped text."""

    unit: Unit
    start: int
    end: int
    """End of the placeholder; of a pair, end of what it encloses."""
    is_kept: bool
    """Whether it is part of the stripped text."""
    spaces: tuple[bool, bool]
    """Whether white space precedes and follows it in the text."""

    @property
    def is_pair(self) -> bool:
        return len(self.unit.texts) == 2


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text without its tags and marks, and the marks to restore."""

    text: str
    marks: tuple[_Mark, ...]
    """Markup that the translation must contain, in order of its beginning."""
    has_lost: bool
    """Whether tags or marks were removed, so that the translation has none of its own."""

    def placed(self, translation: str, links: Sequence[Link]) -> str:
        """Return a translation with all of the markup in it, and no other; tags are well nested.

        Args:
            translation: Translation of the stripped text.
            links: Links between the parts (`parts_with_placeholders`) of both texts.
        """
        return _Placing(self, translation, links).text()


def strip_markup(text: str, *, tags: bool = True) -> Stripped:
    """Return a text without its tags and marks.

    Args:
        text: Any text.
        tags: Remove them; otherwise they are treated as words.

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
    own = tuple(marks[number] for number in sorted(marks))
    return Stripped(stripped + text[at:], own, any(not mark.is_kept for mark in own))


def is_tag(placeholder: str) -> bool:
    """Return whether a placeholder is a tag, a template statement or an emphasis mark, and so replaces no word."""
    is_mark = placeholder in ("*", "**") or placeholder.startswith(STATEMENT_SIGNS)
    return is_mark or bool(TAG.fullmatch(placeholder) or pair_role(placeholder))


def parts_with_placeholders(text: str) -> list[Span]:
    """Return the spans of the words, signs and placeholders of a text.

    >>> [text_of for start, end in parts_with_placeholders("Ein %s.") if (text_of := "Ein %s."[start:end])]
    ['Ein', '%s', '.']
    """
    return list(_parts(text))


def _parts(text: str) -> Iterator[Span]:
    at = 0
    for match in find_placeholders(text):
        yield from ((start + at, end + at) for start, end in parts_of_words(text[at : match.start()]))
        yield match.span()
        at = match.end()
    yield from ((start + at, end + at) for start, end in parts_of_words(text[at:]))


MOST_DEPTH = 100
"""Maximum nesting of marks in a translation; deeper ones are placed side by side, around no words."""


@dataclass(slots=True)
class _Node:
    """A mark in the translation, with its nested marks."""

    mark: _Mark | None
    """None for the whole text."""
    start: int
    """Index of its first part."""
    end: int
    """Index after its last part; equal to `start` if it encloses none."""
    within: list[_Node] = field(default_factory=list)
    taken: list[Span] = field(default_factory=list)
    """Ranges of parts inside nested marks, in ascending order."""
    words: str = ""
    """Text inside the mark if it encloses no part."""


_Costs = tuple[int, float, int]
"""Of a range of places: sum of the changes in cost, lowest cost after a change, and the first place that has it."""


class _Places:
    """Places for a mark, with their costs: a segment tree, whose operations take logarithmic time.

    Args:
        costs: Initial cost of each place.
    """

    def __init__(self, costs: Sequence[int]) -> None:
        self._size = len(costs)
        steps = [cost - before for before, cost in zip([0, *costs], costs, strict=False)]
        self._nodes: list[_Costs] = [(0, 0, 0)] * self._size
        self._nodes += [(step, step, place) for place, step in enumerate(steps)]
        for node in reversed(range(1, self._size)):
            self._nodes[node] = _joined(self._nodes[2 * node], self._nodes[2 * node + 1])

    def add(self, first: int, cost: int) -> None:
        """Add a cost to a place and all behind it."""
        node = first + self._size
        if node < len(self._nodes):
            step = self._nodes[node][0] + cost
            self._nodes[node] = step, step, first
            while (node := node // 2) > 0:
                self._nodes[node] = _joined(self._nodes[2 * node], self._nodes[2 * node + 1])

    def cheapest(self, first: int, last: int) -> int:
        """Return the first of the places with the lowest cost, of two places and those between."""
        left, right = (0, math.inf, first), (0, math.inf, last)
        low, high = first + self._size, last + 1 + self._size
        while low < high:
            if low % 2:
                left = _joined(left, self._nodes[low])
            if high % 2:
                right = _joined(self._nodes[high - 1], right)
            low, high = (low + 1) // 2, high // 2
        return _joined(left, right)[2]


def _joined(left: _Costs, right: _Costs) -> _Costs:
    """Return the costs of two adjacent ranges of places."""
    behind = left[0] + right[1]
    return (left[0] + right[0], behind, right[2]) if behind < left[1] else (left[0] + right[0], *left[1:])


class _Written:
    """A text that is written piece by piece.

    Args:
        text: Its beginning.
        side_by_side: Placeholders that have nothing between them in the source.
    """

    def __init__(self, text: str, side_by_side: Set[tuple[str, str]]) -> None:
        self._pieces = [text]
        self._side_by_side = side_by_side
        self._code = ""
        """The placeholder that it ends with."""
        self.ends_restored = False
        """Whether it ends with something that the translation did not have there."""

    def add(self, text: str, *, is_code: bool = False, is_restored: bool = False) -> None:
        """Add a text, which may be a placeholder, and may be one that the translation did not have there."""
        if text:
            self._pieces.append(text)
            self._code = text if is_code else ""
            self.ends_restored = is_restored

    def would_stick(self, text: str, *, is_code: bool) -> bool:
        """Return whether a text needs a space before it.

        A placeholder does beside a word or another placeholder, and wherever it would be read as something else.

        Args:
            text: What follows; either it or the end is a placeholder, or a pair of tags around one or around a name.
            is_code: Whether it is a placeholder, or such a pair.
        """
        before = self._pieces[-1][-2:]  # no pattern looks back further
        if not before or before[-1].isspace():
            return False
        if is_code and self._code:
            return (self._code, text) not in self._side_by_side
        if before[-1].isalnum() if is_code else text[:1].isalnum():
            return True
        if not (is_code or self._code):
            return False
        code, start = (text, len(before)) if is_code else (self._code, 0)
        match = placeholder().match(before * is_code + code + text * (not is_code), start)
        return match is None or match.end() != start + len(code)

    def text(self) -> str:
        """Return the whole text."""
        return "".join(self._pieces)


class _Placing:
    """Places the marks of one text into its translation."""

    def __init__(self, stripped: Stripped, translation: str, links: Sequence[Link]) -> None:
        self._source = stripped.text
        self._translation = translation
        self._source_parts = parts_with_placeholders(stripped.text)
        self._parts = parts_with_placeholders(translation)
        self._texts = [translation[start:end] for start, end in self._parts]
        self._links = set(links)
        self._targets: defaultdict[int, list[int]] = defaultdict(list)
        for source, target in self._links:
            self._targets[source].append(target)
        self._num_sources = Counter(target for _, target in self._links)
        self._num_linked = [0, *accumulate(part in self._num_sources for part in range(len(self._parts)))]
        """Linked parts of the translation before each part."""
        self._root = _Node(None, 0, len(self._parts))
        self._restored: set[int] = set()
        """Parts of the translation in which the model altered a placeholder, and that need a space beside a word."""
        self._codes = {
            part for part, span in enumerate(self._parts) if placeholder().fullmatch(translation[slice(*span)])
        }
        """Parts of the translation that are placeholders."""
        alone = [mark for mark in stripped.marks if mark.is_kept]
        self._side_by_side = {
            (left.unit.texts[0], right.unit.texts[0]) for left, right in pairwise(alone) if left.end == right.start
        }
        missing = self._kept(stripped)
        self._place([mark for mark in stripped.marks if not mark.is_kept or mark in missing])

    def text(self) -> str:
        """Return the translation with its markup."""
        first, last = (self._parts[0][0], self._parts[-1][1]) if self._parts else (len(self._translation),) * 2
        return self._translation[:first] + self._written(self._root) + self._translation[last:]

    def _kept(self, stripped: Stripped) -> set[_Mark]:
        """Restore placeholders that the model altered, and return those that it dropped.

        A placeholder of the translation that matches none of the source is removed, because a program would read it.
        """
        free = [part for part in sorted(self._codes) if stripped.has_lost or not is_tag(self._texts[part])]
        equal: defaultdict[str, deque[int]] = defaultdict(deque)
        for part in free:
            equal[self._texts[part]].append(part)
        missing = []
        for mark in (mark for mark in stripped.marks if mark.is_kept):
            if same := equal[mark.unit.texts[0]]:
                same.popleft()
            else:
                missing.append(mark)
        free = sorted(part for parts in equal.values() for part in parts)
        free_words = [part for part in free if not is_tag(self._texts[part])]
        pairs = list(product(enumerate(missing[:_MOST_COMPARED]), free_words[:_MOST_COMPARED]))
        most = min(_MOST_CHARACTERS, math.isqrt(_MOST_STEPS // max(1, len(pairs))))
        choices = sorted(
            ((self._likeness(mark, part, most), -number, -part) for (number, mark), part in pairs), reverse=True
        )
        partners: dict[int, int] = {}
        for likeness, number, part in choices:
            if likeness >= _ALIKE and -number not in partners and -part not in partners.values():
                partners[-number] = -part
                self._texts[-part] = missing[-number].unit.texts[0]
                start, end = self._parts[-part]
                beside = self._translation[max(0, start - 1) : start] + self._translation[end : end + 1]
                if _BESIDE_CODES.isdisjoint(map(script_of, beside)):
                    self._restored.add(-part)
        for part in set(free).difference(partners.values()):
            self._texts[part] = ""
        return {mark for number, mark in enumerate(missing) if number not in partners}

    def _likeness(self, mark: _Mark, part: int, most_characters: int) -> float:
        own, other = mark.unit.texts[0][:most_characters], self._texts[part][:most_characters]
        alike = SequenceMatcher(None, own, other, autojunk=False).ratio()
        return alike + _LINKED * any((own, part) in self._links for own in self._inside(mark))

    def _place(self, marks: Sequence[_Mark]) -> None:
        """Place marks; a mark nested in a pair of the source stays within that pair."""
        # A mark goes where it crosses fewest links, and splits a word, such as `l'ami`, only if no other place is left.
        # At first every source word is behind the mark, so it crosses each link of the parts before its place.
        most = 2 * len(self._links) + 1
        crossed = [0, *accumulate(self._num_sources[part] for part in range(len(self._parts)))]
        places = _Places([count + most * (not self._is_apart(place)) for place, count in enumerate(crossed)])
        closed = most * 3
        around, passed, quoted = [self._root], 0, self._root
        for mark in marks:
            while (pair := around[-1].mark) is not None and mark.unit.starts[0] > pair.unit.starts[1]:
                node = around.pop()
                places.add(node.start + 1, closed)
                places.add(max(node.start + 1, node.end), -closed)
            while passed < len(self._source_parts) and self._source_parts[passed][0] < mark.start:
                for target in self._targets[passed]:
                    places.add(target + 1, -2)
                passed += 1
            parent = around[-1]
            span = self._around(mark, parent) if mark.is_pair and len(around) < MOST_DEPTH else None
            node = _Node(mark, *(span or (places.cheapest(parent.start, parent.end),) * 2))
            if span:
                insort(parent.taken, span)
            if mark.is_pair and len(around) < MOST_DEPTH:
                if span is None:
                    quoted = self._quoted(node, quoted)
                around.append(node)
            parent.within.append(node)

    def _quoted(self, node: _Node, before: _Node) -> _Node:
        """Give a pair around no words its source word, such as a name: better untranslated than missing.

        Args:
            node: The pair.
            before: The last pair that was given one; it is not given twice, but to the innermost pair around it.

        Returns:
            The last pair that was given one.
        """
        mark, outer = node.mark, before.mark
        assert mark is not None
        words = self._source[mark.start : mark.end]
        if not words or re.search(r"\s", words) or placeholder().search(words):
            return before
        if outer is not None and mark.end <= outer.end:
            if (mark.start, mark.end) != (outer.start, outer.end):
                return before
            before.words = ""
        node.words = words
        return node

    def _inside(self, mark: _Mark) -> range:
        """Return the parts of the source that lie within a mark."""
        first = bisect_left(self._source_parts, mark.start, key=lambda part: part[0])
        return range(first, bisect_right(self._source_parts, mark.end, key=lambda part: part[1]))

    def _around(self, mark: _Mark, parent: _Node) -> Span | None:
        """Return the stretch of the translation for a pair to enclose: most linked words, fewest others."""
        own = {target for source in self._inside(mark) for target in self._targets[source]}
        best, best_sum, start, total, end = None, 0, 0, 0, 0
        for part in sorted(own):
            taken = bisect_left(parent.taken, (part + 1,))
            last_taken = parent.taken[taken - 1][1] if taken else parent.start
            if not max(parent.start, last_taken) <= part < parent.end:
                continue
            total -= self._num_linked[part] - self._num_linked[end]
            if total <= 0 or last_taken > start:
                start, total = part, 0
            total, end = total + 1, part + 1
            if total > best_sum:
                best, best_sum = (start, end), total
        return best

    def _is_apart(self, place: int) -> bool:
        """Return whether a word may go before a part: at white space, inside a bracket or before a full stop."""
        return self._is_edge(place) or any(
            self._is_edge(other) and not self._texts[part][:1].isalnum()
            for part, other in ((place, place + 1), (place - 1, place - 1))
        )

    def _is_edge(self, place: int) -> bool:
        return not 0 < place < len(self._parts) or bool(self._gap(place))

    def _written(self, node: _Node) -> str:
        """Return the text of a node with its marks, without the surrounding white space."""
        written = _Written(node.words, self._side_by_side)
        at, has_gap = node.start, True  # whether the text between the last part and the next is already written
        marks = sorted(node.within, key=lambda child: (child.start, child.end))
        for child in marks:
            assert child.mark is not None
            has_gap = self._write_parts(written, at, child.start, has_gap)
            at = max(at, child.start)
            is_empty = child.end <= child.start
            texts = child.mark.unit.texts
            inside = self._written(child) + texts[1] if child.mark.is_pair else ""
            is_word = child.mark.is_kept or bool(is_empty and inside and (child.words or child.within))
            sticks = is_word and written.would_stick(texts[0], is_code=True)
            if not has_gap and (not is_empty or child.mark.spaces[0] or sticks):
                written.add(self._gap(at) or " " * is_empty)
                has_gap = True
            elif sticks:
                written.add(" ")
            written.add(texts[0] + inside, is_code=child.mark.is_kept, is_restored=is_word)
            if not is_empty:
                at, has_gap = child.end, False
            elif has_gap and at < node.end and self._is_edge(at):
                written.add(" " * child.mark.spaces[1])
            elif at >= node.end:
                has_gap = False  # another mark behind the last word has a space before it if the source has one
        self._write_parts(written, at, node.end, has_gap)
        return written.text()

    def _write_parts(self, written: _Written, start: int, end: int, has_gap: bool) -> bool:
        """Write some parts with the gaps between them, and return whether the gap after them is written."""
        removed = ""  # the gap before parts that were removed
        for part in range(start, end):
            text, gap = self._texts[part], "" if has_gap else self._gap(part)
            if not text:
                removed = removed or gap
                continue
            is_code, is_restored = part in self._codes, part in self._restored
            if removed and not gap and text[0].isalnum():
                gap = removed
            elif (is_restored or written.ends_restored) and not gap and written.would_stick(text, is_code=is_code):
                gap = " "
            written.add(gap)
            written.add(text, is_code=is_code, is_restored=is_restored)
            has_gap, removed = False, ""
        return has_gap

    def _gap(self, part: int) -> str:
        """Return the text between a part and the one before it."""
        if not 0 < part < len(self._parts):
            return ""
        return self._translation[self._parts[part - 1][1] : self._parts[part][0]]

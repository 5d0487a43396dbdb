"""Markup within a segment: numbered tags in the text that is translated, and how those of a translation are mended.

A pair of tags about words is `<g1>words</g1>` in the text, what stands alone, such as code or an image, is `<x2/>`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from typing import NamedTuple

__all__ = ["Tag", "mended", "tokens"]

_TAG = re.compile(r"<(/?)g([1-9][0-9]{0,6})>|<x([1-9][0-9]{0,6})/>")
_LONGEST_SNAP = 20  # characters to the next edge of a word; scripts without spaces have none near


class Tag(NamedTuple):
    """A numbered tag in a segment's text."""

    form: str
    """`open` or `close`, of a pair, or `alone`."""
    number: int
    """Of the element, counted from 1 in each segment."""

    def __str__(self) -> str:
        match self.form:
            case "open":
                return f"<g{self.number}>"
            case "close":
                return f"</g{self.number}>"
            case _:
                return f"<x{self.number}/>"


def tokens(text: str) -> list[str | Tag]:
    """Cut a text into its words and its tags.

    >>> [str(token) for token in tokens("a <g1>b</g1><x2/>")]
    ['a ', '<g1>', 'b', '</g1>', '<x2/>']
    """
    found: list[str | Tag] = []
    end = 0
    for match in _TAG.finditer(text):
        if match.start() > end:
            found.append(text[end : match.start()])
        end = match.end()
        slash, pair, alone = match.groups()
        found.append(Tag("alone", int(alone)) if alone else Tag("close" if slash else "open", int(pair)))
    return [*found, text[end:]] if end < len(text) else found


def mended(translation: str, source: str) -> tuple[str, tuple[str, ...]]:
    """Return a translation with every tag of its source once and well nested, and what had to be done for it.

    What is in order stays as it is; the order of the tags may differ. Otherwise, one after the other: tags that the
    source has not, and those that come again, are dropped; half a pair reaches to the edge of what it stands in; of
    pairs that cross, the one that began later ends earlier; what stood alone and is missing goes to the edge of a word
    as far into the translation as it was in the source; a missing pair goes around all there is within the pair that
    was around it.

    >>> mended("ein <g1>Hund", "a <g1>dog</g1>")
    ('ein <g1>Hund</g1>', ('<g1> has no end; it now ends where what it stands in ends',))
    >>> mended("Drücke jetzt.", "Press <x1/> now.")
    ('Drücke <x1/> jetzt.', ('<x1/> is missing; it now stands where it stood in the source, by length',))
    """
    places = _places(source)
    repairs: list[str] = []
    kept = _nested(_known(tokens(translation), places, repairs), repairs)
    present = {token.number for token in kept if isinstance(token, Tag)}
    missing = [place for number, place in places.items() if number not in present]
    kept = _with_missing_alone(kept, [place for place in missing if place.tag.form == "alone"], repairs)
    kept = _with_missing_pairs(kept, [place for place in missing if place.tag.form == "open"], places, repairs)
    return "".join(map(str, kept)), tuple(dict.fromkeys(repairs))


class _Place(NamedTuple):
    """Where the source has an element."""

    tag: Tag
    parent: int
    """Number of the pair that it stands in; 0 if in none."""
    position: float
    """Share of the source's characters before it, without tags."""
    spaces: tuple[bool, bool]
    """Whether white space stands before and behind it."""


def _places(source: str) -> dict[int, _Place]:
    parts = tokens(source)
    words = "".join(part for part in parts if isinstance(part, str))
    places: dict[int, _Place] = {}
    inside = [0]
    at = 0
    for part in parts:
        if isinstance(part, str):
            at += len(part)
        elif part.form == "close":
            inside.pop()
        else:
            spaces = (words[max(at - 1, 0) : at].isspace(), words[at : at + 1].isspace())
            places[part.number] = _Place(part, inside[-1], at / max(len(words), 1), spaces)
            if part.form == "open":
                inside.append(part.number)
    return places


def _known(parts: list[str | Tag], places: dict[int, _Place], repairs: list[str]) -> list[str | Tag]:
    """Keep of every element of the source its first tag, and the first end that follows it."""
    kept: list[str | Tag] = []
    words: list[str] = []
    begun = {part.number for part in parts if isinstance(part, Tag) and part.form == "open"}
    seen: set[Tag] = set()
    for part in [*parts, None]:
        if isinstance(part, str):
            words.append(part)
            continue
        if part is not None:
            place = places.get(part.number)
            if place is None or (place.tag.form == "alone") != (part.form == "alone"):
                repairs.append(f"{part} is not in the source and was dropped")
                continue
            is_early = part.form == "close" and part.number in begun and Tag("open", part.number) not in seen
            if part in seen or is_early or (part.form == "open" and Tag("close", part.number) in seen):
                repairs.append(f"{part} comes again or too early and was dropped")
                continue
            seen.add(part)
        if words:
            # Around a tag that was dropped, words may have come together to another one; a space keeps them apart.
            kept.append(_TAG.sub(" ", "".join(words)))
            words = []
        if part is not None:
            kept.append(part)
    return kept


def _nested(parts: list[str | Tag], repairs: list[str]) -> list[str | Tag]:
    """Close every pair within the one it was opened in."""
    kept: list[str | Tag] = []
    before: defaultdict[int, list[str | Tag]] = defaultdict(
        list
    )  # tags to put before a place of `kept`, last one first
    stack: list[tuple[int, int]] = []  # open pairs: their numbers, and the places behind their first tags
    is_open: set[int] = set()
    ended: set[int] = set()
    for part in parts:
        if not isinstance(part, Tag) or part.form == "alone":
            kept.append(part)
        elif part.form == "open":
            kept.append(part)
            stack.append((part.number, len(kept)))
            is_open.add(part.number)
        elif part.number in is_open:
            while stack[-1][0] != part.number:
                inner = stack.pop()[0]
                repairs.append(f"<g{inner}> reaches over the end of <g{part.number}>; it now ends before it")
                kept.append(Tag("close", inner))
                is_open.remove(inner)
                ended.add(inner)
            stack.pop()
            is_open.remove(part.number)
            kept.append(part)
        elif part.number not in ended:
            repairs.append(f"{part} has no beginning; it now begins where what it stands in begins")
            before[stack[-1][1] if stack else 0].append(Tag("open", part.number))
            kept.append(part)
    while stack:
        number = stack.pop()[0]
        repairs.append(f"<g{number}> has no end; it now ends where what it stands in ends")
        kept.append(Tag("close", number))
    whole: list[str | Tag] = []
    for index, part in enumerate(kept):
        whole += [*reversed(before[index]), part] if index in before else [part]
    return whole


def _with_missing_alone(parts: list[str | Tag], missing: list[_Place], repairs: list[str]) -> list[str | Tag]:
    words = "".join(part for part in parts if isinstance(part, str))
    inserted: defaultdict[int, str] = defaultdict(str)
    for place in missing:
        repairs.append(f"{place.tag} is missing; it now stands where it stood in the source, by length")
        at = _word_edge(words, round(place.position * len(words)))
        is_before, is_behind = place.spaces
        if is_before and words[at : at + 1].isspace():
            at += 1
        before, behind = words[max(at - 1, 0) : at], words[at : at + 1]
        inserted[at] += (
            f"{' ' if is_before and before and not before.isspace() else ''}{place.tag}"
            f"{' ' if is_behind and behind and not behind.isspace() else ''}"
        )
    whole: list[str | Tag] = tokens(inserted.pop(0, ""))
    edges = sorted(inserted)
    at = 0
    for part in parts:
        if isinstance(part, Tag):
            whole.append(part)
            continue
        first = at
        for edge in edges[bisect_left(edges, first + 1) : bisect_left(edges, first + len(part) + 1)]:
            whole += [part[at - first : edge - first], *tokens(inserted[edge])]
            at = edge
        whole.append(part[at - first :])
        at = first + len(part)
    return [part for part in whole if part]


def _word_edge(words: str, at: int) -> int:
    """Return the nearest place that is not within a word, before the white space there."""
    near = [at]
    for distance in range(1, _LONGEST_SNAP + 1):
        near += [at - distance, at + distance]
    inside = (place for place in near if 0 <= place <= len(words))
    edge = next((place for place in inside if not _joins(words, place)), at)
    while edge > 0 and words[edge - 1].isspace():
        edge -= 1
    return edge


def _joins(words: str, at: int) -> bool:
    return 0 < at < len(words) and words[at - 1].isalnum() and words[at].isalnum()


def _with_missing_pairs(
    parts: list[str | Tag], missing: list[_Place], places: dict[int, _Place], repairs: list[str]
) -> list[str | Tag]:
    absent = {place.tag.number for place in missing}
    within: defaultdict[int, list[int]] = defaultdict(list)
    around: dict[int, int] = {0: 0}
    for place in missing:  # in the order of the source, so that a pair comes before those within it
        number = place.tag.number
        repairs.append(f"{place.tag} is missing; it now stands around all that it could")
        around[number] = around[place.parent] if place.parent in absent else place.parent
        within[around[number]].append(number)
    whole: list[str | Tag] = [Tag("open", number) for number in within[0]]
    for part in parts:
        if isinstance(part, Tag) and part.form == "close":
            whole += [Tag("close", number) for number in reversed(within[part.number])]
        whole.append(part)
        if isinstance(part, Tag) and part.form == "open":
            whole += [Tag("open", number) for number in within[part.number]]
    return [*whole, *(Tag("close", number) for number in reversed(within[0]))]

"""Inline markup in segments: numbered tags in the text, and the repair of tags in a translation.

A pair of tags around words is written `<g1>words</g1>`, a standalone element, such as code or an image, `<x2/>`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

_TAG = re.compile(r"<(/?)g([1-9][0-9]{0,6})>|<x([1-9][0-9]{0,6})/>")
_LONGEST_SNAP = 20  # characters to search for a word boundary; scripts without spaces may have none nearby


class Tag(NamedTuple):
    """A numbered tag in the text of a segment."""

    form: str
    """`open` or `close` for the tags of a pair, `alone` for a standalone element."""
    number: int
    """Number of its element, counted from 1 in each segment."""

    def __str__(self) -> str:
        match self.form:
            case "open":
                return f"<g{self.number}>"
            case "close":
                return f"</g{self.number}>"
            case _:
                return f"<x{self.number}/>"


def tokens(text: str) -> list[str | Tag]:
    """Split a text into words and tags.

    >>> [str(token) for token in tokens("a <g1>b</g1><x2/>")]
    ['a ', '<g1>', 'b', '</g1>', '<x2/>']
    """
    parts: list[str | Tag] = []
    end = 0
    for match in _TAG.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        end = match.end()
        slash, pair, alone = match.groups()
        parts.append(Tag("alone", int(alone)) if alone else Tag("close" if slash else "open", int(pair)))
    return [*parts, text[end:]] if end < len(text) else parts


def repaired_tags(translation: str, source: str, links: Collection[int] = ()) -> tuple[str, tuple[str, ...]]:
    """Return a translation that has each tag of its source once and well nested, and the list of repairs.

    Valid tags are unchanged; they may be in a different order. The repairs are, in this order: unknown and repeated
    tags are dropped; half a pair is extended to the edge of the enclosing pair; of crossing pairs, the one that began
    later ends earlier; a missing standalone tag is inserted at a word boundary, at the same relative position as in the
    source; a missing pair is put around the whole content of its enclosing pair. Links are not nested: one that is
    missing, empty or inside another comes after the text, around its words of the source, unless it is the only link
    and encloses half of the source or more.

    Args:
        translation: The translation.
        source: Its source, with well nested tags.
        links: Numbers of the pairs that are links.

    >>> repaired_tags("ein <g1>Hund", "a <g1>dog</g1>")
    ('ein <g1>Hund</g1>', ('<g1> has no end; it now ends where the text around it ends',))
    >>> repaired_tags("Drücke jetzt.", "Press <x1/> now.")
    ('Drücke <x1/> jetzt.', ('<x1/> is missing; it is now where it was in the source, by length',))
    >>> repaired_tags("Siehe beide.", "See <g1>one</g1> and <g2>two</g2>.", links={1, 2})[0]
    'Siehe beide. <g1>one</g1> <g2>two</g2>'
    """
    places = _places(source)
    repairs: list[str] = []
    kept = _nested(_known(tokens(translation), places, repairs), repairs)
    contents = _link_contents(source, links) if links else {}
    kept = _with_links_apart(kept, contents, repairs) if links else kept
    present = {token.number for token in kept if isinstance(token, Tag)}
    missing = [place for number, place in places.items() if number not in present]
    kept = _with_missing_alone(kept, [place for place in missing if place.tag.form == "alone"], repairs)
    pairs = [place for place in missing if place.tag.form == "open"]
    lost = {place.tag.number: contents[place.tag.number] for place in pairs if place.tag.number in contents}
    kept = _with_lost_links(kept, lost, repairs) if lost else kept
    kept = _with_missing_pairs(kept, [place for place in pairs if place.tag.number not in lost], places, repairs)
    return "".join(map(str, kept)), tuple(dict.fromkeys(repairs))


class _LinkContent(NamedTuple):
    """What a link encloses in the source."""

    words: str
    alone: frozenset[Tag]
    """Its standalone elements, such as an image."""


def _link_contents(source: str, links: Collection[int]) -> dict[int, _LinkContent]:
    """Return the contents of links by number, without links inside links; none if the only link encloses half."""
    contents: dict[int, _LinkContent] = {}
    inside: list[str | Tag] = []
    link = size = 0
    for part in tokens(source):
        if isinstance(part, str):
            size += len(part)
        if isinstance(part, Tag) and part.form == "open" and part.number in links and not link:
            link, inside = part.number, []
        elif part == Tag("close", link):
            words = "".join(token for token in inside if isinstance(token, str)).strip()
            contents[link] = _LinkContent(words, frozenset(token for token in inside if isinstance(token, Tag)))
            link = 0
        elif link:
            inside.append(part)
    is_alone = len(contents) == 1 and 2 * max(len(content.words) for content in contents.values()) >= size
    return {} if is_alone else contents


def _with_links_apart(
    parts: list[str | Tag], contents: Mapping[int, _LinkContent], repairs: list[str]
) -> list[str | Tag]:
    """Drop the tags of links inside others, and of links that have lost all of their words."""
    kept: list[str | Tag] = []
    dropped: set[int] = set()
    link = 0
    for part, following in zip(parts, [*parts[1:], ""], strict=False):
        if isinstance(part, Tag) and part.form == "open" and part.number in contents:
            is_empty = following == Tag("close", part.number) and contents[part.number].words
            if link or is_empty:
                repairs.append(f"{part} {f'is inside <g{link}>, which is a link' if link else 'has no words'}")
                dropped.add(part.number)
            else:
                link = part.number
        elif part == Tag("close", link):
            link = 0
        if not (isinstance(part, Tag) and part.form != "alone" and part.number in dropped):
            kept.append(part)
    return kept


def _with_lost_links(parts: list[str | Tag], lost: Mapping[int, _LinkContent], repairs: list[str]) -> list[str | Tag]:
    """Put lost links around their image, or after the text around their words."""
    link_of = {tag: number for number, content in lost.items() if not content.words for tag in content.alone}
    waiting = dict(lost)
    whole: list[str | Tag] = []
    depth = 0  # an image inside another pair stays as it is: the pair may be a link
    for part in parts:
        number = link_of.get(part, 0) if isinstance(part, Tag) and part.form == "alone" and depth == 0 else 0
        if isinstance(part, Tag) and part.form != "alone":
            depth += 1 if part.form == "open" else -1
        if waiting.pop(number, None):
            whole += [Tag("open", number), part, Tag("close", number)]
        else:
            whole.append(part)
    for number, content in waiting.items():
        whole += [" ", Tag("open", number), content.words, Tag("close", number)]
    repairs += [
        f"<g{number}> is missing; it now comes {'after the text' if number in waiting else 'around its image'}"
        for number in lost
    ]
    return [part for part in whole if part]


class _Place(NamedTuple):
    """Position of an element in the source."""

    tag: Tag
    parent: int
    """Number of the enclosing pair; 0 if there is none."""
    position: float
    """Share of the source's characters that precede it, not counting tags."""
    spaces: tuple[bool, bool]
    """Whether white space precedes and follows it."""


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
    """Keep, for each element of the source, its first opening tag and the first closing tag after it; drop the rest."""
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
            # Dropping a tag can join the words around it into a new tag; a space separates them again.
            kept.append(_TAG.sub(" ", "".join(words)))
            words = []
        if part is not None:
            kept.append(part)
    return kept


def _nested(parts: list[str | Tag], repairs: list[str]) -> list[str | Tag]:
    """Return the parts with every pair closed within its enclosing pair."""
    kept: list[str | Tag] = []
    before: defaultdict[int, list[str | Tag]] = defaultdict(
        list
    )  # tags to insert before an index of `kept`, in reverse order
    stack: list[tuple[int, int]] = []  # open pairs: their numbers, and the indices after their opening tags
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
            repairs.append(f"{part} has no beginning; it now begins where the text around it begins")
            before[stack[-1][1] if stack else 0].append(Tag("open", part.number))
            kept.append(part)
    while stack:
        number = stack.pop()[0]
        repairs.append(f"<g{number}> has no end; it now ends where the text around it ends")
        kept.append(Tag("close", number))
    whole: list[str | Tag] = []
    for index, part in enumerate(kept):
        whole += [*reversed(before[index]), part] if index in before else [part]
    return whole


def _with_missing_alone(parts: list[str | Tag], missing: list[_Place], repairs: list[str]) -> list[str | Tag]:
    words = "".join(part for part in parts if isinstance(part, str))
    inserted: defaultdict[int, str] = defaultdict(str)
    for place in missing:
        repairs.append(f"{place.tag} is missing; it is now where it was in the source, by length")
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
    """Return the nearest position that is not inside a word, moved before any white space."""
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
    for place in missing:  # in source order, so that a pair precedes the pairs within it
        number = place.tag.number
        repairs.append(f"{place.tag} is missing; it now encloses all that it could")
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

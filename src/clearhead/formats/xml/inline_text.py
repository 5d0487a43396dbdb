"""Inline elements of XLIFF and TMX as numbered tags in the text of a segment, and elements again in a translation.

Pairs and documents both read their segments here. So a model is trained with the text that it translates in a document,
and a translation memory finds it.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from clearhead.errors import DataError
from clearhead.formats.inline_tags import Tag, repaired_tags, tokens
from clearhead.formats.xml.elements import XmlElement, XmlFile, own_translate
from clearhead.formats.xml.events import UNWRITABLE, StartTag
from clearhead.text.placeholders import pair_role

_ROLES = {
    **dict.fromkeys(("ph", "x", "it", "ut", "cp", "sm", "em"), "alone"),
    **dict.fromkeys(("bpt", "bx", "sc"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec"), "end"),
}
"""Roles of elements that have no words of the text: code, characters that XML lacks, and ends of annotations."""
_PAIR_KEYS = ("i", "startRef", "rid", "id")
"""Attributes that link a start to its end: `i` in TMX, `rid` in XLIFF 1.2, `startRef` in 2.0."""
MOST_ANNOTATIONS = 100
"""Maximum number of `<sm translate="yes"/>` in a text; each is compared with the whole text."""
_KEYS = ("x", "id", "mid", "hex", *_PAIR_KEYS)
"""Attributes that identify an element in other languages, such as `x` in TMX and `id` in XLIFF."""


def holds_words(element: XmlElement) -> bool:
    """Return whether an inline element is markup around words, such as `<g>` and `<mrk>`, and not code."""
    return element.tag.name not in _ROLES


def is_empty(text: XmlElement) -> bool:
    """Return whether a text has neither words nor code: only white space, also within markup around words."""
    waiting = [text]
    while waiting:
        element = waiting.pop()
        for part in element.parts:
            if isinstance(part, XmlElement) and holds_words(part):
                waiting.append(part)
            elif isinstance(part, XmlElement) or part.strip():
                return False
    return True


@dataclass(slots=True)
class InlineText:
    """A text with numbered tags, and the inline elements behind the tags."""

    text: str
    codes: dict[str, tuple[int, int] | str] = field(default_factory=dict)
    """For each tag as written in the text, the range of its markup in the file, or the words that it replaces."""
    links: set[int] = field(default_factory=set)
    """Numbers of the pairs that are links."""
    fixed: list[list[str]] = field(default_factory=list)
    """Sequences of tags that must keep their order (`canReorder` in XLIFF 2)."""

    def filled(self, translation: str, file: XmlFile, line: int, changes: Sequence[tuple[int, int, str]] = ()) -> str:
        """Return a translation as the content of an element, with each inline element of the source exactly once.

        Args:
            translation: Text with numbered tags, which are repaired first, see `inline_tags.repaired_tags`.
            file: The file that contains the source.
            line: Line number of the source, counted from 1, for messages.
            changes: Translations of texts within inline elements, as for `XmlFile.raw`.

        Raises:
            DataError: If the translation contains a character that XML forbids.
        """
        if match := UNWRITABLE.search(translation):
            raise DataError(
                f"{file.source.path}, line {line}: the translation holds U+{ord(match[0]):04X}, which XML does not have"
            )
        repaired = repaired_tags(translation, self.text, self.links)[0]
        ordered = self._in_order(tokens(repaired))
        return self._written(repaired_tags("".join(map(str, ordered)), self.text, self.links)[0], file, changes)

    def markup(self, text: str, file: XmlFile) -> str:
        """Return another text of the segment, such as a translation-memory match, as the content of an element.

        Tags that the segment lacks are dropped, and no tag of the segment is added.
        """
        there = {token.number for token in tokens(text) if isinstance(token, Tag)}
        shared = [token for token in tokens(self.text) if isinstance(token, Tag) and token.number in there]
        return self._written(repaired_tags(text, "".join(map(str, shared)))[0], file)

    def _in_order(self, parts: Sequence[str | Tag]) -> list[str | Tag]:
        """Return the parts with the tags of each sequence in the order of the source."""
        sequence_of = {tag: number for number, tags in enumerate(self.fixed) for tag in tags}
        due = [iter(tags) for tags in self.fixed]
        return [
            next(due[sequence_of[str(part)]]) if isinstance(part, Tag) and str(part) in sequence_of else part
            for part in parts
        ]

    def _written(self, text: str, file: XmlFile, changes: Sequence[tuple[int, int, str]] = ()) -> str:
        parts = tokens(text)
        codes = (self.codes[str(part)] if isinstance(part, Tag) else part for part in parts)
        return "".join(escaped(code, file) if isinstance(code, str) else file.raw(*code, changes) for code in codes)


class TagNumbers:
    """Numbers for the inline elements of a unit: an element has the same number in every language.

    They count from 1 in the text that is read first. An element of another text has the number of the element with the
    same `x` (TMX) or `id` (XLIFF) there, or without these, of the same name and order.

    Args:
        original_data: Code that elements refer to (`dataRef` in XLIFF 2), by its id.
    """

    def __init__(self, original_data: Mapping[str, str] = MappingProxyType({})) -> None:
        self._data = original_data
        self._numbers: dict[tuple[str, str, str, int], int] = {}

    def read(
        self,
        element: XmlElement,
        *,
        keeps_space: bool,
        protects_tags: bool = False,
        protected: frozenset[str] = frozenset(),
    ) -> InlineText:
        """Return the content of an element as text with numbered tags.

        An element around words becomes a pair of tags, and so do a start and an end if they are well nested, and code
        that names its half of a pair, as Angular does and as `<b>` in a `ph`, or in its original data, does. Any other
        element becomes one tag: code (`ph` and the like, without what is in it), words that must not be translated,
        including these words, and an element without content.

        Args:
            element: Element with the text, such as a `source`.
            keeps_space: Whether line endings are significant; otherwise each becomes a space, together with the white
                space around it.
            protects_tags: Whether words that look like a numbered tag become one; otherwise they are read as a tag, as
                files of pairs are written.
            protected: Annotations that begin before this text and forbid translation, see `open_annotations`.
        """
        if (
            not protects_tags
            and not protected
            and len(element.parts) == 1
            and isinstance(text := element.parts[0], str)
        ):  # most texts
            return InlineText(text if keeps_space else _on_one_line(text))
        texts: list[str] = []
        codes: dict[str, tuple[int, int] | str] = {}
        links: set[int] = set()
        fixed: list[list[str]] = []
        seen: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        pieces = [*_pieces(element, protects_tags, {*protected}, self._data)]
        for piece in pieces:  # a list first: a start is linked when its end is found
            if isinstance(piece, str):
                texts.append(piece)
                continue
            if piece.begin is not None:
                tag = str(Tag("close", piece.begin.number))
            else:
                identity = "pair" if piece.is_paired else piece.name, piece.key, "" if piece.key else piece.name
                seen[identity] += 1
                piece.number = self._numbers.setdefault((*identity, seen[identity]), len(self._numbers) + 1)
                tag = str(Tag("open" if piece.is_paired else "alone", piece.number))
                if piece.is_paired and piece.is_link:
                    links.add(piece.number)
            codes[tag] = piece.code
            if piece.order == "firstNo" or (piece.order == "no" and not fixed):
                fixed.append([tag])
            elif piece.order == "no":
                fixed[-1].append(tag)
            texts.append(tag)
        text = "".join(texts)
        return InlineText(text if keeps_space else _on_one_line(text), codes, links, fixed)


@dataclass(slots=True)
class _Piece:
    """A tag without a number yet."""

    code: tuple[int, int] | str
    name: str = ""
    key: str = ""
    """Key shared by the same element in other languages; empty if there is none."""
    order: str = ""
    """Its `canReorder` in XLIFF 2; `no` and `firstNo` keep it in a sequence."""
    begin: _Piece | None = None
    """For the second tag of a pair, the first."""
    is_paired: bool = False
    number: int = 0
    is_link: bool = False


def open_annotations(text: XmlElement | None, before: frozenset[str]) -> frozenset[str]:
    """Return the ids of the annotations that forbid translation (`<sm translate="no"/>`) and are open after a text.

    Args:
        text: The content of a segment; None if there is none.
        before: Ids of the annotations open at its start.
    """
    held = {*before}
    for element in [] if text is None else _descendants(text):
        _annotate(element, held)
    return frozenset(held)


def translated_parts(element: XmlElement, *, is_translated: bool, protected: frozenset[str]) -> Iterator[XmlElement]:
    """Yield the texts within a text that are translated although what is around them is not.

    These are the contents of `<mrk translate="yes">`, and of `<sm translate="yes"/>` up to its `<em/>` in the same
    element, unless an annotation of the text around ends in it. They may be nested; an outer one comes first. A text
    with over `MOST_ANNOTATIONS` has none.

    Args:
        element: The text.
        is_translated: Whether it is translated itself.
        protected: As for `TagNumbers.read`.
    """
    annotations = (inner for inner in _descendants(element) if inner.tag.name == "sm" and own_translate(inner.tag))
    if next(islice(annotations, MOST_ANNOTATIONS, None), None) is None:
        yield from _translated_parts(element, is_translated, {*protected})


def _translated_parts(element: XmlElement, is_translated: bool, held: set[str]) -> Iterator[XmlElement]:
    places = {
        inner.tag.attributes.get("startRef", ""): place
        for place, inner in enumerate(element.parts)
        if isinstance(inner, XmlElement) and inner.tag.name == "em"
    }
    behind = 0
    for place, part in enumerate(element.parts):
        if isinstance(part, str) or place < behind:
            continue
        marked, own = part, own_translate(part.tag)
        if part.tag.name in _ROLES:
            end = places.get(part.tag.attributes.get("id", ""), 0)
            last = element.parts[end]
            if part.tag.name != "sm" or not own or end <= place or not isinstance(last, XmlElement):
                _annotate(part, held)
                continue
            marked = XmlElement(part.tag, part.size, element.parts[place + 1 : end], last.start, part.end, last.start)
        if own and (held or not is_translated) and not marked.is_blank and _is_balanced(marked):
            yield marked
            yield from _translated_parts(marked, True, set())
            behind = behind if marked is part else end
        elif marked is part:
            yield from _translated_parts(part, is_translated if own is None else own, held)


def _is_balanced(element: XmlElement) -> bool:
    """Return whether every annotation that ends in an element begins there."""
    begun: set[str] = set()
    for inner in _descendants(element):
        if inner.tag.name == "sm":
            begun.add(inner.tag.attributes.get("id", ""))
        elif inner.tag.name == "em" and inner.tag.attributes.get("startRef", "") not in begun:
            return False
    return True


def _descendants(element: XmlElement) -> Iterator[XmlElement]:
    """Yield all descendants, in the order of the file."""
    waiting = element.elements[::-1]
    while waiting:
        yield (child := waiting.pop())
        waiting += child.elements[::-1]


def _forbids_translation(element: XmlElement) -> bool:
    return element.tag.name == "sm" and own_translate(element.tag) is False


def _annotate(element: XmlElement, held: set[str]) -> None:
    """Update the ids of open annotations by an element, if it is the start or the end of one."""
    if _forbids_translation(element):
        held.add(element.tag.attributes.get("id", ""))
    elif element.tag.name == "em":
        held.discard(element.tag.attributes.get("startRef", ""))


def _end_within(element: XmlElement, held: set[str]) -> bool:
    """Return whether all open annotations end somewhere within an element; if not, update them by its content."""
    after = {*held}
    for inner in _descendants(element):
        _annotate(inner, after)
        if not after:
            return True
    held.clear()
    held.update(after)
    return False


def _pieces(
    element: XmlElement, protects_tags: bool, held: set[str], data: Mapping[str, str]
) -> Iterator[str | _Piece]:
    """Yield the texts and tags of an element.

    Args:
        element: The element.
        protects_tags: As in `TagNumbers.read`.
        held: Ids of open annotations that forbid translation; what is between their start and end becomes one tag.
        data: As `original_data` of `TagNumbers`.
    """
    begun: list[tuple[str, _Piece]] = []  # starts without an end yet, each with the key that its end has
    waiting: defaultdict[str, int] = defaultdict(int)  # how many of them have a key
    start, key, is_kept = element.content, min(held, default=""), False
    for part in element.parts:
        if isinstance(part, str):
            is_kept |= bool(held)
            for token in [] if held else tokens(part) if protects_tags else [part]:
                yield _Piece(str(token), key=str(token)) if isinstance(token, Tag) else token
            continue
        name, said = part.tag.name, part.tag.attributes
        if held or _forbids_translation(part):
            if not held:
                start, key = part.start, said.get("id", "")
            if not _end_within(part, held):
                _annotate(part, held)
                is_kept = bool(held)
                if not held:
                    yield _Piece((start, part.end), "sm", key)
                continue
            if is_kept:
                yield _Piece((start, part.start), "sm", key)
                is_kept = False
        role = _ROLES.get(name)
        order = said.get("canReorder", "")
        if role is None and part.parts and own_translate(part.tag) is not False:
            around = _Piece((part.start, part.content), name, _first_of(part.tag, _KEYS), order, is_paired=True)
            around.is_link = _is_link(part, data)
            yield around
            yield from _pieces(part, protects_tags, held, data)
            yield _Piece((part.content_end, part.end), order="no" if order == "firstNo" else order, begin=around)
            start, key = part.end, min(held, default="")
            continue
        for inner in _descendants(part) if held else ():
            _annotate(inner, held)
        piece = _Piece((part.start, part.end), name, _first_of(part.tag, _KEYS), order)
        piece.is_link = _is_link(part, data)
        pair = _first_of(part.tag, _PAIR_KEYS)
        if role == "alone" and (half := _half(part, data)) is not None:
            pair, role = f"<{half[0]}", "end" if half[1] else "begin"
        if role == "begin":
            begun.append((pair, piece))
            waiting[pair] += 1
        elif role == "end" and waiting[pair]:
            while piece.begin is None:  # what began later than the start reaches over this end, and is no pair
                other, first = begun.pop()
                waiting[other] -= 1
                if other == pair:
                    piece.begin, first.is_paired = first, True
        yield piece
    if is_kept:
        yield _Piece((start, element.content_end), "sm", key)


def _half(element: XmlElement, data: Mapping[str, str]) -> tuple[str, bool] | None:
    """Return the pair that code names as its own, and whether it is the closing half."""
    said = element.tag.attributes
    names = [*(said.get(key, "") for key in ("id", "equiv", "equiv-text")), element.text, *_code_of(element, data)]
    return next((half for half in map(pair_role, names) if half is not None), None)


def _code_of(element: XmlElement, data: Mapping[str, str]) -> list[str]:
    """Return the code that an element of XLIFF 2 refers to; that of its start, if it has two."""
    said = element.tag.attributes
    return [data[said[key]] for key in ("dataRef", "dataRefStart") if said.get(key) in data]


def _is_link(element: XmlElement, data: Mapping[str, str]) -> bool:
    said = element.tag.attributes
    half = pair_role(said.get("equivStart", "")) or _half(element, data)
    return bool({said.get("ctype"), said.get("type")} & {"link", "x-a"}) or (half or ("",))[0] in ("LINK", "<a")


def _first_of(tag: StartTag, names: tuple[str, ...]) -> str:
    return next((tag.attributes[name] for name in names if name in tag.attributes), "")


def _on_one_line(text: str) -> str:
    if "\n" not in text:
        return text
    first, *lines = text.split("\n")
    lines = [first.rstrip(), *(line.strip() for line in lines[:-1]), lines[-1].lstrip()]
    return " ".join(line for line in lines if line.strip())


def escaped(text: str, file: XmlFile) -> str:
    """Return a text escaped for the content of an element."""
    return file.written(html.escape(text, quote=False).replace("\r", "&#13;"))

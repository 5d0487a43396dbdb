"""Inline elements of XLIFF and TMX as numbered tags in the text of a segment, and elements again in a translation.

Pairs and documents both read their segments here. So a model is trained with the text that it translates in a document,
and a translation memory finds it.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.formats.inline_tags import Tag, mended, tokens
from clearhead.formats.xml.elements import XmlElement, XmlFile
from clearhead.formats.xml.escaping import UNWRITABLE
from clearhead.formats.xml.events import StartTag
from clearhead.text.placeholders import pair_role

_ROLES = {
    **dict.fromkeys(("ph", "x", "it", "ut", "cp", "sm", "em"), "alone"),
    **dict.fromkeys(("bpt", "bx", "sc"), "begin"),
    **dict.fromkeys(("ept", "ex", "ec"), "end"),
}
"""Roles of elements that have no words of the text: code, characters that XML lacks, and ends of annotations."""
_PAIR_KEYS = ("i", "startRef", "rid", "id")
"""Attributes that link a start to its end: `i` in TMX, `rid` in XLIFF 1.2, `startRef` in 2.0."""
_KEYS = ("x", "id", "mid", "hex", *_PAIR_KEYS)
"""Attributes that identify an element in other languages, such as `x` in TMX and `id` in XLIFF."""


@dataclass(slots=True)
class InlineText:
    """A text with numbered tags, and the inline elements behind the tags."""

    text: str
    codes: dict[str, tuple[int, int] | str] = field(default_factory=dict)
    """For each tag as written in the text, the range of its markup in the file, or the words that it replaces."""
    links: set[int] = field(default_factory=set)
    """Numbers of the pairs that are links."""

    def filled(self, translation: str, file: XmlFile, line: int) -> str:
        """Return a translation as the content of an element, with each inline element of the source exactly once.

        Args:
            translation: Text with numbered tags, which are repaired first, see `inline_tags.mended`.
            file: The file that contains the source.
            line: Line number of the source, counted from 1, for messages.

        Raises:
            DataError: If the translation contains a character that XML forbids.
        """
        if found := UNWRITABLE.search(translation):
            raise DataError(
                f"{file.source.path}, line {line}: the translation holds U+{ord(found[0]):04X}, which XML does not have"
            )
        parts = tokens(mended(translation, self.text, self.links)[0])
        codes = (self.codes[str(part)] if isinstance(part, Tag) else part for part in parts)
        return "".join(escaped(code, file) if isinstance(code, str) else file.raw(*code) for code in codes)


class TagNumbers:
    """Numbers for the inline elements of a unit: an element has the same number in every language.

    They count from 1 in the text that is read first. An element of another text has the number of the element with the
    same `x` (TMX) or `id` (XLIFF) there, or without these, of the same name and order.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str, int], int] = {}

    def read(self, element: XmlElement, *, keeps_space: bool, protects_tags: bool = False) -> InlineText:
        """Return the content of an element as text with numbered tags.

        An element around words becomes a pair of tags, and so do a start and an end if they are well nested, and code
        that names its half of a pair, as Angular does and as `<b>` in a `ph` does. Any other element becomes
        one tag: code (`ph` and the like, without what is in it), words that must not be translated, including these
        words, and an element without content.

        Args:
            element: Element with the text, such as a `source`.
            keeps_space: Whether line endings are significant; otherwise each becomes a space, together with the white
                space around it.
            protects_tags: Whether words that look like a numbered tag become one; otherwise they are read as a tag, as
                files of pairs are written.
        """
        if not protects_tags and len(element.parts) == 1 and isinstance(text := element.parts[0], str):  # most texts
            return InlineText(text if keeps_space else _on_one_line(text))
        texts: list[str] = []
        codes: dict[str, tuple[int, int] | str] = {}
        links: set[int] = set()
        seen: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        for piece in [*_pieces(element, protects_tags)]:  # a list first: a start is linked when its end is found
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
            texts.append(tag)
        text = "".join(texts)
        return InlineText(text if keeps_space else _on_one_line(text), codes, links)


@dataclass(slots=True)
class _Piece:
    """A tag without a number yet."""

    code: tuple[int, int] | str
    name: str = ""
    key: str = ""
    """Key shared by the same element in other languages; empty if there is none."""
    begin: _Piece | None = None
    """For the second tag of a pair, the first."""
    is_paired: bool = False
    number: int = 0
    is_link: bool = False


def _pieces(element: XmlElement, protects_tags: bool) -> Iterator[str | _Piece]:
    begun: list[tuple[str, _Piece]] = []  # starts without an end yet, each with the key that its end has
    waiting: defaultdict[str, int] = defaultdict(int)  # how many of them have a key
    for part in element.parts:
        if isinstance(part, str):
            for token in tokens(part) if protects_tags else [part]:
                yield _Piece(str(token), key=str(token)) if isinstance(token, Tag) else token
            continue
        name, said = part.tag.name, part.tag.attributes
        role = _ROLES.get(name)
        if role is None and part.parts and said.get("translate") != "no" and said.get("mtype") != "protected":
            around = _Piece((part.start, part.content), name, _first_of(part.tag, _KEYS), is_paired=True)
            around.is_link = _is_link(part)
            yield around
            yield from _pieces(part, protects_tags)
            yield _Piece((part.content_end, part.end), begin=around)
            continue
        piece = _Piece((part.start, part.end), name, _first_of(part.tag, _KEYS))
        piece.is_link = _is_link(part)
        pair = _first_of(part.tag, _PAIR_KEYS)
        if role == "alone" and (half := _half(part)) is not None:
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


def _half(element: XmlElement) -> tuple[str, bool] | None:
    """Return the pair that code names as its own, and whether it is the closing half."""
    said = element.tag.attributes
    names = [*(said.get(key, "") for key in ("id", "equiv", "equiv-text")), element.text]
    return next((half for half in map(pair_role, names) if half is not None), None)


def _is_link(element: XmlElement) -> bool:
    said = element.tag.attributes
    half = pair_role(said.get("equivStart", "")) or _half(element)
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

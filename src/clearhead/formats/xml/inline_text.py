"""The inline elements of XLIFF and TMX as numbered tags in a text, and put back where a translation has these tags."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.formats.inline_tags import Tag, mended, tokens
from clearhead.formats.xml.elements import XmlElement, XmlFile
from clearhead.formats.xml.inline_elements import ROLES, element_of

__all__ = ["UNWRITABLE", "InlineText", "escaped", "inline_text"]

_WITHOUT_TEXT = {*ROLES, "cp", "sm", "em"}
UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2


@dataclass(frozen=True, slots=True)
class InlineText:
    """A text, and what its tags stand for."""

    text: str
    codes: dict[str, str] = field(default_factory=dict)
    """What the file has, by tags as they stand in the text."""

    def filled(self, translation: str, file: XmlFile, line: int) -> str:
        """Return a translation as the content of an element, every inline element of the source in it once.

        Args:
            translation: Its tags are mended first, see `inline.mended`.
            file: Where it will stand.
            line: Of the source, counted from 1, for messages.

        Raises:
            DataError: If it holds a character that XML does not have.
        """
        if found := UNWRITABLE.search(translation):
            raise DataError(
                f"{file.source.path}, line {line}: the translation holds U+{ord(found[0]):04X}, which XML does not have"
            )
        parts = tokens(mended(translation, self.text)[0])
        return "".join(self.codes[str(part)] if isinstance(part, Tag) else escaped(part, file) for part in parts)


def inline_text(element: XmlElement, file: XmlFile, *, keeps_space: bool) -> InlineText:
    """Return the content of an element as text.

    Code (`ph`, `bpt` and the like) is left out, its element is a tag; what stands around words is a pair of tags, and
    so is a beginning with its end if they are well nested. What is not to be translated is one tag with its words.

    Args:
        element: Such as a `source`.
        file: Where it stands.
        keeps_space: Whether line ends are meant; otherwise each is a space, with the white space around it.
    """
    pieces: list[str | _Piece] = []
    _collect(element, file, pieces)
    _pair(pieces)
    texts: list[str] = []
    codes: dict[str, str] = {}
    numbers: dict[int, int] = {}  # of pairs, by the place of their first piece
    for place, piece in enumerate(pieces):
        if isinstance(piece, str):
            texts.append(piece)
            continue
        number = numbers[piece.begin] if piece.begin is not None else len(numbers) + 1
        if piece.begin is None:
            numbers[place] = number
        tag = str(Tag("close" if piece.begin is not None else "open" if piece.is_paired else "alone", number))
        codes[tag] = piece.raw
        texts.append(tag)
    text = "".join(texts)
    return InlineText(text if keeps_space else _on_one_line(text), codes)


@dataclass(slots=True)
class _Piece:
    """A tag that is not numbered yet."""

    raw: str
    """What the file has."""
    role: str
    """`open` or `close` around words; `begin` or `end`, of which some are pairs; `alone`."""
    pair: str = ""
    """What `begin` and `end` of one pair share."""
    begin: int | None = None
    """Of the second one of a pair, the place of the first."""
    is_paired: bool = False


def _collect(element: XmlElement, file: XmlFile, pieces: list[str | _Piece]) -> None:
    for part in element.parts:
        if isinstance(part, str):
            # Words that look like such a tag are kept like one.
            pieces += [_Piece(escaped(str(it), file), "alone") if isinstance(it, Tag) else it for it in tokens(part)]
            continue
        said = part.tag.attributes
        if part.tag.name in ROLES:
            code = element_of(part.tag)
            pieces.append(_Piece(file.raw(part.start, part.end), code.role, code.pair))
        elif (
            part.tag.name in _WITHOUT_TEXT
            or part.is_closed
            or said.get("translate") == "no"
            or said.get("mtype") == "protected"
        ):
            pieces.append(_Piece(file.raw(part.start, part.end), "alone"))
        else:
            pieces.append(_Piece(file.raw(part.start, part.content), "open"))
            _collect(part, file, pieces)
            pieces.append(_Piece(file.raw(part.content_end, part.end), "close"))


def _pair(pieces: list[str | _Piece]) -> None:
    """Join the two of each pair, of those that are well nested."""
    open_pieces: list[int] = []
    for place, piece in enumerate(pieces):
        if isinstance(piece, str):
            continue
        if piece.role in ("open", "begin"):
            open_pieces.append(place)
        elif piece.role in ("close", "end"):
            for depth in range(len(open_pieces) - 1, -1, -1):
                first = pieces[open_pieces[depth]]
                assert isinstance(first, _Piece)
                if first.role == "open" and piece.role == "end":
                    break
                if (first.role, first.pair) == ("open" if piece.role == "close" else "begin", piece.pair):
                    piece.begin, first.is_paired = open_pieces[depth], True
                    del open_pieces[depth:]
                    break


def _on_one_line(text: str) -> str:
    first, *lines = text.split("\n")
    if not lines:
        return text
    lines = [first.rstrip(), *(line.strip() for line in lines[:-1]), lines[-1].lstrip()]
    return " ".join(line for line in lines if line.strip())


def escaped(text: str, file: XmlFile) -> str:
    """Return a text as a file holds it between tags."""
    return file.written(html.escape(text, quote=False).replace("\r", "&#13;"))

"""Text of an XLIFF or TMX element with numbered tags for inline elements, and the reverse for translations."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

from clearhead.errors import DataError
from clearhead.formats.inline_tags import Tag, mended, tokens
from clearhead.formats.xml.elements import XmlElement, XmlFile
from clearhead.formats.xml.escaping import UNWRITABLE
from clearhead.formats.xml.inline_elements import ROLES, element_of

_WITHOUT_TEXT = {*ROLES, "cp", "sm", "em"}


@dataclass(frozen=True, slots=True)
class XmlInlineText:
    """A text with numbered tags, and the inline elements behind the tags."""

    text: str
    codes: dict[str, str] = field(default_factory=dict)
    """Markup of the file for each tag, keyed by the tag as written in the text."""

    def filled(self, translation: str, file: XmlFile, line: int) -> str:
        """Return a translation as the content of an element, with each inline element of the source exactly once.

        Args:
            translation: Text with numbered tags, which are repaired first, see `inline_tags.mended`.
            file: The file to write to.
            line: Line number of the source, counted from 1, for messages.

        Raises:
            DataError: If the translation contains a character that XML forbids.
        """
        if found := UNWRITABLE.search(translation):
            raise DataError(
                f"{file.source.path}, line {line}: the translation holds U+{ord(found[0]):04X}, which XML does not have"
            )
        parts = tokens(mended(translation, self.text)[0])
        return "".join(self.codes[str(part)] if isinstance(part, Tag) else escaped(part, file) for part in parts)


def inline_text(element: XmlElement, file: XmlFile, *, keeps_space: bool) -> XmlInlineText:
    """Return the content of an element as text with numbered tags.

    An element for code (`ph`, `bpt` and the like) becomes a tag, without the code. An element around words becomes a
    pair of tags, and so do separate elements for a start and an end if they are well nested. Content that must not be
    translated becomes one tag, including its words.

    Args:
        element: Element with the text, such as a `source`.
        file: The file that contains it.
        keeps_space: Whether line endings are significant; otherwise each becomes a space, together with the white space
            around it.
    """
    pieces: list[str | _Piece] = []
    _collect(element, file, pieces)
    _pair(pieces)
    texts: list[str] = []
    codes: dict[str, str] = {}
    numbers: dict[int, int] = {}  # number of each element, by the index of its first piece
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
    return XmlInlineText(text if keeps_space else _on_one_line(text), codes)


@dataclass(slots=True)
class _Piece:
    """A tag without a number yet."""

    raw: str
    """Markup in the file."""
    role: str
    """`open` or `close` of an element around words; `begin` or `end` of separate elements, perhaps a pair; `alone`."""
    pair: str = ""
    """Key shared by `begin` and `end` of one pair."""
    begin: int | None = None
    """For the second tag of a pair, the index of the first."""
    is_paired: bool = False


def _collect(element: XmlElement, file: XmlFile, pieces: list[str | _Piece]) -> None:
    for part in element.parts:
        if isinstance(part, str):
            # Words that look like a numbered tag are protected by one.
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
    """Link the two tags of each pair that is well nested."""
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
    """Return a text escaped for the content of an element."""
    return file.written(html.escape(text, quote=False).replace("\r", "&#13;"))

"""Word files (DOCX): paragraphs as segments, also of headers, footers, notes and text boxes; the rest stays.

Their language, by which Word checks spelling, is `w:lang` in their styles (ECMA-376, part 1, 17.3.2.20).
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from zipfile import ZipFile, ZipInfo

from clearhead.errors import DataError
from clearhead.formats.document import Document, DocumentSegment, Filling, Splice, spliced
from clearhead.formats.file_text import read_bytes
from clearhead.formats.languages import is_variant, without_region
from clearhead.formats.office_archive import WORD_FILE, opened_archive, part_names, unpacked_part, usual_name
from clearhead.formats.passages import Passage, changes
from clearhead.formats.word.paragraphs import WORD, Area, paragraphs, word_events
from clearhead.formats.word.runs import WordParagraph
from clearhead.formats.xml.elements import read_element, with_attribute, with_positions
from clearhead.formats.xml.events import UNWRITABLE, StartTag
from clearhead.text.languages import is_right_to_left

MOST_TAGS = 1_000_000
"""Maximum tags of all parts with text together; parsing them takes up to 250 MB and about 10 s."""

_CONTENT_TYPES = "[Content_Types].xml"
_TEXT_TYPE = re.compile(
    r"application/vnd\.openxmlformats-officedocument\.wordprocessingml\."
    r"(document\.main|header|footer|footnotes|endnotes)\+xml"
)
_ORDER = ("document.main", "header", "footer", "footnotes", "endnotes")
_STYLES_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"
_EAST_ASIAN = frozenset({"ja", "ko", "zh"})
_ATTRIBUTE = re.compile(r"\s([^\s=]*:)?val\s*=")


def read_docx(path: str) -> WordDocument:
    """Read a Word file.

    Args:
        path: The file; `-` is standard input.

    Raises:
        DataError: If the file cannot be read, is encrypted, is damaged, is too large when unpacked, or is not DOCX.
    """
    return WordDocument(read_bytes(path), "standard input" if path == "-" else path)


@dataclass(frozen=True)
class _TextPart:
    """A part of the file with text."""

    data: bytes
    paragraphs: dict[tuple[int, int], WordParagraph]
    """Paragraphs by the start and end of their content."""
    passages: list[Passage]
    places: list[str]
    """Name of each passage's place."""


class WordDocument(Document):
    """A Word file; its segments are the paragraphs with text, and a paragraph's number serves as its line."""

    format = "Word document"
    unwritable = UNWRITABLE

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        with opened_archive(data, name, WORD_FILE) as archive:
            names, self._styles = _text_parts(archive, name)
            unpacked = {part: unpacked_part(archive, part, name) for part in names}
            if (tags := sum(data.count(b"<") for data in unpacked.values())) > MOST_TAGS:
                raise DataError(f"{name} has {tags:,} tags, and the most is {MOST_TAGS:,}; divide the document")
            body = Area()
            self._parts = {part: _text_part(data, f"{name}: {part}", body) for part, data in unpacked.items()}
        passages = [item for part in self._parts.values() for item in zip(part.passages, part.places, strict=True)]
        self.segments = [
            self.watched(DocumentSegment(passage.text, number, links=passage.links, place=place))
            for number, (passage, place) in enumerate(passages, start=1)
        ]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted; see `Document.filled`.

        In a translated paragraph, runs with equal formatting are merged. The usual language of the styles becomes that
        of the translations. Other parts without a translation keep their content. All parts keep their names, order,
        times and compression method; their compressed bytes may differ.
        """
        changed: dict[str, bytes] = {}
        first = 0
        for name, part in self._parts.items():
            behind = first + len(part.passages)
            if any(filling is not None for filling in fillings[first:behind]):
                self._check(fillings[first:behind], first)
                changed[name] = _filled_part(part, fillings[first:behind])
            first = behind
        if not changed:
            return self._data
        written = io.BytesIO()
        with opened_archive(self._data, self._name, WORD_FILE) as old, ZipFile(written, "w") as new:
            new.comment = old.comment
            if self.language and self._styles:
                styles = unpacked_part(old, self._styles, self._name)
                changed[self._styles] = in_language(styles, f"{self._name}: {self._styles}", self.language)
            for info in old.infolist():
                new.writestr(_like(info), changed.get(info.filename) or old.read(info))
        return written.getvalue()

    def _check(self, fillings: Iterable[Filling | None], first: int) -> None:
        for number, filling in enumerate(fillings, start=first + 1):
            if filling is not None and (match := UNWRITABLE.search(filling.text)):
                raise DataError(
                    f"{self._name}, paragraph {number}: the translation holds U+{ord(match[0]):04X}, which XML cannot"
                )


def _text_parts(archive: ZipFile, name: str) -> tuple[list[str], str]:
    """Return the names of the parts with text, in reading order, and that of the styles; empty without any.

    Some programs write names in another form than the list of types has (`usual_name`); Word reads them.
    """
    names = part_names(archive, name, WORD_FILE)
    if (types := names.get(usual_name(_CONTENT_TYPES))) is None:
        raise DataError(f"{name} is a zip file, but no DOCX file: it has no {_CONTENT_TYPES}")
    parts: list[tuple[int, str]] = []
    styles = ""
    for event in word_events(unpacked_part(archive, types, name), f"{name}: {_CONTENT_TYPES}"):
        said = event.attributes if isinstance(event, StartTag) else {}
        part = names.get(usual_name(said.get("PartName", "")))
        if part is None:
            continue
        if text_type := _TEXT_TYPE.fullmatch(said.get("ContentType", "")):
            parts.append((_ORDER.index(text_type[1]), part))
        elif said.get("ContentType") == _STYLES_TYPE:
            styles = part
    if not any(order == 0 for order, _ in parts):
        raise DataError(f"{name} is no DOCX file: it has no document of Word in it")
    return [part for _, part in sorted(set(parts))], styles


def _text_part(data: bytes, name: str, body: Area) -> _TextPart:
    by_place: dict[tuple[int, int], WordParagraph] = {}
    passages: list[tuple[Passage, Callable[[], str]]] = []
    in_box = partial(body.next, "text box paragraph")
    for outer, area in paragraphs(data, name, body):
        # A text box contains paragraphs of its own, within a run of the paragraph that anchors it.
        for element in (outer, *(inner for inner in outer.within() if inner.tag.name == f"{WORD}p")):
            paragraph = WordParagraph(data, element)
            if paragraph.passage is not None:
                passages.append((paragraph.passage, area.next_paragraph if element is outer else in_box))
                by_place[paragraph.passage.start, paragraph.passage.end] = paragraph
    passages.sort(key=lambda item: (item[0].start, -item[0].end))
    return _TextPart(data, by_place, [passage for passage, _ in passages], [name_next() for _, name_next in passages])


def _filled_part(part: _TextPart, fillings: Sequence[Filling | None]) -> bytes:
    # Latin-1 decodes each byte to one character, so positions count bytes.
    text = part.data.decode("latin-1")

    def write(passage: Passage, translation: str, source: Callable[[tuple[int, int]], str]) -> str:
        paragraph = part.paragraphs[passage.start, passage.end]
        return paragraph.filled(translation, lambda place: source(place).encode("latin-1")).decode("latin-1")

    done = changes(text, part.passages, fillings, write)
    return spliced(part.data, [Splice(start, end, new.encode("latin-1")) for start, end, new in done])


def _like(info: ZipInfo) -> ZipInfo:
    """Return a new archive entry with the metadata of an existing one."""
    copy = ZipInfo(info.filename, info.date_time)
    copy.compress_type, copy.comment, copy.extra = info.compress_type, info.comment, info.extra
    copy.create_system, copy.external_attr, copy.internal_attr = (
        info.create_system,
        info.external_attr,
        info.internal_attr,
    )
    return copy


def in_language(data: bytes, name: str, language: str) -> bytes:
    """Return styles in another language: each `w:lang` that equals the first one, that of the defaults, is changed.

    Args:
        data: Content of the part with the styles.
        name: Name of the part in messages.
        language: The new language; a variant of it stays.

    Raises:
        DataError: As `word_events`.
    """
    language = language.replace("_", "-")
    events = word_events(data, name)
    elements = [
        with_positions(read_element(events, event, math.inf), data)
        for event in events
        if isinstance(event, StartTag) and event.name == f"{WORD}lang"
    ]
    usual = elements[0].tag.attributes.get(f"{WORD}val", "") if elements else ""
    if not usual or is_variant(usual, language):
        return data
    splices: list[Splice] = []
    for element in elements:
        if element.tag.attributes.get(f"{WORD}val") == usual:
            tag = data[element.start : element.content].decode()
            splices.append(Splice(element.start, element.content, _in_language(tag, language).encode()))
    return spliced(data, splices)


def _in_language(tag: str, language: str) -> str:
    """Return a `w:lang` with another language; East Asian and right-to-left text have an attribute of their own."""
    prefix = match[1] or "" if (match := _ATTRIBUTE.search(tag)) else ""
    tag = with_attribute(tag, f"{prefix}val", language)
    if without_region(language) in _EAST_ASIAN:
        return with_attribute(tag, f"{prefix}eastAsia", language)
    return with_attribute(tag, f"{prefix}bidi", language) if is_right_to_left(language) else tag

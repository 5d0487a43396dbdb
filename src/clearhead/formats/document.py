"""Document interface: text segments of a file, and the file filled with their translations."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

from clearhead.text.lines import percent

MEMORY_NOTE = "translation memory"
"""First words of a note about a translation-memory match."""
FLAG_NOTE = "to check"
"""First words of a note about a flag."""


class LengthLimit(NamedTuple):
    """A limit of a file for the length of the translation of a unit, which may have several segments."""

    unit: int
    """Number of the unit; its segments have equal limits."""
    most: int
    """Maximum number of characters."""


@dataclass(frozen=True, slots=True)
class DocumentSegment:
    """A unit of text in a document, translated separately."""

    text: str
    """Text for the model: escapes of the format decoded, meaningful line breaks kept."""
    line: int
    """Line number of its start in the file, counted from 1."""
    translation: str = ""
    """Existing translation in a bilingual format; empty if there is none."""
    is_finished: bool = False
    """Whether the file has a translation and does not mark it as unfinished."""
    format: str = ""
    """Flag of gettext that names the rules of its formats, such as `c-format`; empty if it has none."""
    links: Collection[int] = frozenset()
    """Numbers of the pairs of tags in its text that are links, which are not nested; see `repaired_tags`."""
    place: str = ""
    """Where it is, as readers of the file name it, such as `table 1, row 2, cell 1`; empty for its line."""
    context: str | None = None
    """As in `SentencePair`."""
    limit: LengthLimit | None = None
    """Limit of the length of its translation; None without one."""

    @property
    def shown_place(self) -> str:
        """Where it is, as readers of the file name it: its line, unless the format knows better."""
        return self.place or f"line {self.line}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A translation-memory match for a segment."""

    source: str
    target: str
    similarity: float
    """Similarity of its source to the segment's text; 1 is an exact match."""
    is_used: bool = False
    """Whether its target was used as the translation."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"

    @property
    def percent(self) -> int:
        """The similarity as a percentage, rounded down; 100 is exact."""
        return percent(self.similarity)


@dataclass(frozen=True, slots=True)
class Filling:
    """A translation to write in place of a segment's text, or next to it in a bilingual format."""

    text: str
    note: str = ""
    """Remarks for readers of the file, one per line; written only in formats that have a field for notes."""
    suggestion: Suggestion | None = None
    """Translation-memory match, written like the note."""
    is_reviewed: bool = False
    """Whether a person has accepted or written it; a format with states then marks it as translated and not for
    review."""
    confidence: float | None = None
    """The model's own estimate of its quality, from 0 to 1; written only in formats that have a field for it."""


_WATCH: ContextVar[Callable[[Document, DocumentSegment], None] | None] = ContextVar(
    "watch of the reading", default=None
)


@contextmanager
def watched_by(watch: Callable[[Document, DocumentSegment], None]) -> Iterator[None]:
    """Let `watch` see every segment of the documents that this thread reads within the block, as it is found.

    Args:
        watch: Takes the document and the segment; what it raises ends the reading.
    """
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


class Document(ABC):
    """A file read completely: its segments in file order, and the bytes around them."""

    format: str
    """Name of the format for messages, such as `gettext catalogue`."""
    segments: Sequence[DocumentSegment]
    """Segments in file order."""
    skipped: Sequence[int] = ()
    """Lines of damaged units that were left out, as asked for."""
    remarks: Sequence[str] = ()
    """What a translator must know about the file, such as how many of its paragraphs are left as they are."""
    target_languages: Collection[str] = ()
    """Languages that the file names for its translations."""
    language = ""
    """Language of the translations, which `filled` writes where the file names its language; empty changes nothing.
    `translate_document` sets it if there are translations."""
    keeps_finished = False
    """Whether the file is bilingual; finished translations are then kept unless the caller asks to replace them."""
    unwritable: re.Pattern[str] | None = re.compile("\0")
    """Pattern of the characters that the format does not have: NUL in a file of text."""

    @abstractmethod
    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted.

        Args:
            fillings: One per segment; None leaves a segment unchanged. If all are None, the result equals the file byte
                for byte, or differs only as the format's page says.

        Raises:
            DataError: If the format cannot represent a text; the message gives the segment's line.
        """

    def filled_in(self, language: str, fillings: Sequence[Filling | None]) -> bytes:
        """Set `language`, and return what `filled` returns."""
        self.language = language
        return self.filled(fillings)

    def watched(self, segment: DocumentSegment) -> DocumentSegment:
        """Return a new segment, after `watched_by` has seen it."""
        if (watch := _WATCH.get()) is not None:
            watch(self, segment)
        return segment

    def problem(self, number: int, translation: str) -> str:
        """Return why the format cannot express a translation, so that `filled` would keep the segment's source text.

        Args:
            number: Index of the segment.
            translation: Text with the tags of the segment.

        Returns:
            A reason for the reviewer; empty if the translation can be written.
        """
        match = self.unwritable.search(translation) if self.unwritable else None
        return f"its translation holds U+{ord(match[0]):04X}, which the format does not have" if match else ""

    def problem_of_edit(self, number: int, text: str) -> str:
        """Return why a translation that a person wrote cannot be written, as `problem` does for one of the model.

        Args:
            number: Index of the segment.
            text: Text with the tags of the segment.
        """
        return self.problem(number, text)


@dataclass(frozen=True, slots=True)
class Splice:
    """A replacement of a range of bytes in a file."""

    start: int
    """Offset of the first replaced byte, counted from 0."""
    end: int
    """Offset after the last replaced byte."""
    replacement: bytes


def spliced(data: bytes, splices: Sequence[Splice]) -> bytes:
    """Return the data with the given byte ranges replaced.

    Args:
        data: Bytes of a file.
        splices: Replacements in file order, without overlaps.

    >>> spliced(b"<p>ja</p>", [Splice(3, 5, b"yes")])
    b'<p>yes</p>'
    """
    parts, end = [], 0
    for splice in splices:
        assert end <= splice.start <= splice.end <= len(data), f"{splice} does not follow {end}"
        parts += [data[end : splice.start], splice.replacement]
        end = splice.end
    return b"".join([*parts, data[end:]])

"""A file as its segments of text, and the same file with their translations in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MEMORY_NOTE", "Document", "Filling", "Segment", "Splice", "Suggestion", "spliced"]

MEMORY_NOTE = "translation memory"
"""What a note about a match begins with."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A text of a document that is translated by itself."""

    text: str
    """As the model is to read it: without the format's escapes, its line breaks as they are meant."""
    line: int
    """Where it begins in the file, counted from 1."""
    translation: str = ""
    """What the file has as its translation, in formats that hold both; empty if there is none."""
    is_finished: bool = False
    """Whether the file has a translation that it does not mark as unfinished."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a translation memory has for a segment."""

    source: str
    target: str
    similarity: float
    """1 is an exact match."""
    is_used: bool = False
    """Whether it is the translation."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"

    @property
    def percent(self) -> int:
        """The similarity, rounded down: 100 is exact."""
        return int(self.similarity * 100 + 1e-9)


@dataclass(frozen=True, slots=True)
class Filling:
    """The translation that takes the place of a segment's text, or stands beside it."""

    text: str
    note: str = ""
    """What whoever reads the file should know of it, a line each; written where the format has a place for that."""
    suggestion: Suggestion | None = None
    """Of a translation memory; written like the note."""


class Document(ABC):
    """A file that was read whole: its segments in order, and the bytes around them."""

    format: str
    """In words, such as `gettext catalogue`."""
    segments: Sequence[Segment]
    """In the order of the file."""
    keeps_finished = False
    """Whether the file has translations beside their sources, whose finished ones stay unless others are asked for."""

    @abstractmethod
    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file with translations in it.

        Args:
            fillings: One for every segment; None leaves it as it is. With None for all of them the file comes back byte
                for byte, or as its format's page says.

        Raises:
            DataError: If the format cannot hold a text, naming the line of the segment.
        """


@dataclass(frozen=True, slots=True)
class Splice:
    """Bytes of a file that others take the place of."""

    start: int
    """Offset of the first one, counted from 0."""
    end: int
    """Offset behind the last one."""
    replacement: bytes


def spliced(data: bytes, splices: Sequence[Splice]) -> bytes:
    """Return data in which some places are replaced, and nothing else.

    Args:
        data: Bytes of a file.
        splices: In order, none of them over another.

    >>> spliced(b"<p>ja</p>", [Splice(3, 5, b"yes")])
    b'<p>yes</p>'
    """
    parts, end = [], 0
    for splice in splices:
        assert end <= splice.start <= splice.end <= len(data), f"{splice} does not follow {end}"
        parts += [data[end : splice.start], splice.replacement]
        end = splice.end
    return b"".join([*parts, data[end:]])

"""Text of a file: decoding, line positions, and replacing ranges of the text."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self

from clearhead.errors import DataError
from clearhead.files.streams import display_name, open_binary
from clearhead.formats.document import Splice, spliced
from clearhead.runtime.lazy import cached_property

MOST_BYTES = 200_000_000
"""Maximum size of a document or catalogue, which is held in memory as a whole together with its segments."""

_UTF32_MARKS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_LINE = re.compile(r"([^\r\n]*+)(\r{0,2}\n|\r|\Z)")

_WITH_STATES = frozenset(
    {"hz", "iso2022_jp", "iso2022_kr", "utf-7", "unicode_escape", "raw_unicode_escape", "punycode", "idna"}
)
"""Stateful encodings, by their Python names: the bytes of a character depend on the characters before it."""

_PART_BYTES = 1_048_576


def read_bytes(path: str) -> bytes:
    """Read a whole file.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.

    Raises:
        DataError: If the file cannot be read, or is larger than `MOST_BYTES`.
    """
    with open_binary(path) as stream:
        data = bytearray()
        while len(data) <= MOST_BYTES and (part := stream.read(_PART_BYTES)):  # one read would reserve all of it
            data += part
    if len(data) > MOST_BYTES:
        raise DataError(
            f"{display_name(path)} has more than {MOST_BYTES // 1_000_000} MB, which is the most that a document or a "
            f"catalogue may have; divide it"
        )
    return bytes(data)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text, as character positions."""

    number: int
    """Line number, counted from 1."""
    start: int
    end: int
    """Position after its last character, before its line ending."""
    next: int
    """Position after its line ending; the last line may have none."""


@dataclass(frozen=True)
class FileText:
    """A text file read completely. Positions count characters of `text`."""

    path: str
    """Name of the file in messages."""
    data: bytes = field(repr=False)
    """All bytes of the file."""
    text: str = field(repr=False)
    """Decoded text, without the byte order mark."""
    encoding: str
    """Python name of the encoding; `utf-16-le` or `utf-16-be` if the file begins with that byte order mark."""
    mark_bytes: int
    """Size of the byte order mark, in bytes."""

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a file of UTF-8 text, or of UTF-16 text with a byte order mark.

        Args:
            path: The file; `-` is standard input.

        Raises:
            DataError: If the file cannot be read, is too large, or is not valid text; the message gives line and byte.
        """
        return cls.of(read_bytes(path), path)

    @classmethod
    def of(cls, data: bytes, path: str, encoding: str = "utf-8") -> Self:
        """Decode the bytes of a file.

        Args:
            data: All bytes of the file.
            path: Name of the file in messages; `-` is standard input.
            encoding: Encoding to use if there is no byte order mark; must be stateless.

        Raises:
            DataError: If the bytes are not valid text; the message gives line and byte.
        """
        name = display_name(path)
        if data.startswith(_UTF32_MARKS):
            raise DataError(f"{name} looks like UTF-32; convert: iconv -f UTF-32 -t UTF-8")
        mark, encoding = next(((mark, code) for mark, code in _MARKS.items() if data.startswith(mark)), (b"", encoding))
        try:
            text = data[len(mark) :].decode(encoding)
        except UnicodeDecodeError as error:
            at = len(mark) + error.start
            line, byte = data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at)
            is_guess = not mark and encoding == "utf-8"
            advice = "; if it is in another encoding, convert it, such as: iconv -f CP1252 -t UTF-8" if is_guess else ""
            shown = "UTF-16" if encoding.startswith("utf-16") else encoding.upper()
            raise DataError(
                f"{name}, line {line}: byte {byte} (0x{data[at]:02x}) is not valid {shown}{advice}"
            ) from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise DataError(f"{name}, line {line}: there is a NUL (0x00); is it a binary file?")
        return cls(name, data, text, encoding, len(mark))

    def lines(self) -> Iterator[Line]:
        r"""Yield the lines; a line ends with `\n`, `\r\n`, `\r\r\n` (converted twice) or `\r`."""
        number = position = 0
        while position < len(self.text):
            match = _LINE.match(self.text, position)
            assert match is not None
            number, position = number + 1, match.end()
            yield Line(number, match.start(), match.end(1), position)

    @property
    def is_exact(self) -> bool:
        """Whether encoding any part of the text gives exactly the bytes of the file.

        `replaced` finds a position by encoding the text before it, but some encodings can write a text in several ways.
        """
        is_stateless = codecs.lookup(self.encoding).name not in _WITH_STATES
        return is_stateless and self.text.encode(self.encoding) == self.data[self.mark_bytes :]

    @property
    def line_end(self) -> str:
        r"""Line ending of the first line; `\n` if it has none."""
        first = next(self.lines(), None)
        return (self.text[first.end : first.next] if first is not None else "") or "\n"

    def line(self, position: int) -> int:
        """Return the line number of a position, counted from 1."""
        return max(bisect_right(self._starts, position), 1)

    def refuse(self, position: int, problem: str) -> DataError:
        """Return a `DataError` that names the file and the line of a position."""
        return DataError(f"{self.path}, line {self.line(position)}: {problem}")

    def replaced(self, changes: Iterable[tuple[int, int, str]]) -> bytes:
        """Return the file's bytes with ranges of its text replaced.

        Args:
            changes: Start, end and new text of each range, in order and without overlaps.

        Raises:
            DataError: If a new text contains half of a surrogate pair.
        """
        splices: list[Splice] = []
        position, offset = 0, self.mark_bytes
        for start, end, text in changes:
            first = offset + len(self.text[position:start].encode(self.encoding))
            position, offset = end, first + len(self.text[start:end].encode(self.encoding))
            try:
                splices.append(Splice(first, offset, text.encode(self.encoding)))
            except UnicodeEncodeError:
                raise self.refuse(start, "the translation holds half of a surrogate pair, no character") from None
        return spliced(self.data, splices)

    @cached_property
    def _starts(self) -> list[int]:
        return [line.start for line in self.lines()]

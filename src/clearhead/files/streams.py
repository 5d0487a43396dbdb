"""UTF-8 lines or bytes as streams, plain or compressed: read with file and line in errors, written atomically."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, TextIO

from clearhead.errors import DataError
from clearhead.files.writing import blocked_by, is_leftover, is_standard_output, new_file
from clearhead.text.lines import first_few

COMPRESSIONS = (".gz", ".xz", ".zst")
"""Extensions of files that are decompressed when read and compressed when written."""

MOST_LINE_BYTES = 16 * 2**20
"""Maximum size of a line; a longer one is no text in lines, and would need many times its size in memory."""

PIECE_BYTES = 1024
"""Compressed bytes that are decompressed at once: zstd makes at most 32 MB of them."""
SHOWN_NAMES = 3

COMPRESSED_STARTS = {
    b"\x1f\x8b": "is compressed with gzip; give it the extension .gz",
    b"\xfd7zXZ": "is compressed with xz; give it the extension .xz",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; give it the extension .zst",
}
"""First bytes of compressed formats, with advice for files without the matching extension."""
# First bytes of other encodings, with advice. UTF-32 comes first, because its mark begins with UTF-16's.
FOREIGN_STARTS = {
    b"\xff\xfe\0\0": "looks like UTF-32; convert: iconv -f UTF-32 -t UTF-8",
    b"\0\0\xfe\xff": "looks like UTF-32; convert: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": "looks like UTF-16; convert: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "looks like UTF-16; convert: iconv -f UTF-16 -t UTF-8",
    **COMPRESSED_STARTS,
}
UTF8_MARK = b"\xef\xbb\xbf"


def format_extension(path: str) -> str:
    """Return the extension of a file's format, below any compression; empty if there is none.

    >>> format_extension("a/b.PO.gz"), format_extension("notes.gz"), format_extension("-")
    ('.po', '', '')
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_lines(path: str) -> Iterator[str]:
    r"""Stream the lines of a UTF-8 file, without line ends.

    Only `\n` ends a line; one `\r` before it belongs to the line end. U+2028, a form feed or a lone `\r` are text, as
    they are for `wc -l` and for the other file of a parallel corpus. A byte order mark at the start is removed, and a
    last line without `\n` counts.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.

    Raises:
        DataError: While reading, if the file is missing, a directory, unreadable, damaged, or not UTF-8 text, or a line
            is longer than `MOST_LINE_BYTES`; includes the line and the byte within it, both counted from 1.
    """
    name = display_name(path)
    with open_binary(path) as stream:
        for number, raw in enumerate(iter(lambda: stream.readline(MOST_LINE_BYTES + 1), b""), start=1):
            if len(raw) > MOST_LINE_BYTES:
                raise DataError(
                    f"{name}, line {number}: the line is longer than {MOST_LINE_BYTES // 2**20} MB; divide it, each "
                    f"sentence or paragraph on a line of its own"
                )
            yield _decoded(raw, name, number)


@contextmanager
def open_binary(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading decompressed bytes; any error becomes a one-line `DataError`.

    Args:
        path: The file; `-` is standard input, which stays open; `.gz`, `.xz` and `.zst` are decompressed.

    Raises:
        DataError: At once or while reading, if the file is missing, a directory, unreadable or damaged.
    """
    name = display_name(path)
    try:
        with _opened(path) as stream:
            yield stream
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a directory; give a file") from None
    except EOFError:
        raise DataError(f"{name} is cut off: its compressed data ends too early; make or fetch it again") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, _zstd().ZstdError) as error:
        raise DataError(f"{name} cannot be decompressed, it is damaged or has the wrong extension: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from None


@contextmanager
def open_output(path: str | None) -> Iterator[TextIO]:
    r"""Open a UTF-8 text file for atomic writing: it appears only when complete.

    Devices and pipes are written directly. Lines end with `\n` on every system.

    Args:
        path: The file; `None`, `-` or `/dev/stdout` is standard output; `.gz`, `.xz` and `.zst` are compressed.

    Raises:
        DataError: If the file cannot be written, the disk is full, or the text contains half of a surrogate pair.
        BrokenPipeError: Passed on unchanged, if the reader of standard output has closed it.
    """
    name = "standard output" if is_standard_output(path) else str(path)
    try:
        if path is None or is_standard_output(path):
            with _standard_output() as text:
                yield text
        else:
            with whole_or_absent(path) as written, _text_in(written, Path(path).suffix.lower()) as text:
                yield text
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise DataError(f"cannot write {name}: U+{code:04X} is half of a surrogate pair, not a character") from None
    except BrokenPipeError:
        raise
    except OSError as error:
        # Errors of writing to an open file have no file name; one with another file's name comes from the block itself.
        if error.filename is not None and not _belongs_to(Path(str(error.filename)), name):
            raise
        raise DataError(f"cannot write {name}: {error.strerror or error}") from None


def _belongs_to(written: Path, name: str) -> bool:
    """Return whether a path is the output file or its temporary file."""
    final = Path(os.path.realpath(name))
    return written in (Path(name), final) or (written.parent == final.parent and is_leftover(written.name))


def display_name(path: str) -> str:
    """Return the name of an input file for messages: `-` is "standard input"."""
    return "standard input" if path == "-" else path


def some_names(paths: Sequence[str]) -> str:
    """Return the names of several input files for messages: the first few, and the number of the others."""
    return first_few([display_name(path) for path in paths], SHOWN_NAMES)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        suffix = Path(path).suffix.lower()
        if suffix in COMPRESSIONS and not file.peek(1):
            raise EOFError  # gzip would accept an empty file as empty text
        with closing(_decompressed(file, suffix)) as stream:
            yield stream


def _decompressed(file: io.BufferedReader, suffix: str) -> IO[bytes]:
    match suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
        case ".xz":
            return io.BufferedReader(_StreamReader(file, lzma.LZMADecompressor, padding=b"\0"))
        case ".zst":
            return io.BufferedReader(_StreamReader(file, _zstd().ZstdDecompressor))
        case _:
            return file


def _zstd() -> Any:
    """Return the module of the library, imported when it is needed."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


class _StreamReader(io.RawIOBase):
    """Decompressed bytes of a file of one or more compressed streams.

    It rejects truncated or damaged streams anywhere in the file. The libraries' own readers accept a truncated zstd
    file as complete, and ignore data after the first xz stream if it does not begin like another stream.

    Args:
        file: The compressed bytes.
        make_decompressor: Function that returns a decompressor for one stream.
        padding: Bytes allowed between and after streams.
    """

    def __init__(self, file: IO[bytes], make_decompressor: Callable[[], Any], padding: bytes = b"") -> None:
        self._file = file
        self._make_decompressor = make_decompressor
        self._padding = padding
        self._stream = make_decompressor()
        self._compressed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with the next bytes and return their number; 0 is the end."""
        while not self._text:
            chunk = self._compressed or self._file.read(PIECE_BYTES)
            self._compressed = b""
            if not chunk:
                if not self._stream.eof:
                    raise EOFError
                return 0
            if self._stream.eof:
                if not (chunk := chunk.lstrip(self._padding)):
                    continue
                self._stream = self._make_decompressor()
            self._text = memoryview(self._stream.decompress(chunk))
            self._compressed = self._stream.unused_data if self._stream.eof else b""
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count


def refuse_foreign(start: bytes, name: str) -> None:
    """Reject bytes that begin like compressed data, UTF-16 or UTF-32; expected is UTF-8 or an older 8-bit encoding.

    Raises:
        DataError: With the probable format and advice.
    """
    for mark, advice in FOREIGN_STARTS.items():
        if start.startswith(mark):
            raise DataError(f"{name} {advice}")


def _decoded(raw: bytes, name: str, number: int) -> str:
    offset = 0
    if number == 1:
        refuse_foreign(raw, name)
        if raw.startswith(UTF8_MARK):
            offset = len(UTF8_MARK)
    if b"\0" in raw:
        raise DataError(f"{name}, line {number}: byte {raw.index(0) + 1} is NUL (0x00); is it a binary file?")
    raw = raw[offset:].removesuffix(b"\n").removesuffix(b"\r")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, line {number}: byte {offset + error.start + 1} (0x{raw[error.start]:02x}) is not valid UTF-8; "
            f"if the text is in another encoding, convert it, for example: iconv -f ISO-8859-1 -t UTF-8"
        ) from None


@contextmanager
def _standard_output() -> Iterator[TextIO]:
    sys.stdout.flush()
    text = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        yield text
        text.flush()
    finally:
        # Detached, not closed, because standard output outlives this block. Text that could not be flushed is lost.
        with suppress(OSError, ValueError):
            text.detach()


def refuse_unwritable(path: str) -> None:
    """Check that a file can be written, as far as possible without writing.

    Raises:
        DataError: If it has no name, is a directory or read-only, or its directory is read-only or cannot be made.
    """
    if not path:
        raise DataError("cannot write '': a file needs a name")
    final = Path(os.path.realpath(path))  # through a link, so that the link is kept
    if final.is_dir():
        raise DataError(f"cannot write {path}: it is a directory")
    if final.exists() and not os.access(final, os.W_OK):
        raise DataError(f"cannot write {path}: the file is there and may not be changed")
    if not os.path.exists(path) and (above := blocked_by(final)):  # a pipe of the shell has no directory
        raise DataError(f"cannot write {path}: {above} is not a directory that may be changed")


@contextmanager
def whole_or_absent(path: str) -> Iterator[Path]:
    """Check that a file can be written, and yield the path to write to: a temporary file, or a device or pipe itself.

    Missing directories above it are made.

    Raises:
        DataError: If the file cannot be written, see `refuse_unwritable`.
        OSError: Errors of writing in the block, unchanged.
    """
    refuse_unwritable(path)
    # Not the resolved path: the target of a pipe's link in /dev/fd has no path.
    is_direct = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    if not is_direct:
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    with nullcontext(Path(path)) if is_direct else new_file(path) as written:
        yield written


@contextmanager
def _text_in(written: Path, suffix: str) -> Iterator[TextIO]:
    with open(written, "wb") as file:
        text = io.TextIOWrapper(_compressed(file, suffix), encoding="utf-8", newline="\n")
        try:
            yield text
            text.close()  # writes the end of a compressed stream
        finally:
            with suppress(OSError, ValueError):
                text.close()


def _compressed(file: IO[bytes], suffix: str) -> Any:
    match suffix:
        case ".gz":
            return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)  # same text, same bytes
        case ".xz":
            return lzma.LZMAFile(file, "wb")
        case ".zst":
            zstd = _zstd()
            return zstd.ZstdFile(file, "wb", options={zstd.CompressionParameter.checksum_flag: 1})
        case _:
            return file

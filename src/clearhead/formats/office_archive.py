"""Zip archives of office programs (DOCX, XLSX): opening them, with bounds on what they unpack to."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from clearhead.errors import DataError

MOST_PART_BYTES = 64_000_000
"""Maximum size of a part with text, unpacked."""
MOST_RATIO = 300
"""Maximum size of a part with text, unpacked, as a multiple of its packed size; a table of numbers reaches 64, an
empty one 255."""
MOST_UNCHECKED_BYTES = 2_000_000
"""Size of a part up to which its ratio does not matter."""
MOST_UNPACKED_BYTES = 1_000_000_000
"""Maximum size of all parts together, unpacked."""

_OLE_START = b"\xd0\xcf\x11\xe0"


class OfficeFormat(NamedTuple):
    """Names of a format in messages."""

    name: str
    program: str
    """The program that writes it."""


WORD_FILE = OfficeFormat("DOCX", "Word")
EXCEL_FILE = OfficeFormat("XLSX", "Excel")


@contextmanager
def opened_archive(data: bytes, name: str, kind: OfficeFormat) -> Iterator[ZipFile]:
    """Open an archive, and convert every error of reading it to `DataError`.

    Args:
        data: All bytes of the file.
        name: Name of the file in messages.
        kind: The expected format.
    """
    if data.startswith(_OLE_START):
        raise DataError(
            f"{name} is encrypted, or in {kind.program}'s old format; save it in {kind.program} as {kind.name} without "
            f"a password"
        )
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            yield archive
    except (
        BadZipFile,
        EOFError,
        KeyError,
        NotImplementedError,
        OSError,
        RuntimeError,
        ValueError,
        zlib.error,
    ) as error:
        raise DataError(f"{name} is no {kind.name} file, or is damaged: {error}") from None


def part_names(archive: ZipFile, name: str, kind: OfficeFormat) -> dict[str, str]:
    """Return the names of the parts, by their form for comparison (`usual_name`).

    Raises:
        DataError: If two are the same, one is encrypted, or they would be too large together.
    """
    infos = archive.infolist()
    names = {usual_name(info.filename): info.filename for info in infos}
    if len(names) < len(infos):
        raise DataError(f"{name} holds two parts of the same name; save it again in {kind.program}")
    if any(info.flag_bits & 1 for info in infos):
        raise DataError(f"{name} is encrypted; save it without a password")
    if sum(info.file_size for info in infos) > MOST_UNPACKED_BYTES:
        raise DataError(
            f"{name} would have more than {MOST_UNPACKED_BYTES // 1_000_000:,} MB when unpacked; it is refused"
        )
    return names


def usual_name(part: str) -> str:
    """Return the name of a part as names are compared: without capitals, backslashes and a slash at the start."""
    return part.replace("\\", "/").removeprefix("/").casefold()


def unpacked_part(archive: ZipFile, part: str, name: str) -> bytes:
    """Return the content of a part.

    Raises:
        DataError: If it is too large.
    """
    info = archive.getinfo(part)
    refuse_bomb(info, name)
    with archive.open(info) as file:
        data = file.read(MOST_PART_BYTES + 1)
    if len(data) > MOST_PART_BYTES:
        raise DataError(f"{name}: {part} has more than {MOST_PART_BYTES // 1_000_000} MB when unpacked; it is refused")
    return data


def refuse_bomb(info: ZipInfo, name: str) -> None:
    """Raise `DataError` if a part is many times as large unpacked as packed."""
    if info.file_size > max(MOST_RATIO * info.compress_size, MOST_UNCHECKED_BYTES):
        raise DataError(
            f"{name}: {info.filename} is more than {MOST_RATIO} times as large when unpacked; it is refused"
        )

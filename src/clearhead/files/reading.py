"""Safe reading of text and JSON: regular files only, limited in size and depth; hashes of files and JSON values."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError

MOST_JSON_BYTES = 8 * 2**20
"""Maximum size of a JSON file; one byte of JSON can take up to about 25 bytes of memory."""

MOST_JSON_DEPTH = 32
"""Maximum nesting depth of JSON values; the files that clearhead writes have about 6 levels."""


def require_regular(path: str | Path) -> None:
    """Check that a path, or its link target, is a regular file, because reading a pipe or a device may never end.

    Raises:
        OSError: If the file does not exist or is not regular.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device; it must be a regular file", str(path))


def read_text(path: str | Path, *, most_bytes: int = MOST_JSON_BYTES, errors: str = "strict") -> str:
    """Read a regular file of UTF-8 text.

    Args:
        path: The file.
        most_bytes: Maximum size.
        errors: Handling of bytes that are not UTF-8, one of the `errors` values of `open`.

    Raises:
        OSError: If it cannot be read, or is not a regular file.
        ValueError: If it is not UTF-8, or is larger.
    """
    require_regular(path)
    with open(path, encoding="utf-8", errors=errors) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise ValueError(f"it is larger than {most_bytes:,} bytes")
        return file.read()


def parse_json(text: str) -> Any:
    """Parse JSON of limited depth, whose strings can be encoded as UTF-8.

    Raises:
        ValueError: If the text is not such JSON.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {MOST_JSON_DEPTH} levels") from None
    level = [value]
    for _ in range(MOST_JSON_DEPTH):
        level = [part for outer in level for part in _parts(outer)]
        if not level:
            return value
    raise ValueError(f"it is nested deeper than {MOST_JSON_DEPTH} levels")


@contextmanager
def os_error_as(kind: type[ClearheadError], what: str) -> Iterator[None]:
    """Turn an `OSError` of the block into one of our errors.

    Args:
        kind: Class of the exception raised.
        what: What is attempted, such as `cannot read runs/de-en/README.md`; the system's reason follows it.

    Raises:
        ClearheadError: A `kind`, if the block raises an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from None


def file_version(path: str | Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written or replaced; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_json(path: str | Path, error: type[ClearheadError]) -> dict[str, Any]:
    """Read a JSON object from a regular file.

    Args:
        path: The file.
        error: Class of the exceptions raised.

    Raises:
        ClearheadError: An `error` with the file's name, if it cannot be read, is too large or deep, or is not an
            object.
    """
    try:
        value = parse_json(read_text(path))
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}") from None
    except ValueError as problem:
        raise error(f"{path} is damaged: {problem}") from None
    if not isinstance(value, dict):
        raise error(f"{path} is damaged: it must hold a JSON object")
    return value


def read_json_lines(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Read a regular file with a JSON value on each line; blank lines are skipped.

    Yields:
        The line number, counted from 1, and the line's value; if the line is invalid, a `ValueError` with the reason
        instead of the value.

    Raises:
        OSError: If the file cannot be read, or is not a regular file.
    """
    require_regular(path)
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MOST_JSON_BYTES):
            number += 1
            if line.strip():
                try:
                    yield number, parse_json(line.decode("utf-8"))
                except ValueError as error:
                    yield number, error


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a regular file's bytes, in hexadecimal.

    Raises:
        OSError: If it cannot be read, or is not a regular file.
    """
    require_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a JSON value, independent of its layout and the order of its keys."""
    said = json.loads(json.dumps(value))  # tuples become lists, as they will when it is read again
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _parts(value: Any) -> list[Any]:
    match value:
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError("a string holds half of a surrogate pair, which is no character") from None
            return []
        case dict():
            return [*value, *value.values()]
        case list():
            return value
        case _:
            return []

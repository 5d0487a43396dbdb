"""Journals of unfinished work beside the output file; translations are reused under the same model and settings.

The first line is a digest of everything that determines the values, such as the model, the settings and the version.
Every other line is a value with its checksum. A journal of another origin is never used, nor is a line that was
changed. A file of its name that is no journal is left as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO

from pydantic import TypeAdapter

from clearhead.errors import DataError
from clearhead.files import json_sha256, open_own
from clearhead.translation.result import Translation

LONGEST_NAME = 255
"""Maximum length of a file name in bytes on most file systems."""

_LINE = TypeAdapter(Translation)

_HEAD = re.compile(rb'\{"journal_origin": "[0-9a-f]{64}"\}\n')
"""First line of a journal."""
_LONGEST_HEAD = len('{"journal_origin": ""}\n') + 64


def journal_path(output: str | Path, of: str = "progress") -> Path:
    """Return the path of the journal of an output file: a hidden file beside it.

    Args:
        output: The output file.
        of: What it keeps: the `progress` of a translation, or a `review`.

    >>> journal_path("texts/messages.de.json").as_posix()
    'texts/.messages.de.json.progress.jsonl'
    """
    return hidden_path(Path(output), f".{Path(output).name}.{of}.jsonl", ending=f".{of}.jsonl")


def hidden_path(document: Path, name: str, *, ending: str) -> Path:
    """Return the path of a hidden file beside a document.

    Args:
        document: The document.
        name: Name of the hidden file; its checksum and the `ending` take its place if it is too long.
        ending: End of the name, by which its format is known.
    """
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(name)).hexdigest()}{ending}"
    return document.with_name(name)


class Journal:
    """A file of values, one a line with a checksum, which are on disk when `add` returns; threads may share it.

    Args:
        path: The file; it need not exist.
        origin: Everything that determines the values, as JSON values.
        kept: What is kept in the file, for messages.

    Raises:
        DataError: If the file cannot be read, or is not a journal.
    """

    def __init__(self, path: Path, origin: Mapping[str, object], *, kept: str) -> None:
        self.path = path
        self.values: list[bytes] = []
        """The values read from the file."""
        self.num_changed = 0
        """Lines that were changed or damaged, and are not used."""
        self.is_foreign = False
        """Whether the file is the journal of another origin, which the first value added replaces."""
        self._head = json.dumps({"journal_origin": json_sha256(origin)}).encode() + b"\n"
        self._kept = kept
        self._size = 0
        """Bytes of the complete lines."""
        self._inode: tuple[int, int] | None = None
        self._lock = Lock()
        try:
            with open_own(path, os.O_RDONLY) as file:
                self._inode = _inode(file)
                self._read(file)
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(f"cannot use {path}, which keeps {kept}: {error.strerror}") from None

    def _read(self, file: IO[bytes]) -> None:
        head = file.readline(_LONGEST_HEAD)
        if head != self._head:
            self.is_foreign = _HEAD.fullmatch(head) is not None
            if not self.is_foreign and (not self._head.startswith(head) or file.read(1)):  # more than a beginning of it
                raise DataError(
                    f"{self.path} is not a journal of this program, and {self._kept} would be kept there; move that "
                    f"file away, or name another output"
                )
            return
        self._size = len(head)
        for line in file:
            if line.endswith(b"\n"):  # otherwise its writer was killed
                self._size += len(line)
                checksum, _, value = line[:-1].partition(b" ")
                if checksum == self._checksum(value):
                    self.values.append(value)
                else:
                    self.num_changed += 1

    def _checksum(self, value: bytes) -> bytes:
        return hashlib.sha256(self._head + value).hexdigest()[:32].encode()

    def add(self, values: Iterable[bytes]) -> None:
        """Append values, and wait until they are on disk.

        Raises:
            DataError: If they cannot be written, or the file was replaced.
        """
        lines = b"".join(self._checksum(value) + b" " + value + b"\n" for value in values)
        try:
            with self._lock:
                self._append(lines)
        except OSError as error:
            raise DataError(f"cannot write {self.path}, which keeps {self._kept}: {error.strerror}") from None

    def _append(self, lines: bytes) -> None:
        new = os.O_CREAT | os.O_EXCL if self._inode is None else 0
        with open_own(self.path, os.O_WRONLY | os.O_APPEND | new) as file:
            if self._inode not in (None, _inode(file)):
                raise DataError(f"cannot write {self.path}, which keeps {self._kept}: it is another file by now")
            self._inode = _inode(file)
            file.truncate(self._size)  # without the beginning of a line whose writer was killed
            written = lines if self._size else self._head + lines
            try:
                _write(file.fileno(), written)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), self._size)  # what is told as not written must not be read later
                raise
            self._size += len(written)

    def remove(self) -> None:
        """Remove the file, if this journal was read from it or written to it."""
        if self._inode is not None:
            self.path.unlink(missing_ok=True)
            self._inode, self._size = None, 0


class TranslationJournal:
    """A file to which translations are appended, with those read from it when it was opened."""

    def __init__(self, path: Path, origin: Mapping[str, object], *, notice: Callable[[str], None]) -> None:
        """Read the translations of an earlier run with the same origin; an incomplete last line is dropped.

        Args:
            path: The file; it need not exist.
            origin: Everything that determines the translations, as JSON values.
            notice: Called with a line that explains why an existing journal, or a part of it, is not used.

        Raises:
            DataError: If the file cannot be read, or is not a journal.
        """
        self.path = path
        self._journal = Journal(path, origin, kept="the progress of this work")
        if self._journal.is_foreign:
            notice(f"{path} was made with another model, version or other settings; the work begins anew")
        if self._journal.num_changed:
            notice(f"{path}: {self._journal.num_changed:,} lines of it were changed or damaged, and are not used")
        translations = map(_LINE.validate_json, self._journal.values)
        self.translations = {translation.source: translation for translation in translations}
        """Translations by their source: those read from the file."""

    def add(self, translations: Iterable[Translation]) -> None:
        """Append translations, and wait until they are on disk.

        Raises:
            DataError: If they cannot be written, or the file was replaced.
        """
        self._journal.add(map(_LINE.dump_json, translations))

    def remove(self) -> None:
        """Remove the file, if this journal was read from it or written to it."""
        self._journal.remove()


def _write(descriptor: int, data: bytes) -> None:
    """Write data without a buffer, of which the rest would be written when the file is closed, and flush it to disk."""
    while data:
        data = data[os.write(descriptor, data) :]
    os.fsync(descriptor)


def _inode(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino

"""Journal of unfinished work: translations saved beside the output file, reused under the same model and settings.

The first line is a digest of everything that determines the translations: the model, the settings and the version.
Every other line is a translation with its checksum. A journal of another model or other settings is never used, nor is
a line that was changed. A file of its name that is no journal is left as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
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


def journal_path(output: str | Path) -> Path:
    """Return the path of the journal of an output file: a hidden file beside it.

    >>> journal_path("texts/messages.de.json").as_posix()
    'texts/.messages.de.json.progress.jsonl'
    """
    name = f".{Path(output).name}.progress.jsonl"
    if len(os.fsencode(name)) > LONGEST_NAME:
        name = f".{hashlib.sha256(os.fsencode(name)).hexdigest()}.progress.jsonl"
    return Path(output).with_name(name)


class TranslationJournal:
    """A file to which translations are appended, with those read from it when it was opened."""

    def __init__(self, path: Path, origin: Mapping[str, object], *, notice: Callable[[str], None]) -> None:
        """Read the translations of an earlier run with the same origin; an incomplete last line is dropped.

        Args:
            path: The file; it need not exist.
            origin: Everything that determines the translations, as JSON values.
            notice: Called with a line that explains why an existing journal, or a part of it, is not used.

        Raises:
            DataError: If the file cannot be read or changed, or is not a journal.
        """
        self.path = path
        self.translations: dict[str, Translation] = {}
        """Translations by their source: those read from the file."""
        self._head = json.dumps({"journal_origin": json_sha256(origin)}).encode() + b"\n"
        self._inode: tuple[int, int] | None = None
        try:
            with open_own(path, os.O_RDWR) as file:
                self._inode = _inode(file)
                file.truncate(self._read(file, notice))
        except FileNotFoundError:
            return
        except OSError as error:
            raise DataError(f"cannot use {path}, which keeps the progress of this work: {error.strerror}") from None

    def _read(self, file: IO[bytes], notice: Callable[[str], None]) -> int:
        """Read the translations, and return the length of the complete lines in bytes; 0 to begin anew."""
        head = file.readline(_LONGEST_HEAD)
        if head != self._head:
            if _HEAD.fullmatch(head):
                notice(f"{self.path} was made with another model, version or other settings; the work begins anew")
            elif not self._head.startswith(head) or file.read(1):  # more than a beginning of the line
                raise DataError(
                    f"{self.path} is not a journal of translations, and the progress of this work would be kept there; "
                    f"move that file away, or name another output"
                )
            return 0
        size, num_changed = len(head), 0
        for line in file:
            if line.endswith(b"\n"):
                size += len(line)
                checksum, _, value = line[:-1].partition(b" ")
                if checksum != self._checksum(value):
                    num_changed += 1
                    continue
                translation = _LINE.validate_json(value)
                self.translations[translation.source] = translation
        if num_changed:
            notice(f"{self.path}: {num_changed:,} lines of it were changed or damaged, and are not used")
        return size

    def _checksum(self, value: bytes) -> bytes:
        return hashlib.sha256(self._head + value).hexdigest()[:32].encode()

    def add(self, translations: Iterable[Translation]) -> None:
        """Append translations, and wait until they are on disk.

        Raises:
            DataError: If they cannot be written, or the file was replaced.
        """
        values = map(_LINE.dump_json, translations)
        written = b"".join(self._checksum(value) + b" " + value + b"\n" for value in values)
        new = os.O_CREAT | os.O_EXCL if self._inode is None else 0
        try:
            with open_own(self.path, os.O_WRONLY | os.O_APPEND | new) as file:
                if self._inode not in (None, _inode(file)):
                    raise DataError(f"cannot write {self.path}, which keeps what is done: it is another file by now")
                self._inode = _inode(file)
                file.write(written if file.seek(0, os.SEEK_END) else self._head + written)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"cannot write {self.path}, which keeps what is done: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the file, if this journal was read from it or written to it."""
        if self._inode is not None:
            self.path.unlink(missing_ok=True)
            self._inode = None


def _inode(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino

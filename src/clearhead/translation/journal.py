"""Journal of unfinished work: translations saved beside the output file, reused under the same model and settings.

The first line is a digest of everything that determines the translations: the model, the settings and the version.
Every other line is a translation. A journal of another model or other settings is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from clearhead.errors import DataError
from clearhead.files import json_sha256, require_regular
from clearhead.translation.result import Translation

LONGEST_NAME = 255
"""Maximum length of a file name in bytes on most file systems."""

_LINE = TypeAdapter(Translation)


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

    def __init__(self, path: Path, origin: Mapping[str, Any], *, notice: Callable[[str], None]) -> None:
        """Read the translations of an earlier run with the same origin; an incomplete last line is dropped.

        Args:
            path: The file; it need not exist.
            origin: Everything that determines the translations, as JSON values.
            notice: Called with a line that explains why an existing journal is not used.

        Raises:
            DataError: If the file cannot be read or changed.
        """
        self.path = path
        self.translations: dict[str, Translation] = {}
        """Translations by their source: those read from the file."""
        self._head = json.dumps({"origin": json_sha256(origin)}).encode() + b"\n"
        try:
            size = self._read()
            os.truncate(path, size)
        except FileNotFoundError:
            return
        except ValueError:
            self.translations.clear()
            os.truncate(path, 0)
            notice(
                f"{path} is damaged, or was made with another model, version or other settings; the work begins anew"
            )
        except OSError as error:
            raise DataError(f"cannot use {path}, which keeps the progress of this work: {error.strerror}") from None

    def _read(self) -> int:
        """Read the translations, and return the length of the complete lines in bytes.

        Raises:
            ValueError: If the journal has another origin, or is damaged.
        """
        require_regular(self.path)
        with open(self.path, "rb") as file:
            head = file.readline()
            if not self._head.startswith(head):
                raise ValueError
            if head != self._head:
                return 0
            size = len(head)
            for line in file:
                if line.endswith(b"\n"):
                    translation = _LINE.validate_json(line)
                    self.translations[translation.source] = translation
                    size += len(line)
        return size

    def add(self, translations: Iterable[Translation]) -> None:
        """Append translations, and wait until they are on disk.

        Raises:
            DataError: If they cannot be written.
        """
        written = b"".join(_LINE.dump_json(one) + b"\n" for one in translations)
        try:
            with open(self.path, "ab") as file:
                file.write(written if file.tell() else self._head + written)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"cannot write {self.path}, which keeps what is done: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.path.unlink(missing_ok=True)

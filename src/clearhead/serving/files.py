"""Reading of uploaded documents, and a temporary store of translated files under random names."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from clearhead.errors import DataError
from clearhead.formats.document import Document
from clearhead.formats.document_files import DOCUMENTS, is_document, read_document
from clearhead.serving.http_errors import HTTPError, unavailable

EXTENSIONS = (".txt", *DOCUMENTS)
"""Extensions of the supported files; `.txt` is plain text in paragraphs."""
MOST_BYTES = 200_000_000
"""Size limit of all stored files together."""
MOST_BYTES_OF_A_CLIENT = MOST_BYTES // 4
"""Size limit of one client's stored files."""


@dataclass(frozen=True, slots=True)
class _File:
    client: str
    path: Path
    size: int
    until: float


class TranslatedFiles:
    """Translated files in a temporary directory, which is removed with the server.

    Args:
        seconds: How long each file is kept.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._directory = TemporaryDirectory(prefix="clearhead-files-")
        self._files: dict[str, _File] = {}
        self._lock = Lock()

    def add(self, client: str, name: str, data: bytes) -> str:
        """Store a file of a client; return its download name: a random part, a dot, and its own name.

        Raises:
            HTTPError: If the files of the client, or of all clients, exceed their size limit.
        """
        self.sweep()
        with self._lock:
            waiting = self._files.values()
            if sum(file.size for file in waiting if file.client == client) + len(data) > MOST_BYTES_OF_A_CLIENT:
                raise HTTPError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too many of your files wait to be fetched; ask again",
                    retry_after=60,
                )
            if sum(file.size for file in waiting) + len(data) > MOST_BYTES:
                raise unavailable("too many files wait to be fetched; ask again", retry_after=60)
            key = secrets.token_hex(16)
            path = Path(self._directory.name) / key
            try:
                path.write_bytes(data)
            except OSError:
                path.unlink(missing_ok=True)  # a partial file would take up disk space until the server ends
                raise
            self._files[f"{key}.{name}"] = _File(client, path, len(data), time.monotonic() + self._seconds)
            return f"{key}.{name}"

    def get(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            HTTPError: If there is no file of that name, or it has expired.
        """
        self.sweep()
        with self._lock:
            file = self._files.get(name)
            if file is None:
                raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such file, or no more")
            return file.path.read_bytes()

    def sweep(self) -> None:
        """Remove expired files."""
        with self._lock:
            for name, file in list(self._files.items()):
                if file.until < time.monotonic():
                    file.path.unlink(missing_ok=True)
                    del self._files[name]

    def close(self) -> None:
        """Remove all files."""
        self._directory.cleanup()


def safe_name(name: str) -> str:
    """Return the name of a file as letters, digits, `_`, `.` and `-`, without its directories.

    >>> safe_name("../../etc/Mein Text.HTML"), safe_name("犬.po")
    ('Mein_Text.HTML', 'file.po')
    """
    own = re.split(r"[/\\]", name)[-1]
    stem, dot, extension = own.rpartition(".")
    plain = [re.sub(r"[^A-Za-z0-9_.-]+", "_", part).strip("._-")[:100] for part in (stem, extension)]
    return f"{plain[0] or 'file'}{dot}{plain[1]}"


def read_upload(name: str, data: bytes) -> Document:
    """Read an uploaded document.

    Args:
        name: A file name as `safe_name` returns it.
        data: Content of the file.

    Raises:
        DataError: If it cannot be read; the message names the file without its temporary directory.
        ConfigError: If `read_document` rejects its options.
    """
    with TemporaryDirectory(prefix="clearhead-upload-") as directory:
        path = Path(directory) / name
        path.write_bytes(data)
        try:
            return read_document(str(path), paragraphs=not is_document(name))
        except DataError as error:
            raise DataError(str(error).replace(f"{directory}/", "")) from None

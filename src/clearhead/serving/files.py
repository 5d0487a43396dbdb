"""Reading of uploaded documents, and a temporary store of translated files under random names."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from clearhead.errors import ConfigError, DataError
from clearhead.formats.document import Document
from clearhead.formats.document_files import DOCUMENTS, PLAIN_TEXT, typed_columns, typed_names
from clearhead.serving.document_process import open_document
from clearhead.serving.http_errors import HTTPError, bad_request, unavailable

EXTENSIONS = (*filter(None, PLAIN_TEXT), *DOCUMENTS)
"""Extensions of the supported files that clients are told; all plain text is read in paragraphs."""
_PREFIX = "clearhead-files-"
_FIELDS = {"--from-lang": "source", "--to-lang": "target", "--columns": "columns", "--keys": "keys"}
"""Options of the command line that are fields of a request."""
_OPTION = re.compile(r"(?<!\S)--[a-z]")
MAX_BYTES = 200_000_000
"""Size limit of all stored files together."""
MAX_BYTES_PER_CLIENT = MAX_BYTES // 4
"""Size limit of one client's stored files."""


@dataclass(frozen=True, slots=True)
class _File:
    client: str
    path: Path
    size: int
    """Bytes of the file and what is kept with it."""
    until: float

    @property
    def report(self) -> Path:
        return self.path.with_name(f"{self.path.name}.report")

    @property
    def review(self) -> Path:
        return self.path.with_name(f"{self.path.name}.review")

    def remove(self) -> None:
        for path in (self.path, self.report, self.review):
            path.unlink(missing_ok=True)


class TranslatedFiles:
    """Translated files, each with a report, in a temporary directory, which is removed with the server.

    Args:
        seconds: How long each file is kept.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._files: dict[str, _File] = {}
        self._lock = Lock()
        self._held = ExitStack()
        self._make_directory()
        _remove_stale_directories(self._directory.parent)

    @property
    def directory(self) -> Path:
        """Directory of the translated files, and of uploads during their translation.

        Some systems remove old temporary files; if the directory is no longer there, a new one is made.
        """
        with self._lock:
            if not self._directory.is_dir() or self._directory.is_symlink():
                self._files.clear()
                self._make_directory()
            return self._directory

    def _make_directory(self) -> None:
        self._held.close()
        with ExitStack() as held:
            made = held.enter_context(TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True))
            self._directory = Path(made)
            held.enter_context(_lock_directory(self._directory))
            self._held = held.pop_all()

    def add(self, client: str, name: str, data: bytes, report: str = "", review: bytes = b"") -> str:
        """Store a file of a client; return its download name: a random part, a dot, and its own name.

        The random part has 128 bits, so only who was told the name knows it.

        Args:
            client: Who may fetch it, for the limits.
            name: Name of the file, from `safe_name`.
            data: Content of the file.
            report: HTML page about its translation, kept as long.
            review: What its review begins with, kept as long.

        Raises:
            HTTPError: If the files of the client, or of all clients, exceed their size limit.
        """
        self.sweep()
        directory = self.directory
        with self._lock:
            waiting, page = self._files.values(), report.encode()
            size = len(data) + len(page) + len(review)
            if sum(file.size for file in waiting if file.client == client) + size > MAX_BYTES_PER_CLIENT:
                raise HTTPError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too many of your files wait to be fetched; ask again",
                    retry_after=60,
                )
            if sum(file.size for file in waiting) + size > MAX_BYTES:
                raise unavailable("too many files wait to be fetched; ask again", retry_after=60)
            key = secrets.token_hex(16)
            file = _File(client, directory / key, size, time.monotonic() + self._seconds)
            try:
                file.path.write_bytes(data)
                file.report.write_bytes(page)
                file.review.write_bytes(review)
            except OSError:
                file.remove()  # a partial file would take up disk space until the server ends
                raise
            self._files[f"{key}.{name}"] = file
            return f"{key}.{name}"

    def get(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            HTTPError: If there is no file of that name, or it has expired.
        """
        return self._read(name, lambda file: file.path)

    def report(self, name: str) -> bytes:
        """Return the page about the translation of a file, from the download name of the file.

        Raises:
            HTTPError: If there is no file of that name, or it has expired.
        """
        return self._read(name, lambda file: file.report)

    def review(self, name: str) -> bytes:
        """Return what the review of a file begins with, from the download name of the file; empty for none.

        Raises:
            HTTPError: If there is no file of that name, or it has expired.
        """
        return self._read(name, lambda file: file.review)

    def _read(self, name: str, path: Callable[[_File], Path]) -> bytes:
        self.sweep()
        with self._lock:
            file = self._files.get(name)
            with suppress(FileNotFoundError):  # it was removed from outside
                if file is not None:
                    return path(file).read_bytes()
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such file, or no more")

    def sweep(self) -> None:
        """Remove expired files."""
        with self._lock:
            for name, file in list(self._files.items()):
                if file.until < time.monotonic():
                    file.remove()
                    del self._files[name]

    def close(self) -> None:
        """Remove all files."""
        self._held.close()


def _lock_directory(directory: Path) -> ExitStack:
    """Lock a directory of this user until the returned context is closed, also by the end of the process.

    Other users may have put something else of its name into a shared temporary directory: nothing is written, and no
    link is followed.

    Raises:
        OSError: If another process has locked it, or it is no directory of this user.
    """
    with ExitStack() as held:
        try:
            import fcntl
        except ImportError:  # Windows does not let a directory in use be removed
            held.enter_context((directory / "in use").open("ab"))
        else:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            held.callback(os.close, descriptor)
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise PermissionError(f"{directory} belongs to another user")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held.pop_all()


def _remove_stale_directories(parent: Path) -> None:
    """Remove the directories of servers that were killed."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError), _lock_directory(directory):
            rmtree(directory)


def split_name(name: str) -> tuple[str, str, str]:
    """Return a file's name before its last dot, the dot, and its extension; the last two are empty without a dot.

    >>> split_name("a.b.po"), split_name("README")
    (('a.b', '.', 'po'), ('README', '', ''))
    """
    stem, dot, extension = name.rpartition(".")
    return (stem, dot, extension) if dot else (name, "", "")


def safe_name(name: str) -> str:
    """Return the name of a file as letters, digits, `_`, `.` and `-`, without its directories.

    >>> safe_name("../../etc/Mein Text.HTML"), safe_name("犬.po"), safe_name("README")
    ('Mein_Text.HTML', 'file.po', 'README')
    """
    stem, dot, extension = split_name(re.split(r"[/\\]", name)[-1])
    plain = [re.sub(r"[^A-Za-z0-9_.-]+", "_", part).strip("._-")[:100] for part in (stem, extension)]
    return f"{plain[0] or 'file'}{dot}{plain[1]}"


def file_options(name: str, columns: object, keys: object) -> dict[str, Any]:
    """Return the options of a file's format that the fields of a request give, as for `read_document`.

    Raises:
        HTTPError: If a field is given that the format has not, or that cannot be read.
    """
    format_ = DOCUMENTS.get(Path(name).suffix.lower())
    options: dict[str, Any] = {}
    for option, value, typed in (("columns", columns, typed_columns), ("keys", keys, typed_names)):
        if not value:
            continue
        if format_ is None or option not in format_.options:
            has = ", ".join(extension for extension, kind in DOCUMENTS.items() if option in kind.options)
            raise bad_request(f"Invalid request: {option} is for files of {has}")
        if not isinstance(value, str):
            raise bad_request(f"Invalid request: {option} parameter is not a text")
        try:
            options[option] = typed(option, value)
        except ConfigError as error:
            raise bad_request(str(error)) from None
    return options


@contextmanager
def uploaded(
    name: str,
    data: bytes,
    directory: Path,
    require_time: Callable[[], None],
    most_characters: int | None = None,
    **options: Any,
) -> Iterator[Document]:
    """Read an uploaded document for the duration of the block.

    Args:
        name: A file name as `safe_name` returns it.
        data: Content of the file.
        directory: Where it is put meanwhile.
        require_time: Called while the document is read or written; what it raises ends that.
        most_characters: As for `open_document`.
        **options: Options of single formats, as for `read_document`; options that the format lacks are left out.

    Raises:
        HTTPError: If it cannot be read without a choice that a client cannot make, needs too much memory, or has more
            text than allowed.
        DataError: If it cannot be read; the message names the file without its temporary directory.
    """
    with TemporaryDirectory(dir=directory) as own:
        path = Path(own) / name
        path.write_bytes(data)
        try:
            with opened_upload(str(path), require_time, most_characters, **options) as document:
                yield document
        except DataError as error:
            raise DataError(client_message(str(error), own)) from None
        except ConfigError as error:
            raise bad_request(client_message(str(error), own)) from None


def opened_upload(
    path: str, require_time: Callable[[], None], most_characters: int | None = None, **options: Any
) -> AbstractContextManager[Document]:
    """Read an uploaded document as `open_document`; options that its format lacks are left out."""
    known = DOCUMENTS[suffix].options if (suffix := Path(path).suffix.lower()) in DOCUMENTS else ()
    own = {name: value for name, value in options.items() if name in known}
    return open_document(path, require_time, most_characters, **own)


def client_message(message: str, directory: str | Path) -> str:
    """Return the message of an error without a directory of the server and advice on options that no client has."""
    message = message.replace(f"{directory}/", "")
    for option, field in _FIELDS.items():
        message = message.replace(option, field)
    return "; ".join(part for part in message.split("; ") if not _OPTION.search(part))

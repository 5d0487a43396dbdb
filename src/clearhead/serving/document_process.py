"""Uploaded documents, read and written in a process of their own, which has a memory limit and can be killed."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.formats.document import Document, Filling, Segment, watched_by
from clearhead.formats.document_files import is_document, read_document
from clearhead.serving.http_errors import HTTPError, bad_request, place_of, with_place
from clearhead.text.translatable_lines import segment_lines

MOST_MEMORY = 1 << 30
"""Bytes that reading and writing a document may take."""
_SECONDS_BETWEEN_CHECKS = 0.05
_METHODS = multiprocessing.get_all_start_methods()
_CONTEXT: Any = multiprocessing.get_context("forkserver" if "forkserver" in _METHODS else "spawn")


def prepare() -> None:
    """Start the process from which those of documents are forked, so that the first document does not wait for it."""
    if "forkserver" in _METHODS:
        from multiprocessing.forkserver import ensure_running

        # Every process imports what the main script imports: of the command `clearhead`, 0.7 seconds for each file.
        of_command = [name for name in ("clearhead.cli.main",) if name in sys.modules]
        _CONTEXT.set_forkserver_preload([__name__, *of_command])
        ensure_running()


class DocumentInProcess(Document):
    """A document that is in another process; see `open_document`."""

    def __init__(self, connection: Connection, require_time: Callable[[], None]) -> None:
        self._connection = connection
        self._require_time = require_time
        self.format, self.segments, self.keeps_finished, self.remarks = self._answer()

    def problem(self, number: int, translation: str) -> str:
        """Return why a translation cannot be written; see `Document.problem`."""
        problem: str = self._asked("problem", number, translation)
        return problem

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted; see `Document.filled`.

        Raises:
            DataError: If the format cannot represent a text.
            HTTPError: If it needs too much memory, or `require_time` raises it.
        """
        data: bytes = self._asked("filled_in", self.language, list(fillings))
        return data

    def _asked(self, method: str, *arguments: Any) -> Any:
        with suppress(ConnectionError):  # the process has ended; reading its answer reports that
            self._connection.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        while not self._connection.poll(_SECONDS_BETWEEN_CHECKS):
            self._require_time()
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise _too_large() from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


@contextmanager
def open_document(
    path: str, require_time: Callable[[], None], most_characters: int | None = None, **options: Any
) -> Iterator[Document]:
    """Read a document in a process of its own, which ends with the block.

    Args:
        path: The file; with an extension that no document has, it is read as paragraphs of plain text.
        require_time: Called while waiting; what it raises ends the process.
        most_characters: Limit of `TextLimit`, checked as segments are found; None is no limit.
        **options: As for `read_document`.

    Raises:
        ConfigError: As `read_document`.
        DataError: As `read_document`.
        HTTPError: If it needs more than `MOST_MEMORY`, has more text than allowed, or `require_time` raises it.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve_document, args=(theirs, path, options, most_characters), daemon=True)
    process.start()
    theirs.close()
    try:
        with ours:
            yield DocumentInProcess(ours, require_time)
    finally:
        process.kill()
        process.join()
        process.close()


class TextLimit:
    """Counts the texts of a document, and the characters of its different lines to translate.

    Args:
        most: Maximum of either.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts = self._characters = 0
        self._lines: set[str] = set()

    def __call__(self, document: Document, segment: Segment) -> None:
        """Count a segment.

        Raises:
            HTTPError: If a limit is exceeded.
        """
        self._texts += 1
        if not (document.keeps_finished and segment.is_finished):
            for line in segment_lines(segment.text):
                if line.is_translated and line.text not in self._lines:
                    self._lines.add(line.text)
                    self._characters += len(line.text)
        for count, unit in ((self._texts, " texts"), (self._characters, "")):
            if count > self._most:
                of_what = f"request (more than {self._most}{unit}) exceeds text limit ({self._most})"
                raise bad_request(f"Invalid request: {of_what}")


def _serve_document(
    connection: Connection, path: str, options: dict[str, Any], most_characters: int | None = None
) -> None:
    """Send the segments of a document; then answer calls of its methods until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory()
    with suppress(EOFError, ConnectionError):
        try:
            with nullcontext() if most_characters is None else watched_by(TextLimit(most_characters)):
                document = read_document(path, paragraphs=not is_document(path), **options)
            said = document.format, list(document.segments), document.keeps_finished, list(document.remarks)
            connection.send(said)
            while True:
                method, arguments = connection.recv()
                connection.send(getattr(document, method)(*arguments))
        except MemoryError:
            connection.send(_too_large())
        except (ClearheadError, HTTPError) as error:
            connection.send(error)
        except EOFError:
            raise
        except Exception as error:  # its message may contain a text
            connection.send(with_place(RuntimeError(type(error).__name__), place_of(error)))


def _limit_memory() -> None:
    with suppress(ImportError):  # Windows has no such limit
        import resource

        _, allowed = resource.getrlimit(resource.RLIMIT_DATA)
        most = MOST_MEMORY if allowed == resource.RLIM_INFINITY else min(MOST_MEMORY, allowed)
        resource.setrlimit(resource.RLIMIT_DATA, (most, allowed))


def _too_large() -> HTTPError:
    return HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "reading the file takes too much memory; send it in parts")

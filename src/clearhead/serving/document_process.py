"""Uploaded documents, read and written in a process of their own, which has a memory limit and can be killed."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from http import HTTPStatus
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from pathlib import Path
from threading import Thread
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.formats.document import Document, DocumentSegment, Filling, watched_by
from clearhead.formats.document_files import is_document, read_document
from clearhead.runtime.memory import limited_memory
from clearhead.serving.http_errors import HTTPError, bad_request, place_of, unavailable, with_place
from clearhead.text.translatable_lines import segment_lines

MAX_MEMORY = 1 << 30
"""Bytes that reading and writing a document may take."""
_MIN_MEMORY = 1 << 27
_MEMORY_OF_A_BYTE, _MEMORY_OF_A_PACKED_BYTE = 60, 600
"""Memory for each byte of a file. HTML, JSON and subtitles take 20 to 30; `.docx` is compressed to a tenth or less."""
SECONDS_TO_START = 10.0
"""Seconds after which a process that has not started never will: the one that forks it is then replaced."""
SECONDS_TO_IMPORT = 120.0
"""The same after the start of the process that forks, which first imports its modules."""
_imports_until: dict[int | None, float] = {}
"""Of each process that forks, when it has imported its modules, at the latest."""
_running: set[int] = set()
"""Numbers of the processes of documents."""
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
        _imports_until.setdefault(_forkserver(), time.monotonic() + SECONDS_TO_IMPORT)


def memory_of(name: str, num_bytes: int) -> int:
    """Return the memory limit of the process that reads a file, in bytes.

    Args:
        name: The file's name; its extension tells whether it is compressed.
        num_bytes: Size of the file.
    """
    of_a_byte = _MEMORY_OF_A_PACKED_BYTE if name.lower().endswith(".docx") else _MEMORY_OF_A_BYTE
    return min(MAX_MEMORY, _MIN_MEMORY + of_a_byte * num_bytes)


class DocumentInProcess(Document):
    """A document that is in another process; see `open_document`."""

    def __init__(self, connection: Connection, require_time: Callable[[], None]) -> None:
        self._connection = connection
        self._require_time = require_time
        self.format, self.segments, self.keeps_finished, self.remarks = self._receive()

    def problem(self, number: int, translation: str) -> str:
        """Return why a translation cannot be written; see `Document.problem`."""
        return self._call("problem", number, translation)

    def problem_of_edit(self, number: int, text: str) -> str:
        """Return why a text of a person cannot be written; see `Document.problem_of_edit`."""
        return self._call("problem_of_edit", number, text)

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted; see `Document.filled`.

        Raises:
            DataError: If the format cannot represent a text.
            HTTPError: If it needs too much memory, or `require_time` raises it.
        """
        return self._call("filled_in", self.language, list(fillings))

    def _call(self, method: str, *arguments: Any) -> Any:
        with suppress(ConnectionError):  # the process has ended; reading its answer reports that
            self._connection.send((method, arguments))
        return self._receive()

    def _receive(self) -> Any:
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
        HTTPError: If it needs more memory than `memory_of` says, has more text than allowed, the process cannot be
            started, or `require_time` raises it.
    """
    process, ours = _started((path, options, most_characters), require_time)
    try:
        with ours:
            yield DocumentInProcess(ours, require_time)
    finally:
        _end(process)


def _started(arguments: tuple[Any, ...], require_time: Callable[[], None]) -> tuple[Any, Connection]:
    """Return a new process that runs `_serve_document`, and the connection to it.

    Starting waits without a time limit for the process that forks, so it happens in a thread.

    Raises:
        HTTPError: If it cannot be started, or `require_time` raises it.
    """
    for _ in range(2):
        forks, (ours, theirs) = _forkserver(), _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve_document, args=(theirs, *arguments), daemon=True)
        outcome: Future[bool] = Future()
        Thread(target=_start, args=(process, outcome), name="clearhead document", daemon=True).start()
        now = time.monotonic()
        until = max(now + SECONDS_TO_START, _imports_until.setdefault(forks, now + SECONDS_TO_IMPORT))
        with ExitStack() as undo:
            undo.enter_context(ours)
            undo.callback(_undo_start, process, outcome)
            with theirs:
                while not outcome.done() and time.monotonic() < until:
                    require_time()
                    wait([outcome], _SECONDS_BETWEEN_CHECKS)
            if not outcome.cancel() and outcome.result():
                undo.pop_all()
                return process, ours
        _end_forkserver(forks)
    raise unavailable("the process that reads files cannot be started; ask again")


def _start(process: Any, outcome: Future[bool]) -> None:
    """Start a process; end it if nobody waits for it any more."""
    is_started = False
    with suppress(EOFError, OSError):  # the process that forks has ended, or there is no room for another one
        process.start()
        _running.add(process.pid)
        _imports_until.pop(None, None)
        _imports_until[_forkserver()] = 0.0
        is_started = True
    if outcome.set_running_or_notify_cancel():
        outcome.set_result(is_started)
    elif is_started:
        _end(process)


def _undo_start(process: Any, outcome: Future[bool]) -> None:
    if not outcome.cancel() and outcome.result():
        _end(process)


def _end(process: Any) -> None:
    process.kill()
    process.join()
    _running.discard(process.pid)
    process.close()


def _forkserver() -> int | None:
    """Return the number of the process that forks; None if there is none."""
    if "forkserver" not in _METHODS:
        return None
    from multiprocessing import forkserver

    return forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]


def resident_memory() -> int:
    """Return the bytes of memory of all processes of documents, and of the one that forks them (Linux; else 0)."""
    pages = 0
    for number in [_forkserver(), *list(_running)]:
        with suppress(OSError):  # it has just ended
            pages += int(Path(f"/proc/{number}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else 0


def is_stopped() -> bool:
    """Return whether a signal has stopped the process that forks, so that no document can be read (Linux)."""
    with suppress(OSError):  # it has ended: the next start begins another one
        return Path(f"/proc/{_forkserver()}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def replace_stopped() -> None:
    """Begin another process that forks if the present one is stopped."""
    if is_stopped():
        with suppress(HTTPError):  # the next document says so
            _end_forkserver(_forkserver())
            prepare()


def _end_forkserver(number: int | None) -> None:
    """End the process that forks, which is stuck or cannot be reached; the next start begins another one.

    A signal may have stopped it, or the system may have swept the temporary directory with its socket.

    Args:
        number: The process; it may have been replaced.

    Raises:
        HTTPError: If the temporary directory is another user's now.
    """
    if number is not None and number == _forkserver():
        _imports_until.pop(number, None)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(number, signal.SIGKILL)
            os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)  # multiprocessing itself removes it
        directory = get_temp_dir()
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        if os.lstat(directory).st_uid != os.geteuid():
            raise unavailable("the server's temporary directory was replaced; restart the server")


class TextLimit:
    """Counts the texts of a document, and the characters of its different lines to translate.

    Args:
        most: Maximum of either.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._texts = self._characters = 0
        self._lines: set[str] = set()

    def __call__(self, document: Document, segment: DocumentSegment) -> None:
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
    _end_with_server(connection)
    with suppress(EOFError, ConnectionError):
        try:
            with limited_memory(memory_of(path, os.path.getsize(path))):
                with nullcontext() if most_characters is None else watched_by(TextLimit(most_characters)):
                    document = read_document(path, paragraphs=not is_document(path), **options)
                fields = document.format, list(document.segments), document.keeps_finished, list(document.remarks)
                connection.send(fields)
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


def _end_with_server(connection: Connection) -> None:
    """End this process when the other end of the connection is closed, also while it computes (not on Windows)."""
    if not hasattr(select, "poll"):
        return
    closed = select.poll()
    closed.register(connection.fileno(), 0)  # errors and the end alone

    def end() -> None:
        closed.poll()
        os._exit(1)

    Thread(target=end, daemon=True).start()


def _too_large() -> HTTPError:
    return HTTPError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "reading the file takes too much memory; send it in parts")

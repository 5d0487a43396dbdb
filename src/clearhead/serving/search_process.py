"""Batching and search in a forked process (CPU, Linux), so that no search delays the server's event loop.

Threads of one process share Python's global lock, and a search needs it at every step; docs/serving.md gives the cost.
The two processes exchange pickles through a private pipe. If one ends, for whatever reason, the other finds the pipe
closed: the search process then ends too, and the server refuses its pending requests and begins another one.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NoReturn

from clearhead.decoding import Engine, Hypothesis, SearchOptions, make_engine
from clearhead.decoding.sentence import Sentence
from clearhead.errors import ClearheadError
from clearhead.serving.batches import (
    Batches,
    MetricsListener,
    PendingSearch,
    Search,
    Withdraw,
    freeze_loaded_objects,
    join_threads,
)
from clearhead.serving.http_errors import HTTPError, place_of, unavailable, with_place

if TYPE_CHECKING:
    from clearhead.config import DecodePrecision
    from clearhead.decoding import Shortlist
    from clearhead.decoding.utf8 import CharacterParts

SECONDS_TO_ANSWER = 3.0
"""Seconds after which a process that does nothing is stuck if it has not answered."""


def can_use_search_process(device: str) -> bool:
    """Return whether searches may run in a process of their own: on a CPU under Linux, where forking is safe.

    Two processes would share a GPU badly, and each would hold the model in its memory.
    """
    return device == "cpu" and sys.platform == "linux"


class SearchProcesses:
    """Forks search processes on request, in a process of its own that has no threads.

    A fork shares what this process has loaded, so it costs little time and memory, and it writes the same log. No
    thread of PyTorch or OpenMP may exist yet when this is made.

    Args:
        max_batch: Most sentences that a worker has in flight.
        max_searches: Most batches at once, besides those of searches with default options.
    """

    def __init__(self, max_batch: int, max_searches: int) -> None:
        self._control, theirs = socket.socketpair()
        # Signals that end the server, or its process group, must let it finish its requests first. The search process
        # therefore blocks them from its first step on.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        if os.fork() == 0:
            self._control.close()
            _in_fork(partial(_fork_on_request, theirs, max_batch, max_searches))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def new(self) -> tuple[Connection, int]:
        """Fork a search process; return the connection to it and its number, for a `SearchProcess`.

        Raises:
            ClearheadError: If there is no memory for it, or the process that forks has ended.
        """
        with suppress(OSError):
            self._control.send(b"?")
            number, descriptors, *_ = socket.recv_fds(self._control, 32, 1)
            if number:
                return Connection(descriptors[0]), int(number)
        raise ClearheadError("a process that searches cannot be started")

    def close(self) -> None:
        """End the process that forks; those it has forked end with their connections."""
        self._control.close()


def _in_fork(function: Callable[[], None]) -> NoReturn:
    """Call a function in a forked process, and end the process."""
    status = 1
    try:
        function()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _fork_on_request(control: socket.socket, max_batch: int, max_searches: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended processes are removed without a wait
    while control.recv(1):
        ours, theirs = Pipe()
        if (number := os.fork()) == 0:
            control.close()
            ours.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _in_fork(partial(run_searches, theirs, max_batch, max_searches))
        with ours, theirs:
            socket.send_fds(control, [str(number).encode()], [ours.fileno()])


class SearchProcess:
    """Client of the search process, with the interface of `Batches`.

    Args:
        connection: Connection to the process that runs `run_searches`.
        observer: Receives the metrics of the process.
        number: Number of the process; 0 if it is not to be watched.
    """

    def __init__(self, connection: Connection, observer: MetricsListener, number: int = 0) -> None:
        self._connection = connection
        self.process = number
        """Number of the process; 0 if it is not to be watched."""
        self._unheard_since: float | None = None
        self._unsent: SimpleQueue[bytes | None] = SimpleQueue()
        self._numbers = count()
        self._calls: dict[int, tuple[PendingSearch, int]] = {}
        self._known: dict[int, int] = {}
        self._making = Lock()
        self._made: SimpleQueue[BaseException | None] = SimpleQueue()
        self._gone: deque[int] = deque()
        self._handlers: Mapping[str, Callable[..., None]] = {
            "waited": observer.waited,
            "entered": observer.entered,
            "translated": observer.translated,
            "found": self._on_found,
            "failed": self._on_failed,
            "made": self._made.put,
            "alive": self._on_alive,
        }
        self.is_ended = False
        """Whether the process has ended, so that no search is possible any more."""
        self._threads = [
            Thread(target=self._write, daemon=True, name="clearhead questions"),
            Thread(target=self._read, daemon=True, name="clearhead answers"),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def num_open(self) -> int:
        """Number of sentences that wait or are in flight."""
        return sum(sentences for _, sentences in list(self._calls.values()))

    def submit(self, call: PendingSearch, search: Search) -> Withdraw:
        """Queue the sentences of a call for search; see `Batches.submit`.

        If there are too many batches, the call receives the `HTTPError` later.

        Raises:
            ClearheadError: If the engine cannot be built in the search process.
            HTTPError: If the process has ended.
        """
        loaded = (search.engine, search.options.shortlist)
        things = [self._number_of(thing) for thing in loaded if thing is not None]
        number, options = next(self._numbers), replace(search.options, shortlist=None)
        self._calls[number] = call, len(search.sentences)
        try:
            self._send("search", number, call.client, things, search.sentences, options, search.has_default_options)
        except BaseException:
            self._calls.pop(number, None)
            raise
        return partial(self._withdraw, number)

    @property
    def is_stuck(self) -> bool:
        """Whether it has not answered `sweep` for `SECONDS_TO_ANSWER` although it does nothing.

        A machine that is busy with something else keeps it waiting, but not stopped or waiting for itself.
        """
        if not self.process or (since := self._unheard_since) is None or time.monotonic() - since < SECONDS_TO_ANSWER:
            return False
        with suppress(OSError):  # it has just ended
            return not self._connection.poll() and not _is_running(self.process)
        return False

    def sweep(self) -> None:
        """Close idle batches, and free engines and shortlists that are no longer used; the process answers."""
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        # Before `_send`: its answer may arrive while it ends.
        self._unheard_since = self._unheard_since or time.monotonic()
        with suppress(HTTPError):
            self._send("sweep", gone)

    def kill(self) -> None:
        """End the process at once; its calls fail."""
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    def close(self) -> None:
        """End the process and wait for it, for `SECONDS_TO_END` at most, since it may be stuck."""
        with suppress(HTTPError):
            self._send("end")
        join_threads(self._threads)

    def _withdraw(self, number: int) -> None:
        if self._calls.pop(number, None) is not None:
            with suppress(HTTPError):
                self._send("withdraw", number)

    def _number_of(self, thing: Engine | Shortlist) -> int:
        """Return the number of an engine or shortlist in the search process, which builds it on first use."""
        if (known := self._known.get(id(thing))) is not None:
            return known
        with self._making:
            if (known := self._known.get(id(thing))) is not None:
                return known
            number = next(self._numbers)
            what = (thing.model, thing.precision, thing.parts) if isinstance(thing, Engine) else thing
            self._send("make", number, pickle.dumps(what))
            if (error := self._made.get()) is not None:
                raise error
            self._known[id(thing)] = number
            weakref.finalize(thing, self._forget, id(thing), number).atexit = False
        return number

    def _forget(self, key: int, number: int) -> None:
        """Record a freed object; a finalizer may interrupt any thread at any point, so the message is sent later."""
        del self._known[key]
        self._gone.append(number)

    def _send(self, *message: Any) -> None:
        """Queue a message without waiting for a process that reads none, since requests have deadlines."""
        packed = pickle.dumps(message)
        if self.is_ended:  # if it ends after this line, pending calls receive the error
            raise _ended()
        self._unsent.put(packed)

    def _write(self) -> None:
        """Send queued messages until the reading thread, which shares the connection, has ended; then close it."""
        with self._connection:
            while (packed := self._unsent.get()) is not None:
                with suppress(OSError):  # the process has ended
                    self._connection.send_bytes(packed)

    def _read(self) -> None:
        """Receive messages until the process ends, or a message cannot be read."""
        try:
            with suppress(EOFError, OSError):
                while True:
                    for name, *arguments in pickle.loads(self._connection.recv_bytes()):
                        self._handlers[name](*arguments)
        finally:
            self.is_ended = True
            self._unsent.put(None)
            self._made.put(_ended())
            for number in list(self._calls):
                self._on_failed(number, _ended())

    def _on_alive(self) -> None:
        self._unheard_since = None

    def _on_found(self, number: int, results: list[list[Hypothesis]]) -> None:
        if (waiting := self._calls.pop(number, None)) is not None:
            for index, hypotheses in enumerate(results):
                waiting[0].deliver(index, hypotheses)

    def _on_failed(self, number: int, error: BaseException) -> None:
        if (waiting := self._calls.pop(number, None)) is not None:
            waiting[0].fail(error)


def _is_running(process: int) -> bool:
    """Return whether a thread of a process is running, could run, or waits for a disk (Linux)."""
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):  # it has just ended
            if thread.read_text().rpartition(")")[2].split()[0] in "RD":
                return True
    return False


def _ended() -> HTTPError:
    return unavailable("the process that searches has ended; ask again")


def run_searches(connection: Connection, max_batch: int, max_searches: int) -> None:
    """Run the searches requested through a connection by a `SearchProcess`, until its other end is closed.

    Args:
        connection: Connection for requests and results.
        max_batch: Most sentences that a worker has in flight.
        max_searches: Most batches at once, besides those of searches with default options.
    """
    answers = _ResultQueue()
    batches = Batches(max_batch, max_searches, answers)
    messages = _MessageHandlers(batches, answers)

    def read() -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    name, *arguments = pickle.loads(connection.recv_bytes())
                    if name == "end":
                        return
                    getattr(messages, name)(*arguments)
        finally:
            answers.end()

    reader = Thread(target=read, daemon=True, name="clearhead questions")
    reader.start()
    with suppress(OSError):
        answers.send(connection)
    reader.join()
    connection.close()  # closed first, so that the server notices before the last search steps are done
    batches.close()


class _ResultQueue:
    """Queue of results and metrics, filled by many threads and sent by one; metrics go with the next result."""

    def __init__(self) -> None:
        self._counted: deque[tuple[Any, ...]] = deque()
        self._waiting: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()

    def waited(self, seconds: float) -> None:
        self._counted.append(("waited", seconds))

    def entered(self, in_flight: int) -> None:
        self._counted.append(("entered", in_flight))

    def translated(self, source_tokens: int, target_tokens: int) -> None:
        self._counted.append(("translated", source_tokens, target_tokens))

    def put(self, *answer: Any) -> None:
        """Queue a result."""
        self._waiting.put(answer)

    def end(self) -> None:
        """Make `send` return."""
        self._waiting.put(None)

    def send(self, connection: Connection) -> None:
        """Send results until `end` is called.

        Raises:
            OSError: If the other end of the connection is closed.
        """
        while True:
            answers = [self._waiting.get()]
            answers += [self._waiting.get() for _ in range(self._waiting.qsize())]  # this is the only reader
            if None in answers:
                return
            counted = [self._counted.popleft() for _ in range(len(self._counted))]
            connection.send_bytes(pickle.dumps(counted + answers))


@dataclass(eq=False)
class _RemoteCall:
    """A call of the server process."""

    number: int
    client: str
    results: list[list[Hypothesis]]
    answers: _ResultQueue
    left: int
    withdraw: Withdraw | None = None

    def deliver(self, index: int, hypotheses: list[Hypothesis]) -> None:
        self.results[index] = hypotheses
        self.left -= 1
        if not self.left:
            self.answers.put("found", self.number, self.results)

    def fail(self, error: BaseException) -> None:
        self.answers.put("failed", self.number, _sendable(error))


@dataclass
class _MessageHandlers:
    """Requests of the server process; each method handles one message of `SearchProcess`."""

    batches: Batches
    answers: _ResultQueue
    _things: dict[int, Any] = field(default_factory=dict)
    _open: weakref.WeakValueDictionary[int, _RemoteCall] = field(default_factory=weakref.WeakValueDictionary)
    """Kept alive by their batches."""

    def make(self, number: int, packed: bytes) -> None:
        """Build an engine or load a shortlist.

        It is unpacked in a thread of its own, so that other searches continue meanwhile, even if there is no memory for
        it.
        """

        def run() -> None:
            error = None
            try:
                what = pickle.loads(packed)
                self._things[number] = _engine(*what) if isinstance(what, tuple) else what
                freeze_loaded_objects()
            except BaseException as problem:
                error = _sendable(problem)
            self.answers.put("made", error)

        Thread(target=run, daemon=True, name="clearhead engine").start()

    def search(
        self,
        number: int,
        client: str,
        things: Sequence[int],
        sentences: Sequence[Sentence],
        options: SearchOptions,
        has_default_options: bool,
    ) -> None:
        """Queue sentences for search."""
        engine, *shortlist = (self._things[thing] for thing in things)
        options = replace(options, shortlist=shortlist[0]) if shortlist else options
        asked = _RemoteCall(number, client, [[] for _ in sentences], self.answers, len(sentences))
        self._open[number] = asked
        try:
            asked.withdraw = self.batches.submit(asked, Search(engine, sentences, options, has_default_options))
        except Exception as error:  # a refusal, or no thread from the system: other searches continue
            asked.fail(error)

    def withdraw(self, number: int) -> None:
        """Withdraw sentences whose results are no longer needed."""
        asked = self._open.get(number)
        if asked is not None and asked.withdraw is not None:
            asked.withdraw()

    def sweep(self, gone: Sequence[int]) -> None:
        """Close idle batches, and free engines and shortlists that are no longer used."""
        for number in gone:
            self._things.pop(number, None)
        self.batches.sweep()
        self.answers.put("alive")


def _engine(model: Any, precision: DecodePrecision, parts: CharacterParts | None) -> Engine:
    engine = make_engine(model, precision)
    engine.parts = parts
    return engine


def _sendable(error: BaseException) -> BaseException:
    """Return an error in a form that can be pickled, with the place where it was raised."""
    place = place_of(error)
    try:
        error = pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__} in the process that searches")
    return with_place(error, place)

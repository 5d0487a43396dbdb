"""HTTP server process (uvicorn): socket, connection limits, timeouts, signals, model reloads, log format."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import nsmallest
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.config import ServeConfig
from clearhead.errors import ClearheadError, ConfigError
from clearhead.serving.app import make_app
from clearhead.serving.middleware import HEADERS_TOO_LARGE, LOGGER, MOST_HEADER_BYTES
from clearhead.serving.service import Service, note

CHECK_SECONDS = 1.0
"""Seconds between two checks for replaced files."""
MOST_WAITING_BYTES = 65_536
"""Bytes of pipelined requests behind the current one from which on no more is read until it is answered."""
BACKLOG = 2_048
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names of this machine for its own programs."""
LAST_SECONDS = 1.0
"""Seconds that requests are still refused after all work has ended, and that a refused client may still send."""
_OTHER_FILES = 200
"""Open files besides connections and their uploads: models, terms, threads, refused connections."""
_SECONDS_TO_READ = 0.1
"""Seconds after which data that has arrived has certainly been read."""
_MOST_LINGERING = 100
"""Connections beyond the limit that are refused and still closing."""
_SELECTOR: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""A selector that needs no file descriptor of its own, since there may be none left."""
_SWITCH_SECONDS = 0.0005
"""Seconds after which a thread that computes lets another one run, such as the event loop.

A request changes threads some thirty times; with Python's usual 5 ms it would wait that often for one that is large."""
_CANDIDATES = 10
"""Number of idle connections examined for one to close when there are too many."""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Args:
        host: Name or address.
        port: Port number; 0 chooses any free one.

    Raises:
        ConfigError: If it cannot listen there.
    """
    found = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)  # if two servers want the port, the second fails here
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        if found is not None:
            found.close()
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot listen on {host} port {port}: {why}; choose another with --host and --port"
        ) from None
    return found


def serve(
    service: Service,
    listener: socket.socket,
    *,
    cors_origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads the models.

    The socket listens at once; until the models are loaded, requests are answered with that message.

    Args:
        service: The models and resources to serve.
        listener: A listening socket, as `bind` returns it.
        cors_origins: Origins of other web pages that may call the API; `*` allows all.
        hosts: Names under which the server is asked; `*` allows all. Empty allows the names of this machine alone if
            it listens there alone, and otherwise all.
        trusted_proxies: Addresses whose `X-Forwarded-For` header gives the client's address.

    Raises:
        ClearheadError: If a model cannot be loaded or verified.
    """
    allow_files(2 * service.config.max_connections + _OTHER_FILES)
    config = uvicorn.Config(
        make_app(service, cors_origins=cors_origins, hosts=_served_hosts(hosts, listener)),
        http=connection_class(service.config),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_keep_alive=int(service.config.idle_seconds) or 1,
        timeout_graceful_shutdown=5,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its messages contain addresses
    server = _Server(config)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        problem = asyncio.run(_serve(server, service, listener))
    finally:
        sys.setswitchinterval(usual)
    if not service.close():
        note(logging.ERROR, event="stuck")
        os._exit(1)  # Python would wait for the threads at its end
    if problem is not None:
        raise problem


def _served_hosts(given: Sequence[str], listener: socket.socket) -> Sequence[str]:
    """Return the names under which the server is asked, from those given and the address that it listens on."""
    address = listener.getsockname()[0]
    if "*" in given or not (given or ip_address(address).is_loopback):
        return ()
    return [*given, *LOOPBACK_HOSTS, address]


def _page_address(host: str, port: int) -> str:
    """Return the address of the web page on this machine.

    >>> _page_address("127.0.0.1", 5000), _page_address("::1", 5000), _page_address("0.0.0.0", 5000)
    ('http://127.0.0.1:5000/', 'http://[::1]:5000/', 'http://localhost:5000/')
    """
    address = ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{name}:{port}/"


def allow_files(most: int) -> None:
    """Raise the limit of open files of this process if it is lower; log if that is not allowed.

    Each connection takes one file, and its upload may take another.
    """
    with suppress(ImportError):  # Windows has no such limit
        import resource

        usual, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        if usual == resource.RLIM_INFINITY or usual >= most:
            return
        found = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (found, allowed))
        if found < most:
            note(logging.WARNING, event="files", allowed=found, wanted=most)


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers; this module installs its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


async def _serve(server: _Server, service: Service, listener: socket.socket) -> ClearheadError | None:
    """Run the server; return the error that kept it from starting or made it stop, if any."""
    loop, ended, asked = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    restore = _on_signals(loop, ended, asked)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        host, port = listener.getsockname()[:2]
        note(logging.INFO, event="listening", host=host, port=port, page=_page_address(host, port))
        loading = asyncio.ensure_future(asyncio.to_thread(service.load))
        stopping = asyncio.create_task(ended.wait())
        await asyncio.wait({loading, stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        problem = None
        if not ended.is_set() and not serving.done():
            try:
                await loading
            except ClearheadError as error:
                problem = error
            else:
                note(logging.INFO, event="ready", models=list(service.models.served))
                problem = await _watch(service, asked, stopping, serving)
        await _drain(service)
        return problem
    finally:
        server.should_exit = True
        await serving
        restore()


def _on_signals(loop: asyncio.AbstractEventLoop, ended: asyncio.Event, asked: asyncio.Event) -> Callable[[], None]:
    """Set events on signals; return a function that restores the previous handlers."""
    wanted: dict[int, asyncio.Event] = {signal.SIGTERM: ended, signal.SIGINT: ended}
    if hasattr(signal, "SIGHUP"):
        wanted[signal.SIGHUP] = asked
    before = {}
    for number, event in wanted.items():
        before[number] = signal.getsignal(number)
        signal.signal(number, lambda *_, event=event: loop.call_soon_threadsafe(event.set))

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore


async def _watch(
    service: Service, asked: asyncio.Event, stopping: asyncio.Task[Any], serving: asyncio.Task[None]
) -> ClearheadError | None:
    """Reload models on replacement or request, until shutdown or until searches are no longer possible.

    A reload may take minutes; meanwhile the searches are watched, and a shutdown does not wait for it.
    """
    tending: asyncio.Task[Any] | None = None
    while not (stopping.done() or serving.done()):
        awaited = tending or asyncio.create_task(asked.wait())
        await asyncio.wait({awaited, stopping, serving}, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if tending is None:
            awaited.cancel()
        if stopping.done():
            break
        try:
            await asyncio.to_thread(service.require_processes)
        except ClearheadError as problem:
            return problem
        if tending is None:
            is_asked = asked.is_set()
            asked.clear()
            tending = asyncio.create_task(asyncio.to_thread(service.tend, all_of_them=is_asked))
        elif tending.done():
            await tending
            tending = None
    return None


async def _drain(service: Service) -> None:
    """Refuse new requests and wait for running ones; those that exceed `grace_seconds` are cancelled."""
    service.end()
    note(logging.INFO, event="ending", requests=service.work.num_requests)
    until = time.monotonic() + service.config.grace_seconds
    while service.work.num_requests and time.monotonic() < until:
        await asyncio.sleep(0.05)
    service.work.cancel_all()
    # New requests still get an answer meanwhile; a closed socket would reset them.
    await asyncio.sleep(LAST_SECONDS)


def connection_class(config: ServeConfig) -> type[asyncio.Protocol]:
    """Return the connection protocol: uvicorn's, with limits and timeouts for headers, idle time and slow readers.

    h11 parses the requests, and nothing here reads or changes their bytes: what a request is does not depend on the
    packets in which it arrives. A request for another protocol (`Upgrade`) is answered as if it had not asked for it
    (RFC 9110, section 7.8), as `curl --http2` and Java's client expect.
    """

    class Connection(H11Protocol):
        """A connection with limits on header time, header size, and the time to take an answer."""

        _idle_since: float | None = None
        _header_timer: asyncio.TimerHandle | None = None
        _answer_timer: asyncio.TimerHandle | None = None
        _is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.flow = _PipelineFlow(transport, self.conn)
            self._idle_since = self.loop.time()
            self._await_headers()
            if len(self.connections) > config.max_connections and not self._make_room():
                self._refuse(_FULL)

        def _make_room(self) -> bool:
            """Close the connection that has been idle longest; return whether there is room now.

            Refused connections do not count: otherwise each would let in another one, which would then be one too many.
            """
            connections: set[Connection] = self.connections  # type: ignore[assignment]
            others = [one for one in connections if one is not self and not one._is_refused]
            if len(others) < config.max_connections:
                return True
            idle = [one for one in others if one._idle_since is not None and not one.transport.is_closing()]
            for one in nsmallest(_CANDIDATES, idle, key=lambda one: one._idle_since or 0.0):
                if not one._is_asking:
                    one._end()
                    return True
            return False

        @property
        def _is_serving(self) -> bool:
            """Whether a request has been read, at least its headers, and is not yet answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing() or self._is_refused:
                return
            if self._header_timer is None and self._idle_since is not None:
                self._await_headers()
            super().data_received(data)

        def handle_events(self) -> None:
            """Process what h11 has parsed; start or stop waiting for the headers of a request."""
            super().handle_events()
            if self._is_refused:
                return
            if self._is_serving:
                self._idle_since = None
                _cancel(self._header_timer)
                self._header_timer = None
            elif self.conn.their_state is h11.IDLE:
                self.flow.resume_reading()  # the next request has not arrived as a whole

        def send_400_response(self, msg: str) -> None:
            """Refuse an invalid request in the same way as all others."""
            status = HTTPStatus(getattr(sys.exception(), "error_status_hint", HTTPStatus.BAD_REQUEST))
            if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                msg = HEADERS_TOO_LARGE
            self._refuse(_plain(status, msg))

        def _refuse(self, answer: bytes) -> None:
            """Send an answer, and close once the client has closed: an earlier close might lose the answer."""
            self._is_refused = True
            if self._is_serving:  # its body is invalid
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                if self.cycle.response_started:
                    self.transport.abort()
                    return
            self.transport.write(answer)
            if len(self.connections) > config.max_connections + _MOST_LINGERING:
                self._end()
                return
            with suppress(OSError):  # the client has disconnected
                self.transport.write_eof()
            _cancel(self._header_timer)
            self._header_timer = self.loop.call_later(LAST_SECONDS, self._end)

        def _end(self) -> None:
            """Close the connection once the client has taken what was sent."""
            self.transport.close()
            if self.transport.get_write_buffer_size():
                self._await_taking()

        def _await_headers(self) -> None:
            self._header_timer = self.loop.call_later(config.header_seconds, self._end_without_headers)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self._is_serving:  # no pipelined request is waiting
                self._idle_since = self.loop.time()
            if self.transport.is_closing():
                self._end()

        def timeout_keep_alive_handler(self) -> None:
            """Close a connection that has been idle for too long."""
            if not self._is_asking:
                self._end()

        def _end_without_headers(self) -> None:
            if self._is_asking:
                self._header_timer = self.loop.call_later(_SECONDS_TO_READ, self._end_without_headers)
            else:
                self._end()

        @property
        def _is_asking(self) -> bool:
            """Whether the client has sent data that is not yet read; closing the connection now would reset it."""
            return not self.transport.is_closing() and _has_unread(self.transport)

        def pause_writing(self) -> None:
            """Wait for a client that reads its answer slowly, within a time limit."""
            super().pause_writing()
            self._await_taking()

        def resume_writing(self) -> None:
            """Resume writing the answer."""
            super().resume_writing()
            if not self.transport.is_closing():
                _cancel(self._answer_timer)
                self._answer_timer = None

        def _await_taking(self) -> None:
            _cancel(self._answer_timer)
            size = self.transport.get_write_buffer_size()
            self._answer_timer = self.loop.call_later(config.answer_seconds, self._require_taken, size)

        def _require_taken(self, before: int) -> None:
            if self.transport.get_write_buffer_size() >= before:
                self.transport.abort()
            else:
                self._await_taking()

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._header_timer)
            _cancel(self._answer_timer)
            super().connection_lost(exc)

    return Connection


def _has_unread(transport: asyncio.Transport) -> bool:
    """Return whether a client has sent data that is not yet read."""
    with _SELECTOR() as selector:
        selector.register(transport.get_extra_info("socket"), selectors.EVENT_READ)
        return bool(selector.select(0))


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _PipelineFlow(FlowControl):
    """Uvicorn's flow control, which reads no further while many bytes of pipelined requests wait.

    Otherwise each answered request would let in another packet, however many requests that has.
    """

    def __init__(self, transport: asyncio.Transport, parser: h11.Connection) -> None:
        super().__init__(transport)
        self._parser = parser

    def resume_reading(self) -> None:
        """Read on, unless enough waits behind a request that is being answered."""
        if self._parser.their_state is not h11.DONE or len(self._parser.trailing_data[0]) <= MOST_WAITING_BYTES:
            super().resume_reading()


def _plain(status: HTTPStatus, error: str, extra: str = "") -> bytes:
    body = json.dumps({"error": error})
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n{extra}connection: close\r\n\r\n{body}".encode()


_FULL = _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; ask again", "retry-after: 1\r\n")


class _Lines(logging.Formatter):
    """Format of a log line: a JSON object with time and level before the fields of the event.

    Messages of libraries may contain a text or an address, so only the place where they were logged is kept.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"), "level": record.levelname.lower()}
        if record.name == LOGGER.name:
            return f"{json.dumps(fields)[:-1]}, {record.getMessage()[1:]}"  # merge the two JSON objects into one
        kind = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        place = f"{record.filename}:{record.lineno}"
        return json.dumps({**fields, "event": "library", "logger": record.name, "place": place, **kind})


def log_to_stderr(*, with_libraries: bool = False) -> None:
    """Write the log to stderr, one JSON object per line.

    Args:
        with_libraries: Include log records of libraries, and warnings, for use where nothing else prints them.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    if with_libraries:
        logging.getLogger().handlers[:] = [handler]
        logging.captureWarnings(True)

"""Connections of the HTTP server: uvicorn's protocol with limits on their number, their headers, and slow clients.

h11 parses the requests, and nothing here reads or changes their bytes: what a request is does not depend on the packets
in which it arrives. A request for another protocol (`Upgrade`) is answered as if it had not asked for it (RFC 9110,
section 7.8), as `curl --http2` and Java's client expect.

`Connection` overrides and reads parts of uvicorn's protocol that are not public, so its versions are bounded above.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
from contextlib import suppress
from heapq import nsmallest
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.config import ServeConfig
from clearhead.serving.middleware import HEADERS_TOO_LARGE, MAX_HEADER_BYTES

MAX_PIPELINED_BYTES = 65_536
"""Bytes of pipelined requests behind the current one from which on no more is read until it is answered."""
_LINGERING_SECONDS = 1.0
"""Seconds in which the client of a refused connection may close it."""
_MAX_LINGERING = 100
"""Connections beyond the limit that are refused and still closing."""
_SECONDS_TO_READ = 0.1
"""Seconds after which data that has arrived has certainly been read."""
_MAX_CANDIDATES = 10
"""Number of idle connections examined for one to close when there are too many."""
_SELECTOR: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""A selector that needs no file descriptor of its own, since there may be none left."""


class ConnectionConfig(uvicorn.Config):
    """Uvicorn's configuration for `Connection`, with the limits of connections.

    Args:
        app: The ASGI application.
        limits: The limits.
        **options: As for `uvicorn.Config`.
    """

    def __init__(self, app: ASGIApp, limits: ServeConfig, **options: Any) -> None:
        options.setdefault("h11_max_incomplete_event_size", MAX_HEADER_BYTES)
        options["timeout_keep_alive"] = int(limits.idle_seconds) or 1
        super().__init__(app, http=Connection, ws="none", lifespan="off", log_config=None, **options)
        self.limits = limits


class Connection(H11Protocol):
    """A connection with limits on header time, header size, and the time to take an answer."""

    config: ConnectionConfig
    connections: set[Connection]  # type: ignore[assignment]
    _idle_since: float | None = None
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for headers; close an idle connection, or refuse this one, if there are too many."""
        super().connection_made(transport)
        self.flow = _PipelineFlow(transport, self.conn)
        self._idle_since = self.loop.time()
        self._start_header_timer()
        if len(self.connections) > self.config.limits.max_connections and not self._make_room():
            self._refuse(_TOO_MANY)

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; return whether there is room now.

        Refused connections do not count: otherwise each would let in another one, which would then be one too many.
        """
        others = [other for other in self.connections if other is not self and not other._is_refused]
        if len(others) < self.config.limits.max_connections:
            return True
        idle = [other for other in others if other._idle_since is not None and not other.transport.is_closing()]
        for connection in nsmallest(_MAX_CANDIDATES, idle, key=lambda connection: connection._idle_since or 0.0):
            if not connection._has_unread_data:
                connection._close()
                return True
        return False

    @property
    def _is_serving(self) -> bool:
        """Whether a request has been read, at least its headers, and is not yet answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _has_unread_data(self) -> bool:
        """Whether the client has sent data that is not yet read; closing the connection now would reset it."""
        if self.transport.is_closing():
            return False
        with _SELECTOR() as selector:
            selector.register(self.transport.get_extra_info("socket"), selectors.EVENT_READ)
            return bool(selector.select(0))

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, unless the connection is being closed."""
        if self.transport.is_closing() or self._is_refused:
            return
        if self._header_timer is None and self._idle_since is not None:
            self._start_header_timer()
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
        self._refuse(_error_response(status, msg))

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
        if len(self.connections) > self.config.limits.max_connections + _MAX_LINGERING:
            self._close()
            return
        with suppress(OSError):  # the client has disconnected
            self.transport.write_eof()
        _cancel(self._header_timer)
        self._header_timer = self.loop.call_later(_LINGERING_SECONDS, self._close)

    def _close(self) -> None:
        """Close the connection once the client has taken what was sent."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._start_write_timer()

    def on_response_complete(self) -> None:
        """Begin the next request, or the idle time."""
        super().on_response_complete()
        if not self._is_serving:  # no pipelined request is waiting
            self._idle_since = self.loop.time()
        if self.transport.is_closing():
            self._close()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for too long."""
        if not self._has_unread_data:
            self._close()

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(self.config.limits.header_seconds, self._on_header_timeout)

    def _on_header_timeout(self) -> None:
        if self._has_unread_data:
            self._header_timer = self.loop.call_later(_SECONDS_TO_READ, self._on_header_timeout)
        else:
            self._close()

    def pause_writing(self) -> None:
        """Wait for a client that reads its answer slowly, within a time limit."""
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        """Resume writing the answer."""
        super().resume_writing()
        if not self.transport.is_closing():
            _cancel(self._write_timer)
            self._write_timer = None

    def _start_write_timer(self) -> None:
        _cancel(self._write_timer)
        size = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.config.limits.answer_seconds, self._on_write_timeout, size)

    def _on_write_timeout(self, size_before: int) -> None:
        """Cut off a client that has taken nothing of its answer since the timer started."""
        if self.transport.get_write_buffer_size() >= size_before:
            self.transport.abort()
        else:
            self._start_write_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        _cancel(self._header_timer)
        _cancel(self._write_timer)
        super().connection_lost(exc)


class _PipelineFlow(FlowControl):
    """Uvicorn's flow control, which reads no further while many bytes of pipelined requests wait.

    Otherwise each answered request would let in another packet, however many requests that has.
    """

    def __init__(self, transport: asyncio.Transport, parser: h11.Connection) -> None:
        super().__init__(transport)
        self._parser = parser

    def resume_reading(self) -> None:
        """Read on, unless enough waits behind a request that is being answered."""
        if self._parser.their_state is not h11.DONE or len(self._parser.trailing_data[0]) <= MAX_PIPELINED_BYTES:
            super().resume_reading()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _error_response(status: HTTPStatus, error: str, extra: str = "") -> bytes:
    body = json.dumps({"error": error})
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n{extra}connection: close\r\n\r\n{body}".encode()


_TOO_MANY = _error_response(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; ask again", "retry-after: 1\r\n")

"""Exceptions for refused requests (HTTP status and message), and where in the code an error was raised."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

_PLACE = "clearhead place"


class ClientDisconnected(Exception):
    """The client has disconnected, so no answer is sent."""


class HTTPError(Exception):
    """A request that is refused with an HTTP status and a message.

    Args:
        status: 400 and 404: the request is invalid or asks for something unknown; 401 and 403: no valid key; 408: its
            body did not arrive in time; 413: it is too large; 429: its client has asked for too much; 503: the server
            is overloaded or shutting down; 504: it took too long.
        message: What is wrong and what to do, in one line.
        retry_after: Seconds after which the client may retry.
    """

    def __init__(self, status: HTTPStatus, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that one process can send it to another."""
        return partial(HTTPError, retry_after=self.retry_after), (self.status, self.message)


bad_request = partial(HTTPError, HTTPStatus.BAD_REQUEST)
"""An invalid request, from its message."""
unavailable = partial(HTTPError, HTTPStatus.SERVICE_UNAVAILABLE, retry_after=1)
"""A request that the server cannot serve now, from its message; the client may retry after a second."""
timed_out = partial(
    HTTPError, HTTPStatus.GATEWAY_TIMEOUT, "the translation took too long; send less text at once, or ask again later"
)
"""A request whose time is over."""


def with_place(error: BaseException, place: str) -> BaseException:
    """Attach the place of an error from another process, since a traceback cannot be pickled; see `place_of`."""
    error.__dict__[_PLACE] = place
    return error


def place_of(error: BaseException) -> str:
    """Return the function and line where an error was raised."""
    if place := error.__dict__.get(_PLACE):
        return str(place)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"

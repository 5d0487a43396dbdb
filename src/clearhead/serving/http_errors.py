"""Why a request is not answered as it was meant: the status of HTTP that says so, and a line for whoever reads it."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any

__all__ = ["ClientGone", "Refusal", "place_of", "with_place"]

_PLACE = "clearhead place"


class ClientGone(Exception):
    """Nobody waits for the answer any more, so there is none."""


class Refusal(Exception):
    """The answer to a request that cannot be served.

    Args:
        status: 400 and 404: the request asks for what cannot be; 401 and 403: no such key; 408: its body did not come;
            413: it is too large; 429: its client has asked for too much; 503: the server has too much to do, or ends;
            504: it took too long.
        message: What is wrong and what to do, in one line.
        retry_after: Seconds after which it may be asked again.
    """

    def __init__(self, status: HTTPStatus, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Let one process tell another."""
        return partial(Refusal, retry_after=self.retry_after), (self.status, self.message)


def with_place(error: BaseException, place: str) -> BaseException:
    """Let what another process found say where: what is sent has no traceback. See `place_of`."""
    error.__dict__[_PLACE] = place
    return error


def place_of(error: BaseException) -> str:
    """Return where in the code something failed."""
    if place := error.__dict__.get(_PLACE):
        return str(place)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"

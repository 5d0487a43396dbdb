"""An end to what a test waits for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise in this process after so many seconds, whatever it waits for, as for somebody who writes into a pipe."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"{seconds} seconds are over")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

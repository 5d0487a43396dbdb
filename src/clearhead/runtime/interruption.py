"""Interruption of long work: the caller sets a check for its thread, and loops over lines and segments call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("interruption check", default=None)


@contextmanager
def interrupted_by(check: Callable[[], None]) -> Iterator[None]:
    """Let `check` end the work of this thread within the block.

    Args:
        check: Raises an exception of the caller's if the work is to end, for example because its time is over.
    """
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_interruption() -> None:
    """Raise the caller's exception if the work of this thread is to end; without a check nothing happens."""
    if (check := _CHECK.get()) is not None:
        check()

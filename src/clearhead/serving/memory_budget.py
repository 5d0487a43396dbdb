"""Memory that concurrent work may take together, counted before the work begins; work that finds no room waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

_SECONDS_BETWEEN_CHECKS = 0.1


class MemoryBudget:
    """A number of bytes, of which each block takes its part for its duration; the first to ask is the first served.

    Args:
        num_bytes: The number of bytes.
    """

    def __init__(self, num_bytes: int) -> None:
        self._total = self._left = num_bytes
        self._changed = Condition()
        self._waiting: deque[object] = deque()

    @contextmanager
    def taken(self, num_bytes: int, require_time: Callable[[], None]) -> Iterator[None]:
        """Take memory for the duration of the block; wait until it is free.

        Args:
            num_bytes: Bytes to take; more than all is all.
            require_time: Called while waiting; what it raises ends that.
        """
        part, place = min(num_bytes, self._total), object()
        with self._changed:
            self._waiting.append(place)
            try:
                while self._waiting[0] is not place or self._left < part:
                    require_time()
                    self._changed.wait(_SECONDS_BETWEEN_CHECKS)
                self._left -= part
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._left += part
                self._changed.notify_all()

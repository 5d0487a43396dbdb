"""Stop on Ctrl-C and SIGTERM: between two steps after saving, or at once if there is nothing to save."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self


class StopSignals:
    """Context manager that handles SIGINT and SIGTERM.

    Until `defer` is called, a signal ends the block at once. Afterwards the first signal is only recorded in
    `received`, and a second one ends the block.

    Args:
        is_quiet: Whether to print nothing on a signal. One of several workers may be told to end because another one
            died, and then saves nothing.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self.received: signal.Signals | None = None
        self._is_deferred = False
        self._previous: dict[signal.Signals, Any] = {}

    def defer(self) -> None:
        """Record the next signal from now on, instead of ending at once."""
        self._is_deferred = True

    def end_at_once(self) -> None:
        """End at once on a signal from now on; end now if one was recorded.

        Raises:
            KeyboardInterrupt: If SIGINT was recorded.
            SystemExit: With status 143, if SIGTERM was recorded.
        """
        self._is_deferred = False
        if self.received is not None:
            self.end()

    def end(self) -> None:
        """Raise the exception for the received signal.

        Raises:
            KeyboardInterrupt: After SIGINT.
            SystemExit: With status 143, after SIGTERM.
        """
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        # Only the main thread may set handlers. Training in another thread is stopped by its caller.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first = self.received is None
        self.received = signal.Signals(number)
        if not self._is_deferred or not is_first:
            self.end()
        if self._is_quiet:
            return
        # A handler may interrupt a print, so it must not print; writing to the file descriptor is safe.
        with suppress(OSError):
            os.write(2, b"\nstopping and saving; once more to stop at once, without saving\n")

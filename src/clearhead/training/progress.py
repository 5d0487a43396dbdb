"""Training progress on stderr: a progress bar on a terminal, otherwise a line every 30 seconds."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from clearhead.text.terminal import for_terminal

_SECONDS_BETWEEN_LINES = 30.0


class Display:
    """Progress display: stages of preparation, then training.

    Args:
        is_quiet: Whether to show nothing, because another worker of the same run does.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._is_quiet = is_quiet
        self._bar: Progress | None = None
        if self._console.is_terminal and not is_quiet:
            description = TextColumn("{task.description}", markup=False)  # a file name may hold square brackets
            columns = (SpinnerColumn(), description, BarColumn(20), TaskProgressColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("starting", total=None)
        self._stage = ""
        self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self._is_quiet:
            return
        text = for_terminal(text)
        with suppress(OSError):  # a closed reader, such as an interrupted `tee`, must not prevent saving
            if self._bar:
                self._console.print(text, markup=False)
            else:
                print(text, file=sys.stderr, flush=True)

    def stage(self, name: str, count: int) -> None:
        """Show the name of a stage other than training, and the number of items done."""
        name = for_terminal(name)
        if self._bar:
            self._bar.update(self._task, description=f"{name} {count:,}" if count else name, total=None)
        elif name != self._stage:
            self.say(name)
        self._stage = name

    def training(
        self, *, step: int, progress: float, loss: float, tokens_per_second: float, seconds_left: float
    ) -> None:
        """Show the progress of training.

        Args:
            step: Optimiser steps done.
            progress: Completed fraction of the training.
            loss: Recent loss per target token, in nats.
            tokens_per_second: Recent speed in target tokens per second.
            seconds_left: Estimated seconds until the configured end; patience may end training earlier.
        """
        minutes, seconds = divmod(int(max(0.0, seconds_left)), 60)
        hours, minutes = divmod(minutes, 60)
        left = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
        text = f"step {step:,}  loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  {left} left"
        if self._bar:
            self._bar.update(self._task, description=text, total=1.0, completed=min(1.0, progress))
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(text)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

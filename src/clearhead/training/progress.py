"""Training progress on stderr: a bar on a terminal, a renewed line in a notebook, or a line every 30 seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

from clearhead.runtime.installation import with_program
from clearhead.text.lines import for_terminal
from clearhead.training.validation import Validation

_SECONDS_BETWEEN_LINES = 30.0
_SECONDS_BETWEEN_RENEWALS = 0.5


def done_by(seconds: float) -> str:
    """Return in words when so many seconds will have passed, with the date if that is in half a day or later."""
    end = time.localtime(time.time() + seconds)
    return time.strftime("done by about %H:%M" if seconds < 43_200 else "done by about %c", end)


@dataclass(frozen=True)
class TrainProgress:
    """How far a training is."""

    step: int
    """Optimiser steps done."""
    loss: float | None
    """Recent loss per target token, in nats; None before the first step of this process."""
    share: float
    """Completed fraction of the steps or of the time, whichever is larger; patience may end the training earlier."""
    validation: Validation | None = None
    """Result of the last validation in this process; None before the first."""


class Display:
    """Progress display: stages of preparation, then training.

    Args:
        on_progress: Called after every step and every validation.
        is_quiet: Whether to show nothing, because another worker of the same run does.
    """

    def __init__(self, on_progress: Callable[[TrainProgress], None] | None = None, *, is_quiet: bool = False) -> None:
        self._on_progress = on_progress
        self._progress = TrainProgress(0, None, 0.0)
        self._renewed: str | None = None  # the line that a notebook shows until the next one; None elsewhere
        self._console = Console(stderr=True, highlight=False)
        self._is_quiet = is_quiet
        self._bar: Progress | None = None
        if self._console.is_jupyter and not is_quiet:
            self._renewed = ""
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
        text = for_terminal(with_program(text))
        with suppress(OSError):  # a closed reader, such as an interrupted `tee`, must not prevent saving
            if self._bar:
                self._console.print(text, markup=False)
            else:
                self._renew("")
                print(text, file=sys.stderr, flush=True)

    def _renew(self, text: str) -> None:
        """Show a line in a notebook in place of the one before it."""
        if self._renewed:
            print("\r" + " " * len(self._renewed) + "\r", end="", file=sys.stderr)
        if self._renewed is not None:
            print(text, end="", file=sys.stderr, flush=True)
            self._renewed = text

    def stage(self, name: str, count: int) -> None:
        """Show the name of a stage other than training, and the number of items done."""
        name = for_terminal(name)
        counted = f"{name} {count:,}" if count else name
        if self._bar:
            self._bar.update(self._task, description=counted, total=None)
        elif self._renewed is not None:
            self._renew(counted)
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
        pause = _SECONDS_BETWEEN_LINES if self._renewed is None else _SECONDS_BETWEEN_RENEWALS
        if self._bar:
            self._bar.update(self._task, description=text, total=1.0, completed=min(1.0, progress))
        elif time.monotonic() - self._last_line >= pause:
            self._last_line = time.monotonic()
            if self._renewed is None:
                self.say(text)
            else:
                self._renew(text)
        self._report(replace(self._progress, step=step, loss=loss, share=progress))

    def validated(self, validation: Validation) -> None:
        """Report a validation to the caller."""
        self._report(replace(self._progress, validation=validation))

    def _report(self, progress: TrainProgress) -> None:
        self._progress = progress
        if self._on_progress is not None:
            self._on_progress(progress)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        self._renew("")

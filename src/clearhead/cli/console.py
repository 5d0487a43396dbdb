"""Notices and progress bars on stderr, and replacement of standard streams that were closed before the start."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from clearhead.errors import ClearheadWarning
from clearhead.runtime.installation import with_program
from clearhead.text.lines import for_terminal


def open_missing_streams() -> None:
    """Replace standard streams that were closed before the program started by the null device.

    Otherwise the next file that is opened would get the number of a closed stream, and printed text would be written
    to that file. Reading a closed input and writing a closed output fail as they should; text on stderr is lost.
    """
    for number, name, flags in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - stays open


def drop_output(stream: TextIO) -> None:
    """Discard what is left in Python's buffer of a stream, which would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def notice(text: str) -> None:
    """Print a message on stderr; if that fails, the message is lost and the command continues."""
    with suppress(OSError):
        print(f"clearhead: {for_terminal(with_program(text))}", file=sys.stderr, flush=True)


def show_warnings_as_notices() -> None:
    """Show our own warnings as notices; leave all others unchanged."""
    show = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, ClearheadWarning):
            notice(str(message))
        else:
            show(message, category, *rest, **named)

    warnings.showwarning = show_warning


@contextmanager
def progress(description: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs if stderr is a terminal; yield a function that advances it.

    Args:
        description: What is being done.
        total: Number of steps; None if unknown.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task(for_terminal(description), total=total)
        yield lambda steps: bars.advance(task, steps)

"""What the commands say beside their output: notices and progress, on stderr; and standard streams that are closed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from clearhead.errors import CompiledCoreWarning


def open_missing_streams() -> None:
    """Open the null device in the place of standard streams that were closed before the program started.

    Otherwise the next file that is opened would get the number of one, and what is printed would go into it. Reading
    such an input and writing such an output fail, as they should; what is said on stderr is lost.
    """
    for number, name, flags in ((0, "stdin", os.O_WRONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - stays open


def notice(text: str) -> None:
    """Say something on stderr; what cannot be said there is lost, and the work goes on."""
    with suppress(OSError):
        print(f"clearhead: {text}", file=sys.stderr, flush=True)


def show_warnings_as_notices() -> None:
    """Show warnings of our own as notices; others stay as they are."""
    show = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, CompiledCoreWarning):
            notice(str(message))
        else:
            show(message, category, *rest, **named)

    warnings.showwarning = show_warning


@contextmanager
def progress(description: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr while the block runs, if that is a terminal; yields what advances it.

    Args:
        description: What is being done.
        total: Steps until it is done; None if that is not known.
    """
    if not sys.stderr.isatty():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task(description, total=total)
        yield lambda steps: bars.advance(task, steps)

"""What the commands say beside their output: notices and progress, on stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from clearhead.errors import CompiledCoreWarning

__all__ = ["notice", "progress", "show_warnings_as_notices"]


def notice(text: str) -> None:
    """Say something on stderr."""
    print(f"clearhead: {text}", file=sys.stderr, flush=True)


def show_warnings_as_notices() -> None:
    """Show warnings of our own as notices; others stay as they are."""
    show = warnings.showwarning

    def show_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, CompiledCoreWarning):
            notice(str(message))
        else:
            show(message, category, filename, lineno, file, line)

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

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task(description, total=total)
        yield lambda steps: bars.advance(task, steps)

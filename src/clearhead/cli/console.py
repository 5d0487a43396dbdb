"""What the commands say beside their output: notices and progress, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["notice", "progress"]


def notice(text: str) -> None:
    """Say something on stderr."""
    print(f"clearhead: {text}", file=sys.stderr, flush=True)


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

"""The run directory: checks before use, a lock against a second process, starting over, and removal of leftovers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from clearhead.errors import CheckpointError
from clearhead.files import (
    is_leftover,
    is_utf8,
    open_own,
    os_error_as,
    readable_version,
    remove_leftovers,
    replace_keeping_old,
    temporary_beside,
)
from clearhead.training.divergence import SKIPPED_FILE
from clearhead.training.evaluations import EVALUATIONS_FILE

MODEL_BEFORE = "model-before"
"""Directory name for a copy of the model that a run started from."""

_OWN_NAMES = {
    *(".lock", "config.toml", "corpus", "data", "data.parts", "tokenizer.json", "checkpoints", "metrics.jsonl"),
    *("tensorboard", "report.html", "explain.html", "verdict.txt", "model", "attention.jsonl"),
    *(EVALUATIONS_FILE, MODEL_BEFORE, SKIPPED_FILE),
}


def from_here(run: Path) -> Path:
    """Return the path of a run directory as people type it: relative if it is within the current directory."""
    here = Path.cwd()
    return run.relative_to(here) if run != here and run.is_relative_to(here) else run


def is_finished(run: Path) -> bool:
    """Return whether a run has ended and been published; the report is written last."""
    return (run / "report.html").exists() and (readable_version(run / "model") / "config.json").exists()


def claim(run: Path) -> None:
    """Check that a directory is a run or can become one, and create it.

    Raises:
        CheckpointError: If it is a file, holds something else, or cannot be created, or if the path is not UTF-8.
    """
    if not is_utf8(run):
        raise CheckpointError(f"--out {run}: the path is not UTF-8; name another directory")
    if run.exists() and not run.is_dir():
        raise CheckpointError(f"--out {run} is a file; name a directory for the run")
    names = sorted(path.name for path in run.iterdir()) if run.exists() else []
    foreign = [name for name in names if name not in _OWN_NAMES and not is_leftover(name)]
    if foreign and not (run / "config.toml").exists():
        raise CheckpointError(
            f"--out {run} is not empty and is not a run (it holds {', '.join(foreign[:3])}); name a new directory"
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create the run directory {run}: {error.strerror}") from None


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """Create and lock the run directory against other processes, and remove leftovers of a killed one.

    Raises:
        CheckpointError: If it cannot be created, or another process is training in it.
    """
    was_there = run.exists()
    claim(run)
    try:
        file = open_own(run / ".lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise CheckpointError(f"cannot lock the run directory {run} by {run / '.lock'}: {error.strerror}") from None
    with file:
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(
                    f"another process is training in {run}; wait for it, or use another --out"
                ) from None
        remove_leftovers(run, _OWN_NAMES)  # skips a translation that is being written here
        remove_leftovers(run / "checkpoints")
        try:
            yield
        finally:
            if not was_there and [path.name for path in run.iterdir()] == [".lock"]:  # nothing was written
                with suppress(OSError):
                    (run / ".lock").unlink()
                    run.rmdir()


@contextmanager
def opened(run: Path, *, fresh: bool) -> Iterator[tuple[Path, Callable[[Iterable[str]], Path] | None]]:
    """Lock a run directory, or with `fresh` make another one aside for a run that exists; see `lock`.

    The earlier run stays in its place, and locked, until everything that a new run needs is known to be there.

    Yields:
        The directory in which to prepare the run, and None; or, for a run that is started over, a function that takes
        the paths of its input files and models, puts the new directory in the place of the earlier one, and returns
        the path at which that one is kept. What the new run reads from within the earlier one is copied.

    Raises:
        CheckpointError: As `lock`, or if a directory beside the run cannot be made.
    """
    if not fresh or not run.exists():
        with lock(run):
            yield run, None
        return
    place = Path(os.path.realpath(run))  # a link to a run is kept
    with ExitStack() as earlier:
        earlier.enter_context(lock(run))
        remove_leftovers(place.parent, {place.name})  # nobody else starts this run over, because it is locked
        new = temporary_beside(place)
        with os_error_as(CheckpointError, f"{run} stays as it is: cannot make another run in {place.parent}"):
            new.mkdir()
        try:
            with lock(new):

                def take_place(inputs: Iterable[str]) -> Path:
                    for path in inputs:
                        _copy_from_within(run, new, path)
                    aside = replace_keeping_old(new, place)
                    earlier.close()
                    return aside

                yield new, take_place
        finally:
            shutil.rmtree(new, ignore_errors=True)  # absent if it has taken its place


def _copy_from_within(run: Path, new: Path, path: str) -> None:
    """Copy a file or directory that lies within a run to the same place of another."""
    for above, original in ((run, Path(os.path.abspath(path))), (run.resolve(), Path(path).resolve())):
        copy = new / original.relative_to(above) if original.is_relative_to(above) else None
        if copy is None or copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if original.is_dir():
            shutil.copytree(original, copy)
        else:
            shutil.copy2(original, copy)

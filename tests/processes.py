"""The `clearhead` command in processes of its own, forked from one that has imported torch already."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

# On one thread the order of additions, and so every bit of a result, is the same in each process.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_CONTEXT = multiprocessing.get_context("forkserver")
# The last two are what a first run would import on its way.
_CONTEXT.set_forkserver_preload(
    ["clearhead.cli.main", "clearhead.serving.server", "clearhead.training.run", "tensorboardX", "torch._dynamo"]
)

SECONDS = 600.0
"""How long anything here may take on a machine that is busy with something else."""


class FileOperations:
    """Counts what a process does to files: opens, makes, renames and removes them."""

    def __init__(self) -> None:
        self._done = _CONTEXT.RawValue("q", 0)

    @property
    def done(self) -> int:
        """File operations so far."""
        return self._done.value

    def until(self, last: int | None) -> Callable[[], None]:
        """Return what to call first in a process: it is then counted, and killed before an operation, from 1."""
        return partial(_count_file_operations, self._done, last)


def _count_file_operations(done: Any, last: int | None) -> None:
    def note(event: str, _: object) -> None:
        if event == "open" or event.startswith("os."):
            done.value += 1
            if done.value == last:
                os.kill(os.getpid(), signal.SIGKILL)

    done.value = 0
    sys.addaudithook(note)


def signal_after_first_record(number: int) -> None:
    """Let this process get a signal as soon as its training has written a first record into `metrics.jsonl`."""
    from clearhead.training.log import MetricsLog

    write = MetricsLog.write

    def write_then_signal(log: MetricsLog, split: str, step: int, **values: float | None) -> None:
        write(log, split, step, **values)
        MetricsLog.write = write
        signal.raise_signal(number)

    MetricsLog.write = write_then_signal


def check_often(*, seconds_to_answer: float = SECONDS) -> None:
    """Let a server look for replaced files, and for an end of its search, every tenth of a second.

    Args:
        seconds_to_answer: Time after which a stopped search is stuck; tests stop it for a while.
    """
    from clearhead.serving import search_process, server

    server.CHECK_SECONDS = 0.1
    search_process.SECONDS_TO_ANSWER = seconds_to_answer


def start(arguments: Sequence[str], log: Path, first: Callable[[], None] | None = None) -> ForkServerProcess:
    """Start `clearhead ARGUMENTS..`; what it prints is appended to `log`.

    Args:
        arguments: What follows `clearhead` on the command line.
        log: A text file.
        first: Called in the process before the command; a function of a module, or a `partial` of one.
    """
    is_daemon = arguments[0] != "serve"  # a daemon may not start processes, as a server does for documents
    process = _CONTEXT.Process(target=_command, args=(list(arguments), str(log), first), daemon=is_daemon)
    process.start()
    return process


def call(function: Callable[[], None]) -> int | None:
    """Call a function of a module, or a `partial` of one, in a process of its own; return the exit code."""
    process = _CONTEXT.Process(target=function, daemon=True)
    process.start()
    return finish(process)


def finish(process: ForkServerProcess) -> int | None:
    """Wait for the end of a process and return its exit code; negative is the signal that killed it."""
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError("the command did not end")
    return process.exitcode


def wait_until(condition: Callable[[], object], process: ForkServerProcess) -> None:
    """Wait until a condition holds; the process must still run then."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if not process.is_alive():
            raise AssertionError(f"the command ended too early, with exit code {process.exitcode}")
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError("what was waited for did not happen")
        time.sleep(0.002)


def wait_for_review(process: ForkServerProcess, log: Path) -> str:
    """Wait until `clearhead review` is ready, and return the address of its page."""
    said: list[str] = []

    def is_ready() -> bool:
        said[:] = re.findall(r"review it at (\S+) and", log.read_text(encoding="utf-8"))
        return bool(said)

    wait_until(is_ready, process)
    return said[0]


def _command(arguments: list[str], log: str, first: Callable[[], None] | None) -> None:
    from clearhead.cli.main import run

    os.fsync = lambda _: None  # who is killed leaves to the system what it has written
    gc.freeze()  # what was imported before the fork: no garbage, and half a second of each full look for some
    gc.unfreeze = lambda: None
    with open(log, "a", encoding="utf-8", buffering=1) as file:
        sys.stdout = sys.stderr = file
        if first is not None:
            first()
        run(arguments)

"""The `clearhead` command in processes of its own, forked from one that has imported torch already."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

# On one thread the order of additions, and so every bit of a result, is the same in each process.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_CONTEXT = multiprocessing.get_context("forkserver")
# The last two are what a first run would import on its way.
_CONTEXT.set_forkserver_preload(["clearhead.cli.main", "clearhead.training.run", "tensorboardX", "torch._dynamo"])

SECONDS = 600.0
"""How long anything here may take on a machine that is busy with something else."""


def start(arguments: Sequence[str], log: Path) -> ForkServerProcess:
    """Start `clearhead ARGUMENTS..`; what it prints is appended to `log`."""
    process = _CONTEXT.Process(target=_command, args=(list(arguments), str(log)), daemon=True)
    process.start()
    return process


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


def train_arguments(values: Mapping[str, Any]) -> list[str]:
    """Write nested settings as the command line has them."""
    arguments = ["train", "--out", values["out"], "--preset", values["preset"], "--device", values["device"]]
    arguments += ["--pairs", *values["data"]["pairs"]]
    settings = [
        f"{section}.{key}={value!r}"
        for section in ("data", "tokenizer", "model", "train", "decode")
        for key, value in values[section].items()
        if key != "pairs"
    ]
    return [*arguments, "--set", *settings]


def _command(arguments: list[str], log: str) -> None:
    from clearhead.cli.main import run

    with open(log, "a", encoding="utf-8", buffering=1) as file:
        sys.stdout = sys.stderr = file
        run(arguments)

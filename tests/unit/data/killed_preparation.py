"""Preparation of `of_pairs` that kills itself, as an operating system would.

    python killed_preparation.py AT COUNT PROCESSES DIRECTORY

AT is the beginning of the name of a step: the process ends right before the COUNTth such step is kept. At `append` it
ends before the COUNTth piece is appended to the store, on a disk without room for both.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pieces_of_text import cut_small, of_pairs

from clearhead.data.prepare import prepare
from clearhead.data.store import StoreWriter
from clearhead.files.finished_steps import FinishedSteps

NUMBER = {"left": 0}


def end_at(owner: Any, name: str, start: str) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, first: Any, *rest: Any) -> None:
        if str(first).startswith(start):
            NUMBER["left"] -= 1
            if NUMBER["left"] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        original(self, first, *rest)

    setattr(owner, name, wrapped)


def main(at: str, count: str, processes: str, directory: str) -> None:
    cut_small(pytest.MonkeyPatch())
    NUMBER["left"] = int(count)
    if at == "append":
        shutil.disk_usage = lambda path: SimpleNamespace(free=0)
        end_at(StoreWriter, "append_part", "")
    else:
        end_at(FinishedSteps, "add", at)
    config, data = of_pairs(Path(directory)), Path(directory) / "run" / "data"
    prepare(config, data, processes=int(processes), notice=print, is_forced=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

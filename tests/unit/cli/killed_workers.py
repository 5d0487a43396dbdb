"""`clearhead` in shards of few lines; a worker is ended in its second shard, or waits there for the end of all.

    python killed_workers.py ends|waits MARKER ARGUMENTS..

It happens once: the worker makes the file MARKER before.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clearhead.cli import main
from clearhead.data import staged_corpus
from clearhead.files import output_parts
from clearhead.runtime import ray_shards

SHARD_LINES, PIECE_ROWS = 7, 19


def load(make: Callable[[], ray_shards.Worker], how: str, marker: Path) -> ray_shards.Worker:
    """Return a worker that makes parts as it should, but for once."""
    return partial(work, make(), how, marker)


def work(worker: ray_shards.Worker, how: str, marker: Path, row: Mapping[str, Any]) -> bytes:
    if row["number"] == 1 and not marker.exists():
        marker.touch()
        if how == "waits":
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    return worker(row)


def clearhead(how: str, marker: str, *arguments: str) -> None:
    """Run the command with such workers."""
    run, output_parts.SHARD_LINES, staged_corpus.PIECE_ROWS = ray_shards.run_on_ray, SHARD_LINES, PIECE_ROWS

    def run_with_kills(make: Callable[[], ray_shards.Worker], shards: Sequence[Mapping[str, Any]], actors: Any) -> Any:
        return run(partial(load, make, how, Path(marker)), shards, actors)

    ray_shards.run_on_ray = run_with_kills
    main.run(list(arguments))


if __name__ == "__main__":
    clearhead(*sys.argv[1:])

"""Preparation of a training text by several processes: pairs a second, memory, and whether the data are the same.

    python bench/preparation.py --source train.de --target train.en --pairs 300000

The text is made of the lines of two files: each pair is one to three of their pairs, joined. Numbers of processes take
turns, each in a process of its own, so that a busy machine slows all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from clearhead.config import Config
from clearhead.data.prepare import prepare
from clearhead.files import read_lines


class Measured(NamedTuple):
    """What one preparation took."""

    seconds: float
    stages: dict[str, float]
    """Seconds by stage."""
    megabytes: float
    """Peak memory of the process that starts the others."""
    own_seconds: float
    """Processor time of this process, in all its threads."""
    others_seconds: float
    """Processor time of the processes that it started."""
    checksums: dict[str, str]


def write_recombined(paths: list[str], count: int, directory: Path) -> list[str]:
    """Write a text of so many pairs, and return its two files."""
    pairs = list(zip(*map(read_lines, paths), strict=True))
    choose = random.Random(1)
    made = [str(directory / name) for name in ("source", "target")]
    with open(made[0], "w", encoding="utf-8") as source, open(made[1], "w", encoding="utf-8") as target:
        for _ in range(count):
            some = choose.choices(pairs, k=choose.choice((1, 1, 1, 2, 2, 3)))
            source.write(" ".join(line for line, _ in some) + "\n")
            target.write(" ".join(line for _, line in some) + "\n")
    return made


def measure(made: list[str], directory: str, processes: int) -> Measured:
    """Prepare the text into a directory."""
    config = Config.from_dict({"data": {"source": [made[0]], "target": [made[1]]}})
    began: list[tuple[str, float]] = []

    def note(stage: str, count: int) -> None:
        if not began or began[-1][0] != stage:
            began.append((stage, time.perf_counter()))

    started = time.perf_counter()
    report = prepare(config, Path(directory) / "data", on_progress=note, is_forced=True, processes=processes).report
    ends = [*(start for _, start in began[1:]), time.perf_counter()]
    stages = {stage: end - start for (stage, start), end in zip(began, ends, strict=True)}
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime
    return Measured(ends[-1] - started, stages, own.ru_maxrss / 1e3, *used, report["checksums"])  # in KB on Linux


def main() -> None:
    """Print a line for each preparation, and the fastest by number of processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    fastest: dict[int, float] = {}
    checksums = []
    with TemporaryDirectory() as directory:
        made = write_recombined([given.source, given.target], given.pairs, Path(directory))
        for number, processes in enumerate(given.processes * given.rounds):
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                done = executor.submit(measure, made, str(Path(directory) / str(number)), processes).result()
            fastest[processes] = min(done.seconds, fastest.get(processes, done.seconds))
            checksums.append(done.checksums)
            load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
            print(f"{processes} processes: {done.seconds:.1f} s, {done.megabytes:,.0f} MB, ", end="")
            print(f"processor time {done.own_seconds:.1f} + {done.others_seconds:.1f} s{load}; ", end="")
            print(", ".join(f"{stage} {seconds:.1f}" for stage, seconds in done.stages.items()), flush=True)
    for processes, seconds in fastest.items():
        print(f"{processes} processes: {given.pairs / seconds:,.0f} pairs a second")
    print(f"the data are {'the same' if checksums.count(checksums[0]) == len(checksums) else 'NOT the same'}")


if __name__ == "__main__":
    main()

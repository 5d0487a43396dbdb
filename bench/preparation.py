"""Preparation of a training text by several processes: pairs a second, memory, and whether the data are the same.

    python bench/preparation.py --source train.de --target train.en --pairs 300000

The text is made of the lines of two files: each pair is one to three of their pairs, joined. There are as many threads
as processes, so that each has one core; with `--threads all`, a single process has all threads (of the tokenizers
library), and several share them. Numbers of processes take turns, each in a process of its own, so that a busy machine
slows all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from clearhead.config import Config
from clearhead.data.prepare import prepare
from clearhead.files import read_lines
from clearhead.runtime.threads import set_num_threads


class Measured(NamedTuple):
    """What one preparation took."""

    kept: int
    """Pairs kept, those held out included."""
    seconds: float
    stages: dict[str, float]
    """Seconds by stage."""
    megabytes: tuple[float, float]
    """Peak memory of the process that starts the others, and of the largest of those."""
    own_seconds: float
    """Processor time of this process, in all its threads."""
    others_seconds: float
    """Processor time of the processes that it started."""
    checksums: dict[str, str]


def write_recombined(paths: list[str], count: int, directory: Path, joined: Sequence[int] = (1, 2, 3)) -> list[str]:
    """Write a text of so many pairs, each of one of the numbers of pairs in `joined`, and return its two files."""
    pairs = list(zip(*map(read_lines, paths), strict=True))
    choose = random.Random(1)
    made = [str(directory / name) for name in ("source", "target")]
    with open(made[0], "w", encoding="utf-8") as source, open(made[1], "w", encoding="utf-8") as target:
        for _ in range(count):
            some = choose.choices(pairs, k=choose.choice(joined))
            source.write(" ".join(line for line, _ in some) + "\n")
            target.write(" ".join(line for _, line in some) + "\n")
    return made


def measure(made: list[str], directory: str, processes: int, threads: int | None) -> Measured:
    """Prepare the text into a directory, with a number of threads in all; None means one for each CPU."""
    if threads is not None:
        set_num_threads(threads)
        os.environ["RAYON_NUM_THREADS"] = str(threads)  # of the tokenizers library, if a process does not share them
    config = Config.from_dict({"data": {"source": [made[0]], "target": [made[1]]}})
    began: list[tuple[str, float]] = []

    def note(stage: str, count: int) -> None:
        if not began or began[-1][0] != stage:
            began.append((stage, time.perf_counter()))

    started = time.perf_counter()
    report = prepare(config, Path(directory) / "data", on_progress=note, is_forced=True, processes=processes).report
    kept = report["train"]["kept"] + report["train"]["held_out"]
    ends = [*(start for _, start in began[1:]), time.perf_counter()]
    stages = {stage: end - start for (stage, start), end in zip(began, ends, strict=True)}
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    used = own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime
    megabytes = own.ru_maxrss / 1e3, others.ru_maxrss / 1e3  # in KB on Linux
    return Measured(kept, ends[-1] - started, stages, megabytes, *used, report["checksums"])


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the text and the numbers of processes that a benchmark of preparation takes."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n\n")[0])
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--pairs", type=int, default=300_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    return parser


def main() -> None:
    """Print a line for each preparation, and the fastest by number of processes."""
    parser = parser_of(__doc__)
    parser.add_argument("--threads", choices=("one", "all"), default="one", help="threads of a process")
    parser.add_argument(
        "--joined", type=int, nargs="+", default=[1, 1, 1, 2, 2, 3], help="numbers to draw from, of pairs joined to one"
    )
    given = parser.parse_args()
    fastest: dict[int, float] = {}
    checksums = []
    with TemporaryDirectory() as directory:
        made = write_recombined([given.source, given.target], given.pairs, Path(directory), given.joined)
        for number, processes in enumerate(given.processes * given.rounds):
            data = Path(directory) / str(number)
            threads = processes if given.threads == "one" else None
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                done = executor.submit(measure, made, str(data), processes, threads).result()
            shutil.rmtree(data)
            fastest[processes] = min(done.seconds, fastest.get(processes, done.seconds))
            checksums.append(done.checksums)
            load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
            memory = " + ".join(f"{size:,.0f}" for size in done.megabytes)
            print(f"{processes} processes: {done.seconds:.1f} s, {memory} MB, ", end="")
            print(f"processor time {done.own_seconds:.1f} + {done.others_seconds:.1f} s{load}; ", end="")
            print(", ".join(f"{stage} {seconds:.1f}" for stage, seconds in done.stages.items()), flush=True)
    print(f"{done.kept:,} of {given.pairs:,} pairs are kept")
    for processes, seconds in fastest.items():
        print(f"{processes} processes: {given.pairs / seconds:,.0f} pairs a second")
    print(f"the data are {'the same' if checksums.count(checksums[0]) == len(checksums) else 'NOT the same'}")


if __name__ == "__main__":
    main()

"""Look-ups in a memory file: how long it takes to make, and to find similar sources among many pairs.

The pairs are halves of two sentences each, drawn from a corpus and joined. Looked up are sources of the memory with one
word replaced, and lines that the memory has not seen; cold, after the file has left the system's cache, and once more.

python bench/memory_lookups.py --source train.en.gz --target train.fr.gz --lines test.en.gz --pairs 1000000
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from clearhead.files import read_lines
from clearhead.translation.memory_file import MemoryFile, write_memory

WORDS_OF_A_HALF = 12
LOOK_UPS = 1_000


def recombined(sources: Sequence[str], targets: Sequence[str], count: int) -> Iterator[tuple[str, str, None]]:
    """Yield pairs whose sources are halves of two sentences."""
    choose = random.Random(1)
    for _ in range(count):
        first, second = choose.randrange(len(sources)), choose.randrange(len(sources))
        begin, end = sources[first].split(" "), sources[second].split(" ")
        halves = begin[: max(1, len(begin) // 2)][:WORDS_OF_A_HALF], end[len(end) // 2 :][:WORDS_OF_A_HALF]
        yield " ".join([*halves[0], *halves[1]]), f"{targets[first]} {targets[second]}", None


def with_another_word(text: str, choose: random.Random) -> str:
    """Return a text with one word replaced by one that no source has."""
    words = text.split(" ")
    words[choose.randrange(len(words))] = "Zebra"
    return " ".join(words)


def measure(path: Path, name: str, lines: Sequence[str]) -> None:
    """Look lines up, twice, and print how many have a match, and the milliseconds taken."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    memory = MemoryFile(path)
    for which in ("cold", "again"):
        found, times = 0, []
        for line in lines:
            start = time.process_time(), time.perf_counter()
            found += memory.match(line) is not None
            times.append([1_000 * (time.process_time() - start[0]), 1_000 * (time.perf_counter() - start[1])])
        (cpu, most_cpu), (passed, most_passed) = (
            (ordered[len(ordered) // 2], ordered[len(ordered) * 95 // 100])
            for ordered in map(sorted, zip(*times, strict=True))
        )
        print(
            f"{name}, {which}: {found:,} of {len(lines):,} found; ms of CPU time a look-up: median {cpu:.2f}, "
            f"95 % under {most_cpu:.2f}; of time: median {passed:.2f}, 95 % under {most_passed:.2f}",
            flush=True,
        )
    memory.close()


def main() -> None:
    """Make a memory file, and look lines up in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--source", "--target", "--lines"):
        parser.add_argument(name, required=True)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--memory", metavar="FILE", help="where the memory file is kept, and used if it is there")
    options = parser.parse_args()
    sources, targets = list(read_lines(options.source)), list(read_lines(options.target))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(options.memory or f"{directory}/memory.sqlite")
        if not path.exists():
            start = time.process_time()
            write_memory(str(path), recombined(sources, targets, options.pairs), (None, None))
            taken, size = time.process_time() - start, path.stat().st_size / 1e6
            print(f"{options.pairs:,} pairs written in {taken:.0f} s of CPU time: {size:,.0f} MB")
        choose = random.Random(2)
        own = [source for source, _, _ in islice(recombined(sources, targets, options.pairs), LOOK_UPS)]
        measure(path, "one word replaced", [with_another_word(source, choose) for source in own])
        measure(path, "new lines", list(islice(read_lines(options.lines), LOOK_UPS)))
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    main()

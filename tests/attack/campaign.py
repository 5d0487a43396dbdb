"""The attacks, whole or in part: `python campaign.py [--part NAME] [--count N] [--seed S] [--only CASE]`."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import Attack, Campaign, Children, Outcome, Stock, Verdict

PARTS = (
    "model_directories",
    "data_files",
    "documents",
    "finished_translations",
    "structured",
    "changed_modules",
    "term_searches",
    "text_forms",
    "journals",
    "reviews",
    "kept_reviews",
    "kills",
    "full_disks",
    "regroupings",
    "threaded_calls",
    "command_line",
    "publishing",
    "server",
    "connections",
)
"""Modules with an `ATTACK`, in the order of docs/reliability.md."""

SEED = 20170612
SECONDS = 20.0
"""A case that takes longer hangs, unless its attack allows it more."""


def attack_of(part: str) -> Attack:
    """Return the attack of a module."""
    return importlib.import_module(part).ATTACK


@contextmanager
def new_directory() -> Iterator[Path]:
    """Make an empty directory, and delete it afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def verdicts(
    attack: Attack, count: int, seed: int, children: Children, stock: Stock, only: int | None = None
) -> Iterator[Verdict]:
    """Run one attack in a directory of its own and yield what became of every case."""
    with new_directory() as directory:
        yield from attack.run(Campaign(seed, count, directory, children, stock, count <= attack.few, only))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, print the findings and a table, and return 1 if there are findings."""
    parser = argparse.ArgumentParser(description="Attack clearhead and count what becomes of it.")
    parser.add_argument("--part", choices=PARTS, action="append", help="an attack; may be repeated; all if not given")
    parser.add_argument("--count", type=int, help="how many cases of each attack; all if not given")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", type=int, metavar="CASE", help="run one case again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many cases run at once")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a case may take")
    options = parser.parse_args(arguments)

    rows = []
    with Children(options.jobs, options.seconds) as children, new_directory() as directory:
        stock = Stock(directory, children)
        for part in options.part or PARTS:
            attack, began = attack_of(part), time.monotonic()
            count = attack.full if options.count is None else options.count
            found = []
            for verdict in verdicts(attack, count, options.seed, children, stock, options.only):
                found.append(verdict)
                if verdict.outcome.is_finding or options.only is not None:
                    print(f"{part}: {verdict}", flush=True)
            rows.append((attack, count, found, time.monotonic() - began))
            print("  ".join(_row(*rows[-1], options.seed)), file=sys.stderr, flush=True)
    print(table(rows, options.seed))
    return int(any(verdict.outcome.is_finding for _, _, found, _ in rows for verdict in found))


def table(rows: Sequence[tuple[Attack, int, Sequence[Verdict], float]], seed: int) -> str:
    """Return the table of docs/reliability.md."""
    head = ("attack", "count", "checks", "outcomes", "findings", "seed", "seconds")
    lines = [head, tuple("---" for _ in head), *(_row(*row, seed) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _row(attack: Attack, count: int, found: Sequence[Verdict], seconds: float, seed: int) -> tuple[str, ...]:
    outcomes = Counter(verdict.outcome for verdict in found)
    findings = sum(number for outcome, number in outcomes.items() if outcome.is_finding)
    counted = ", ".join(f"{outcome} {outcomes[outcome]:,}" for outcome in Outcome if outcomes[outcome])
    counts = (f"{count:,} {attack.unit}", f"{len(found):,}", counted, str(findings), str(seed), f"{seconds:.0f}")
    return (attack.name, *counts)


if __name__ == "__main__":
    sys.exit(main())

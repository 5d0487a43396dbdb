"""What all attacks share: cases that run in child processes, a watchdog, and a verdict on each.

A case is a function of a seed and its number alone, so that a finding can be attacked again by itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from child import error_in

from clearhead.runtime.lazy import cached_property

HERE = Path(__file__).parent
SPARE_MEMORY = 500 * 2**20
"""Bytes that a case may take beside twice the size of its files."""


class Outcome(StrEnum):
    """What became of a case."""

    works = "works"
    refused = "refused"
    """One `ClearheadError`, or one message and exit code 1."""
    lacking = "lacking"
    """This machine cannot do it, and says so."""
    untyped = "untyped error"
    crashed = "crashed"
    hung = "hung"
    memory = "memory"
    wrong = "wrong"
    """Something lost, changed in silence, left behind, or said that is not so."""

    @property
    def is_finding(self) -> bool:
        """Whether it must not be."""
        return self not in (Outcome.works, Outcome.refused, Outcome.lacking)


@dataclass(frozen=True)
class Case:
    """One attack, ready to run in a child."""

    number: int
    """What `--only` takes to run it again."""
    name: str
    function: str
    """`module:function`, which returns `{"outcome": .., "detail": ..}` or a list of such."""
    arguments: Mapping[str, Any]
    seconds: float | None = None
    """Time allowed, where it differs from the campaign's."""
    memory: int | None = None
    """Bytes allowed; None is any number."""


@dataclass(frozen=True)
class Verdict:
    """What became of a case, and what shows it."""

    number: int
    name: str
    outcome: Outcome
    detail: str = ""

    def __str__(self) -> str:
        return f"case {self.number} ({self.name}): {self.outcome}: {' '.join(self.detail.split())}"


class Stock:
    """Models and training runs that all attacks of a campaign read, made once each.

    Args:
        directory: An empty one. Attacks work on copies of what is there.
        children: They make it.
    """

    def __init__(self, directory: Path, children: Children) -> None:
        self.directory = directory
        self._children = children
        self._undisturbed: dict[str, Mapping[str, Any]] = {}

    @cached_property
    def references(self) -> Mapping[str, Any]:
        """Make the models if need be; return what they translate `LINES` to, by kind."""
        return self._children.need("materials:make_models", {"directory": str(self.directory / "models")})

    @property
    def models(self) -> Path:
        """The directory of the models of `materials`, by kind."""
        assert self.references
        return self.directory / "models"

    @cached_property
    def scenarios(self) -> Path:
        """The directory of what the commands of `scenarios` start from."""
        assert self.references
        self._children.need("scenarios:stock", {"directory": str(self.directory)})
        return self.directory

    def undisturbed(self, name: str) -> Mapping[str, Any]:
        """Return what a scenario's command does when nothing disturbs it, and the `directory` that it did it in."""
        if name not in self._undisturbed:
            work = str(self.directory / f"undisturbed-{name}")
            arguments = {"stock": str(self.scenarios), "name": name, "work": work}
            self._undisturbed[name] = {**self._children.need("kills:undisturbed", arguments), "directory": work}
        return self._undisturbed[name]


@dataclass(frozen=True)
class Campaign:
    """What an attack is given."""

    seed: int
    count: int
    """How many cases, in the unit of the attack."""
    directory: Path
    """Its own, empty, deleted afterwards."""
    children: Children
    stock: Stock
    is_small: bool = False
    """Whether a few seconds matter more than the size of what is attacked."""
    only: int | None = None
    """The one case to run; None is all of them."""

    def numbers(self, in_a_case: int = 1) -> Iterable[int]:
        """Return the numbers of the cases to run, where one case is so many of what `count` counts."""
        return range(-(-self.count // in_a_case)) if self.only is None else [self.only]

    def choose(self, number: int) -> random.Random:
        """Return the random choices of a case, the same ones every time."""
        return random.Random(f"{self.seed}:{number}")


@dataclass(frozen=True)
class Attack:
    """One part of the campaign."""

    name: str
    unit: str
    """What `count` counts."""
    full: int
    """How many the whole campaign has."""
    few: int
    """How many the ordinary test suite has."""
    run: Callable[[Campaign], Iterator[Verdict]]


def judged(cases: Callable[[Campaign], Iterable[Case]]) -> Callable[[Campaign], Iterator[Verdict]]:
    """Return the `run` of an attack that runs all its cases and yields their verdicts in order."""
    return lambda campaign: campaign.children.judge(cases(campaign))


class Children:
    """Processes that fork a child for every job; see child.py.

    Args:
        jobs: How many cases run at once.
        seconds: A case that takes longer hangs.
        preloads: Whether they import what clearhead needs before the first fork, instead of every case by itself.
    """

    def __init__(self, jobs: int, seconds: float, *, preloads: bool = True) -> None:
        self.seconds = seconds
        # One thread each: the order of additions, and so every bit of a result, is then the same in each process.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _import_path()}
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(HERE / "child.py"), *(["--preload"] if preloads else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            for _ in range(jobs)
        ]
        self._idle: queue.Queue[subprocess.Popen[str]] = queue.Queue()
        for process in self._processes:
            self._idle.put(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def call(self, function: str, arguments: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        """Run one function in a child and return how it ended, as `child.run_in_child` says."""
        process = self._idle.get()
        try:
            job = {"function": function, "arguments": arguments, "seconds": seconds or self.seconds}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        finally:
            self._idle.put(process)

    def need(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Run a function that prepares something and return its result.

        Raises:
            RuntimeError: If it did not end well; that is no finding, but nothing can be attacked.
        """
        ending = self.call(function, arguments, seconds=600.0)
        if ending["code"] != 0 or ending["hung"]:
            raise RuntimeError(f"{function} ended with {ending['code']}: {ending['errors']}")
        return ending["result"]

    def judge(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Run cases, one at a time in each process, and yield their verdicts in order."""
        with ThreadPoolExecutor(len(self._processes) or 1) as pool:
            for case, ending in pool.map(lambda case: (case, self._ending(case)), cases):
                yield from _verdicts(case, ending)

    def _ending(self, case: Case) -> dict[str, Any]:
        return self.call(case.function, case.arguments, case.seconds)


def _verdicts(case: Case, ending: Mapping[str, Any]) -> Iterator[Verdict]:
    def verdict(outcome: Outcome, detail: str) -> Verdict:
        return Verdict(case.number, case.name, outcome, detail)

    first = ending["errors"].strip().partition("\n")[0][:300]
    said = " .. ".join(dict.fromkeys([first, error_in(ending["errors"])]))
    if ending["hung"]:
        yield verdict(Outcome.hung, f"no end after {ending['seconds']:.0f} s; {said}")
    elif ending["code"] < 0:
        yield verdict(Outcome.crashed, f"signal {-ending['code']}; {said}")
    elif ending["code"] or ending["result"] is None:
        yield verdict(Outcome.untyped, f"exit code {ending['code']}; {said}")
    elif case.memory is not None and ending["grown"] > case.memory:
        yield verdict(Outcome.memory, f"{ending['grown'] >> 20} MB, {case.memory >> 20} MB are allowed")
    else:
        results = ending["result"] if isinstance(ending["result"], list) else [ending["result"]]
        for result in results:
            yield verdict(Outcome(result["outcome"]), result["detail"])


def _import_path() -> str:
    """Return where the children find this folder, and the same clearhead as this process."""
    source = Path(importlib.util.find_spec("clearhead").origin).parents[1]  # without importing torch
    return os.pathsep.join([str(HERE), str(source), *filter(None, [os.environ.get("PYTHONPATH")])])

"""A process for each candidate, so that none runs in the memory or with the settings that another one left."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from clearhead.data.store import PairStore
from clearhead.runtime.threads import prepare_openmp
from peers import Missing, build, require
from profiling import profile_kernels, profile_steps
from work import CASES, choose_batches

__all__ = ["Job", "Worker", "now"]

PROFILED_STEPS = 3


@dataclass(frozen=True)
class Job:
    """What a process trains."""

    candidate: str
    case: str
    store: Path
    batch_tokens: int
    """Target tokens in a batch."""
    steps: int
    """In a window, each on a batch of its own."""
    threads: int
    device: str
    precision: str


class Worker:
    """A candidate in a process of its own, which works only while it is asked to.

    Raises:
        Missing: If its library is not installed.
    """

    facts: Mapping[str, Any]
    """`parameters` and `differences`, see `Candidate`."""
    first_loss: float
    """Mean loss of window 0."""

    def __init__(self, job: Job) -> None:
        require(job.candidate)  # before a process is started for nothing
        self._candidate = job.candidate
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(job, theirs), daemon=True)
        with _environment(job.candidate):
            self._process.start()
        theirs.close()

    def begin(self) -> None:
        """Wait until the candidate is built, and let it begin window 0, which warms it up.

        Raises:
            Missing: If its library does not start, or the candidate fails.
        """
        self.facts = self._answer()
        self._pipe.send(("window", 0))

    def end_warm_up(self) -> None:
        """Wait for the end of window 0.

        Raises:
            Missing: If the candidate fails.
        """
        _, self.first_loss = self._answer()

    def window(self, number: int) -> tuple[float, float]:
        """Train on all batches once, as window `number` from 1; return target tokens a second and their mean loss."""
        return self._ask("window", number)

    def profile(self) -> dict[str, Any]:
        """Return milliseconds a step by kind of work; on a GPU, see `profile_kernels`."""
        return self._ask("profile")

    def memory(self) -> dict[str, float]:
        """Return the peak so far, and what it was before the first step, in MiB."""
        return self._ask("memory")

    def close(self) -> None:
        """End the process."""
        self._pipe.send(("close", None))
        self._process.join()

    def _ask(self, what: str, argument: Any = None) -> Any:
        self._pipe.send((what, argument))
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._pipe.recv()
        except EOFError:
            answer = Missing(f"{self._candidate} failed, see its error")
        if isinstance(answer, Missing):
            raise answer
        return answer


def now(device: torch.device) -> float:
    """Return seconds, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@contextmanager
def _environment(candidate: str) -> Iterator[None]:
    """Let a process begin as `clearhead train` does, and those of others as they were called."""
    before = dict(os.environ)
    if candidate == "clearhead":
        prepare_openmp()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _work(job: Job, pipe: Connection) -> None:
    with suppress(EOFError, BrokenPipeError):  # the benchmark was stopped
        _answer(job, pipe)


def _answer(job: Job, pipe: Connection) -> None:
    torch.set_num_threads(job.threads)
    device = torch.device(job.device)
    case = CASES[job.case]
    batches = choose_batches(PairStore.open(job.store), job.batch_tokens, job.steps)
    tokens = sum(batch.num_target_tokens for batch in batches)
    try:
        candidate = build(job.candidate, case.config, device, job.precision)
    except Missing as problem:
        pipe.send(problem)
        return
    candidate.prepare(batches)
    before = _peak_memory(device)
    pipe.send({"parameters": candidate.num_parameters, "differences": candidate.differences})
    while True:
        what, argument = pipe.recv()
        if what == "close":
            return
        if what == "memory":
            pipe.send({"peak": _peak_memory(device), "before": before})
        elif what == "profile":
            profiled = profile_steps if device.type == "cpu" else profile_kernels
            pipe.send(profiled(candidate, batches[:PROFILED_STEPS]))
        else:
            start, first = now(device), argument * len(batches) + 1
            losses = [
                candidate.step(batch, step) * batch.num_target_tokens for step, batch in enumerate(batches, start=first)
            ]
            seconds = now(device) - start
            pipe.send((tokens / seconds, float(sum(losses)) / tokens))


def _peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike the ru_maxrss of getrusage this leaves out what the parent had used when it forked.
        values = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(values["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)

"""Worker liveness: heartbeats in the shared store; a watch ends this process if a worker is lost or hangs.

Each worker sends one heartbeat a second, which also carries what it is doing. A worker that hangs in a computation
still sends heartbeats, from a separate thread. But the others wait for it, so no worker makes progress, and that is
detected.

PyTorch 2.13 does part of this, and docs/scaling.md promises more:

- The launcher notices that a process ended. It does not notice a process that hangs, nor the loss of another machine
  while the workers of its own live, nor that it was itself stopped.
- A collective operation fails when its connection breaks, or after its time limit. The error names an address and no
  worker. `monitored_barrier` then names a worker that hangs, if it runs in another group, but none that ended.
- NCCL's time limit aborts the process, so the launcher would report the workers that waited.
- A time limit is the same for every step. The one here follows the run's own steps, which take a second or an hour.
- A call to a store that does not answer has no time limit.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import torch.distributed as dist

_SECONDS_BETWEEN_HEARTBEATS = 1.0
_SECONDS_TO_MISS = 2.5
"""A worker without a heartbeat for this long is lost, if a collective operation with it failed."""
_SECONDS_OF_SILENCE = 20.0
"""A worker without a heartbeat for this long is stopped, or its machine is lost."""

_SECONDS_TO_GO_ON = 45.0
"""Minimum time without progress after which joint work counts as stuck; see also `_TIMES_AS_LONG`."""
_TIMES_AS_LONG = 10
_SECONDS_AT_FIRST = 1800.0
"""Time allowed for work that is done for the first time, when its usual duration is unknown."""

_SECONDS_TO_STOP = 5.0
"""Maximum time to wait for each thread to end. A thread that is blocked in a call to the store is abandoned."""


class Activity(NamedTuple):
    """Activity of a worker, as sent in its heartbeat."""

    turn: int = 0
    """Counter that changes whenever the worker makes progress."""
    waits: bool = False
    """Whether the worker is in a collective operation. It may be computing its own part or waiting for the others."""
    work: str = ""
    """Description of the joint work; empty for work without a time limit."""
    is_repeated: bool = False
    """Whether this worker has begun the same work before."""


class Heartbeats:
    """Heartbeats of all workers in a store, with the activity that each one reports.

    Time without a heartbeat is counted in calls of `tick`, not by a clock: a process that was itself suspended
    or starved for a while must not take the others for dead.

    Args:
        store: Store that holds the heartbeats.
        rank: Rank of this worker.
        count: Number of all workers.
    """

    def __init__(self, store: dist.Store, rank: int, count: int) -> None:
        self._store, self._rank = store, rank
        self._number = 0
        self._seen = dict.fromkeys(range(count), b"")
        self._seconds = dict.fromkeys(range(count), 0.0)  # since the last new heartbeat
        self.own = Activity()
        """Activity of this worker."""
        self._activities = dict.fromkeys(range(count), Activity())
        self._seconds_without_progress = 0.0  # of any worker
        self._longest: dict[str, float] = {}  # longest time without progress, by the first worker's work

    def exchange(self) -> None:
        """Send a heartbeat and read those of the others. This worker's own counts once the store has returned it.

        Raises:
            RuntimeError: If the store is closed.
        """
        self._number += 1
        self._store.set(_key(self._rank), json.dumps([self._number, *self.own]))
        for rank, last in self._seen.items():
            if self._store.check([_key(rank)]) and (beat := self._store.get(_key(rank))) != last:
                self._seen[rank], self._seconds[rank] = beat, 0.0
                self._note(rank, Activity(*json.loads(beat)[1:]))

    def _note(self, rank: int, activity: Activity) -> None:
        if activity != self._activities[rank]:
            work = self._activities[0].work
            self._longest[work] = max(self._longest.get(work, 0.0), self._seconds_without_progress)
            self._seconds_without_progress = 0.0
            self._activities[rank] = activity

    def tick(self) -> None:
        """Count the time between two heartbeats."""
        self._seconds_without_progress += _SECONDS_BETWEEN_HEARTBEATS
        for rank in self._seconds:
            self._seconds[rank] += _SECONDS_BETWEEN_HEARTBEATS

    def silent(self, seconds: float) -> list[int]:
        """Return workers without a heartbeat for more than `seconds`: this one too, if the store does not answer."""
        return [rank for rank, passed in self._seconds.items() if passed > seconds]

    def stuck(self, least: float) -> str | None:
        """Return a message naming the workers that hang, or None if progress is not overdue.

        Progress is overdue after ten times the longest earlier wait for the same work.

        Args:
            least: Minimum seconds without progress before work counts as stuck.
        """
        if not (work := self._activities[0].work):
            return None
        # Work that was done between two heartbeats was not seen to take any time.
        usual = self._longest.get(work, 0.0 if self._activities[0].is_repeated else None)
        seconds = self._seconds_without_progress
        if seconds <= (_SECONDS_AT_FIRST if usual is None else max(least, _TIMES_AS_LONG * usual)):
            return None
        return _stuck_workers([rank for rank, state in self._activities.items() if not state.waits], work, seconds)


class Watch:
    """Background watch over the heartbeats of all workers, until `stop`.

    If a worker is silent for too long, or hangs, this process exits: otherwise it would wait for that worker inside a
    collective operation, which cannot be interrupted. If the store is closed or does not answer, the launcher is
    probably gone too, and this process sends itself SIGTERM, to save and stop. If the store does not answer for twice
    as long, its machine is gone, and this process exits.

    Args:
        store: Store of the heartbeats; used by this object alone.
        rank: Rank of this worker.
        count: Number of all workers.
        say: Called with the reason why this process ends; prints it unless another worker has reported one.
        report_locally: Called with the reason when the store cannot be asked whether another worker has reported one.
        silence: Seconds without a heartbeat after which a worker counts as lost.
        stillness: Minimum seconds without any progress after which a worker that does not wait for others may count as
            stuck.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        count: int,
        say: Callable[[str], None],
        report_locally: Callable[[str], None],
        *,
        silence: float = _SECONDS_OF_SILENCE,
        stillness: float = _SECONDS_TO_GO_ON,
    ) -> None:
        self._heartbeats = Heartbeats(store, rank, count)
        self._begun: set[str] = set()  # work, by its description
        self._stillness = stillness
        self._rank, self._say, self._report_locally, self._silence = rank, say, report_locally, silence
        self._done = threading.Event()
        # Two threads: a store whose machine is gone blocks the first one.
        self._threads = [
            threading.Thread(target=work, name="clearhead-watch", daemon=True)
            for work in (self._send_heartbeats, self._end_after_silence)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending and reading heartbeats."""
        self._done.set()
        for thread in self._threads:
            thread.join(_SECONDS_TO_STOP)

    def note(self, *, work: str | None = None, waits: bool = False) -> None:
        """Record that this worker made progress.

        Args:
            work: Description of the work that starts now. None leaves it unchanged; empty means work without a time
                limit.
            waits: Whether this worker needs the others to continue.
        """
        last = self._heartbeats.own
        is_repeated = last.is_repeated if work is None else work in self._begun
        if work is not None:
            self._begun.add(work)
        self._heartbeats.own = Activity(last.turn + 1, waits, last.work if work is None else work, is_repeated)

    def lost(self) -> list[int]:
        """Wait until missing heartbeats show which workers are lost, and return them; empty if none is lost."""
        start = time.monotonic()
        while not (ranks := self._others(_SECONDS_TO_MISS)) and time.monotonic() - start < self._silence:
            time.sleep(0.1)
        return ranks

    def _others(self, seconds: float) -> list[int]:
        return [rank for rank in self._heartbeats.silent(seconds) if rank != self._rank]

    def _send_heartbeats(self) -> None:
        try:
            while not self._done.wait(_SECONDS_BETWEEN_HEARTBEATS):
                self._heartbeats.exchange()
        except RuntimeError:  # the store has closed
            self._done.set()
            os.kill(os.getpid(), signal.SIGTERM)

    def _end_after_silence(self) -> None:
        is_asked = False
        while not self._done.wait(_SECONDS_BETWEEN_HEARTBEATS):
            self._heartbeats.tick()
            silent = self._heartbeats.silent(self._silence)
            if self._rank not in silent:
                is_asked = False
                if problem := lost_workers(silent) if silent else self._heartbeats.stuck(self._stillness):
                    self._say(problem)
                    os._exit(1)
            elif self._rank in self._heartbeats.silent(2 * self._silence):
                self._report_locally(lost_workers(self._others(self._silence)))
                os._exit(1)
            elif not is_asked:
                is_asked = True
                os.kill(os.getpid(), signal.SIGTERM)


def lost_workers(ranks: list[int]) -> str:
    """Return a message that names the lost workers and what to do."""
    who = f"worker {', '.join(map(str, ranks))}" if ranks else "another worker"
    return (
        f"{who} ended or does not answer any more, so the training stopped; the same command continues from the last "
        f"checkpoint"
    )


def _stuck_workers(ranks: list[int], work: str, seconds: float) -> str:
    """Return a message that names the workers that hang, their work, and what to do."""
    names = ", ".join(map(str, ranks))
    who = f"worker {names} hangs" if len(ranks) == 1 else f"workers {names} hang" if ranks else "the workers hang"
    return (
        f"{who} in {work}: there was no progress for {seconds:.0f} s, so the training stopped; the same command "
        f"continues from the last checkpoint"
    )


def _key(rank: int) -> str:
    return f"alive/{rank}"

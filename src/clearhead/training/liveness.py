"""Whether the other workers live and go on: each leaves a sign in the common store every second, and looks for theirs.

A sign also says what its worker does. One that hangs in a computation still gives signs, from a thread of its own; but
the others wait for it, so none of them goes on.
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

__all__ = ["Signs", "Watch", "lost_workers"]

_SECONDS_BETWEEN_SIGNS = 1.0
_SECONDS_TO_MISS = 2.5
"""A worker that gave no sign for so long is gone, if a sum with it failed."""
_SECONDS_OF_SILENCE = 20.0
"""A worker that gave no sign for so long is stopped, or its machine is gone."""

_SECONDS_TO_GO_ON = 45.0
"""What all workers do together takes so long at least before it counts as stuck, and ten times as long as ever."""
_TIMES_AS_LONG = 10
_SECONDS_AT_FIRST = 1800.0
"""What they do for the first time may take so long: nobody knows yet how long it takes."""

_SECONDS_TO_STOP = 5.0
"""A thread is waited for so long: one that waits for the store itself is left behind."""


class Deed(NamedTuple):
    """What a worker does."""

    turn: int = 0
    """Another number whenever it goes on."""
    waits: bool = False
    """For the other workers; it cannot tell whether it computes what it brings them or waits."""
    work: str = ""
    """In words; none if it takes as long as it takes."""


class Signs:
    """The signs of life in a store, and what each worker says in them that it does.

    How long there was none is counted in calls of `pass_second`, not on a clock: who was stopped himself for a while,
    or had no time, must not take the others for dead.

    Args:
        store: Where the signs are.
        rank: Of this worker.
        count: Of all workers.
    """

    def __init__(self, store: dist.Store, rank: int, count: int) -> None:
        self._store, self._rank = store, rank
        self._number = 0
        self._seen = dict.fromkeys(range(count), b"")
        self._seconds = dict.fromkeys(range(count), 0.0)  # since there was a new sign
        self.own = Deed()
        """What this worker does."""
        self._deeds = dict.fromkeys(range(count), Deed())
        self._still = 0.0  # seconds since any worker went on
        self._longest: dict[str, float] = {}  # that they were still, by the first worker's work

    def give_and_look(self) -> None:
        """Give a sign, and look for those of the others; this worker's own has come once the store has answered.

        Raises:
            RuntimeError: If there is no store any more.
        """
        self._number += 1
        self._store.set(_key(self._rank), json.dumps([self._number, *self.own]))
        for rank, last in self._seen.items():
            if self._store.check([_key(rank)]) and (sign := self._store.get(_key(rank))) != last:
                self._seen[rank], self._seconds[rank] = sign, 0.0
                self._note(rank, Deed(*json.loads(sign)[1:]))

    def _note(self, rank: int, deed: Deed) -> None:
        if deed != self._deeds[rank]:
            work = self._deeds[0].work
            self._longest[work] = max(self._longest.get(work, 0.0), self._still)
            self._still = 0.0
            self._deeds[rank] = deed

    def pass_second(self) -> None:
        """Count the time between two signs."""
        self._still += _SECONDS_BETWEEN_SIGNS
        for rank in self._seconds:
            self._seconds[rank] += _SECONDS_BETWEEN_SIGNS

    def silent(self, seconds: float) -> list[int]:
        """Return the workers without a sign for more than so many seconds; this one, if the store does not answer."""
        return [rank for rank, passed in self._seconds.items() if passed > seconds]

    def stuck(self, least: float) -> str | None:
        """Say which workers hang, if no worker goes on with something that never took nearly as long.

        Args:
            least: Seconds that it may take at least.
        """
        if not (work := self._deeds[0].work):
            return None
        usual = self._longest.get(work)
        if self._still <= (_SECONDS_AT_FIRST if usual is None else max(least, _TIMES_AS_LONG * usual)):
            return None
        return _stuck_workers([rank for rank, deed in self._deeds.items() if not deed.waits], work, self._still)


class Watch:
    """Looks for the signs of all workers, until `stop`.

    If one is silent for too long, or hangs, this process ends: it would wait for it in the midst of a sum, where
    nothing can wake it. If the store is gone or does not answer, and with it whoever started the workers, this process
    is asked to save and stop; if the store is silent twice as long, its machine is gone, and this process ends.

    Args:
        store: Where the signs are; for this object alone.
        rank: Of this worker.
        count: Of all workers.
        say: Prints why this process ends, which may be said by one worker alone.
        say_alone: Prints it where no store can be asked who has said it.
        silence: Seconds without a sign after which a worker counts as lost.
        stillness: Seconds in which no worker goes on, after which one that does not wait for others may count as stuck.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        count: int,
        say: Callable[[str], None],
        say_alone: Callable[[str], None],
        *,
        silence: float = _SECONDS_OF_SILENCE,
        stillness: float = _SECONDS_TO_GO_ON,
    ) -> None:
        self._signs = Signs(store, rank, count)
        self._stillness = stillness
        self._rank, self._say, self._say_alone, self._silence = rank, say, say_alone, silence
        self._done = threading.Event()
        # Two: a store whose machine is gone keeps the first one waiting.
        self._threads = [
            threading.Thread(target=work, name="clearhead-watch", daemon=True)
            for work in (self._give_signs, self._end_after_silence)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Give no signs any more, and look for none."""
        self._done.set()
        for thread in self._threads:
            thread.join(_SECONDS_TO_STOP)

    def note(self, *, work: str | None = None, waits: bool = False) -> None:
        """Note that this worker goes on.

        Args:
            work: What it does now, in words; as before if not given, and nothing that is watched if empty.
            waits: Whether it cannot go on without the others.
        """
        last = self._signs.own
        self._signs.own = Deed(last.turn + 1, waits, last.work if work is None else work)

    def lost(self) -> list[int]:
        """Wait until silence tells who is gone, and return them; nobody, if all go on giving signs."""
        start = time.monotonic()
        while not (ranks := self._others(_SECONDS_TO_MISS)) and time.monotonic() - start < self._silence:
            time.sleep(0.1)
        return ranks

    def _others(self, seconds: float) -> list[int]:
        return [rank for rank in self._signs.silent(seconds) if rank != self._rank]

    def _give_signs(self) -> None:
        try:
            while not self._done.wait(_SECONDS_BETWEEN_SIGNS):
                self._signs.give_and_look()
        except RuntimeError:  # no store any more
            self._done.set()
            os.kill(os.getpid(), signal.SIGTERM)

    def _end_after_silence(self) -> None:
        is_asked = False
        while not self._done.wait(_SECONDS_BETWEEN_SIGNS):
            self._signs.pass_second()
            silent = self._signs.silent(self._silence)
            if self._rank not in silent:
                is_asked = False
                if problem := lost_workers(silent) if silent else self._signs.stuck(self._stillness):
                    self._say(problem)
                    os._exit(1)
            elif self._rank in self._signs.silent(2 * self._silence):
                self._say_alone(lost_workers(self._others(self._silence)))
                os._exit(1)
            elif not is_asked:
                is_asked = True
                os.kill(os.getpid(), signal.SIGTERM)


def lost_workers(ranks: list[int]) -> str:
    """Say who is gone, and what can be done."""
    who = f"worker {', '.join(map(str, ranks))}" if ranks else "another worker"
    return (
        f"{who} ended or does not answer any more, so the training stopped; the same command goes on from the last "
        f"checkpoint"
    )


def _stuck_workers(ranks: list[int], work: str, seconds: float) -> str:
    """Say who hangs in what, and what can be done."""
    names = ", ".join(map(str, ranks))
    who = f"worker {names} hangs" if len(ranks) == 1 else f"workers {names} hang" if ranks else "the workers hang"
    return (
        f"{who} in {work}: nothing went on for {seconds:.0f} s, so the training stopped; the same command goes on from "
        f"the last checkpoint"
    )


def _key(rank: int) -> str:
    return f"alive/{rank}"

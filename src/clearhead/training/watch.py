"""Whether the other workers are alive: each leaves a sign in the common store every second, and looks for theirs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import torch.distributed as dist

__all__ = ["Signs", "Watch", "lost_workers"]

_SECONDS_BETWEEN_SIGNS = 1.0
_SECONDS_TO_MISS = 2.5
"""A worker that gave no sign for so long is gone, if a sum with it failed."""
_SECONDS_OF_SILENCE = 20.0
"""A worker that gave no sign for so long is stopped, or its machine is gone."""

_SECONDS_TO_STOP = 5.0
"""A thread is waited for so long: one that waits for the store itself is left behind."""


class Signs:
    """The signs of life in a store.

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

    def give_and_look(self) -> None:
        """Give a sign, and look for those of the others; this worker's own has come once the store has answered.

        Raises:
            RuntimeError: If there is no store any more.
        """
        self._number += 1
        self._store.set(_key(self._rank), str(self._number))
        for rank, last in self._seen.items():
            if self._store.check([_key(rank)]) and (sign := self._store.get(_key(rank))) != last:
                self._seen[rank], self._seconds[rank] = sign, 0.0

    def pass_second(self) -> None:
        """Count the time between two signs."""
        for rank in self._seconds:
            self._seconds[rank] += _SECONDS_BETWEEN_SIGNS

    def silent(self, seconds: float) -> list[int]:
        """Return the workers without a sign for more than so many seconds; this one, if the store does not answer."""
        return [rank for rank, passed in self._seconds.items() if passed > seconds]


class Watch:
    """Looks for the signs of all workers, until `stop`.

    If one is silent for too long, this process ends: it would wait for it in the midst of a sum, where nothing can wake
    it. If the store is gone or does not answer, and with it whoever started the workers, this process is asked to save
    and stop; if the store is silent twice as long, its machine is gone, and this process ends.

    Args:
        store: Where the signs are; for this object alone.
        rank: Of this worker.
        count: Of all workers.
        say: Prints why this process ends, which may be said by one worker alone.
        say_alone: Prints it where no store can be asked who has said it.
        silence: Seconds without a sign after which a worker counts as lost.
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
    ) -> None:
        self._signs = Signs(store, rank, count)
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
                if silent:
                    self._say(lost_workers(silent))
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


def _key(rank: int) -> str:
    return f"alive/{rank}"

"""Whether the other workers are alive: each leaves a sign in the common store every second, and looks for theirs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import torch.distributed as dist

__all__ = ["Watch", "lost_workers"]

_SECONDS_BETWEEN_SIGNS = 1.0
_SECONDS_TO_MISS = 2.5
"""A worker that gave no sign for so long is gone, if a sum with it failed."""
_SECONDS_OF_SILENCE = 20.0
"""A worker that gave no sign for so long is stopped, or its machine is gone."""


class Watch:
    """Looks for the signs of all workers in a thread, until `stop`.

    If one is silent for too long, this process ends: it would wait for it in the midst of a sum, where nothing can wake
    it. If the store is gone, and with it whoever started the workers, this process is asked to save and stop.

    Args:
        store: Where the signs are; for this thread alone.
        rank: Of this worker.
        count: Of all workers.
        say: Prints why this process ends.
        silence: Seconds without a sign after which a worker counts as lost.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        count: int,
        say: Callable[[str], None],
        *,
        silence: float = _SECONDS_OF_SILENCE,
    ) -> None:
        self._store, self._rank, self._say, self._silence = store, rank, say, silence
        others = (other for other in range(count) if other != rank)
        self._signs: dict[int, tuple[bytes, float]] = dict.fromkeys(others, (b"", time.monotonic()))
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clearhead-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Give no signs any more, and look for none."""
        self._done.set()
        self._thread.join()

    def silent(self, seconds: float) -> list[int]:
        """Return the workers that gave no sign for so many seconds."""
        now = time.monotonic()
        return [rank for rank, (_, seen) in self._signs.items() if now - seen > seconds]

    def lost(self) -> list[int]:
        """Wait until silence tells who is gone, and return them; nobody, if all go on giving signs."""
        start = time.monotonic()
        while not (ranks := self.silent(_SECONDS_TO_MISS)) and time.monotonic() - start < self._silence:
            time.sleep(0.1)
        return ranks

    def _run(self) -> None:
        number = 0
        try:
            while not self._done.wait(_SECONDS_BETWEEN_SIGNS):
                number += 1
                self._store.set(_key(self._rank), str(number))
                for rank, (last, _) in self._signs.items():
                    if self._store.check([_key(rank)]) and (sign := self._store.get(_key(rank))) != last:
                        self._signs[rank] = (sign, time.monotonic())
                if silent := self.silent(self._silence):
                    self._say(lost_workers(silent))
                    os._exit(1)
        except RuntimeError:  # no store any more
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

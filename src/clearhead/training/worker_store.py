"""The store of the workers: their rendezvous, what they were given, who reports a failure, and texts between threads.

The store is a key-value store of torch.distributed, hosted by the launcher or by the first worker.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined] # documented

from clearhead.errors import ConfigError, TrainingError
from clearhead.training.liveness import lost_workers

_SECONDS_TO_COME = 300.0
"""Maximum time that the workers wait for each other at the start."""
_SPOKEN = "spoken"


class LostWorkerError(TrainingError):
    """Another worker ended or no longer responds."""


def open_store(rank: int) -> dist.Store:
    """Connect to the launcher's store; without a launcher, to the store of the first worker."""
    host, port = os.environ.get("MASTER_ADDR"), number_in_environment("MASTER_PORT")
    if not host:
        raise ConfigError("several workers need MASTER_ADDR in the environment; start them with torchrun")
    has_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    try:
        return TCPStore(
            host,
            port,
            is_master=rank == 0 and not has_launcher,
            wait_for_workers=False,
            timeout=timedelta(seconds=_SECONDS_TO_COME),
        )
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
        raise TrainingError(f"worker {rank} cannot meet the others at {host}:{port}: {problem:.200}") from None


def own_store(store: dist.Store, rank: int, count: int) -> dist.Store:
    """Return a store for these workers alone: a launcher's store may still hold entries of earlier workers.

    Each worker writes a random word, and the first worker answers with all the words it read. It answers again until
    every worker has found its own word in the answer.
    """
    word, start = uuid4().hex, time.monotonic()
    store.set(f"word/{rank}", word)
    answered: list[str] = []
    while True:
        if rank == 0 and all(store.check([f"word/{other}"]) for other in range(count)):
            words = [store.get(f"word/{other}").decode() for other in range(count)]
            if words != answered:
                answered = words
                store.set("words", json.dumps(words))
        if store.check(["words"]):
            words = json.loads(store.get("words"))
            if len(words) == count and words[rank] == word:
                own = PrefixStore(f"clearhead/{words[0]}", store)
                own.set(f"met/{word}", "1")
                if rank or all(own.check([f"met/{other}"]) for other in words):
                    return own
        if time.monotonic() - start > _SECONDS_TO_COME:
            missing = [other for other in range(count) if not store.check([f"word/{other}"])]
            who = f"worker {missing[0]}" if missing else "a worker"
            raise TrainingError(f"{who} did not come within {_SECONDS_TO_COME:.0f} s; start all of them")
        time.sleep(0.05)


def may_speak(store: dist.Store, rank: int, text: str) -> bool:
    """Return whether no other worker has reported why training ends, and claim the report for this one."""
    own = f"{rank} {text}"
    try:
        return store.compare_set(_SPOKEN, "", own) == own.encode()
    except RuntimeError:  # the store closed with the launcher
        return is_first_here()


def is_first_here() -> bool:
    """Return whether this is the first worker of its machine, for use when the store is closed."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def number_in_environment(name: str) -> int:
    """Return a number that `torchrun` sets in the environment.

    Raises:
        ConfigError: If the variable is missing, or is not a number.
    """
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise ConfigError(f"several workers need {name} in the environment, a number, not {text!r:.50}; use torchrun")
    return int(text)


def greet(store: dist.Store, rank: int, count: int, greeting: Mapping[str, Any]) -> None:
    """Wait for all workers; raise TrainingError if one was given different values."""
    store.set(f"greeting/{rank}", json.dumps(greeting, default=str))  # a date of a TOML file is refused later
    first = json.loads(wait_for(store, "greeting/0", "worker 0"))
    for other in range(1, count) if rank == 0 else ():
        received = json.loads(wait_for(store, f"greeting/{other}", f"worker {other}"))
        for name in sorted(first.keys() | received.keys()):
            if first.get(name) != received.get(name):
                raise TrainingError(
                    f"all workers must be given the same, but {name} is {first.get(name)!r:.100} for worker 0 and "
                    f"{received.get(name)!r:.100} for worker {other}"
                )


def wait_for(store: dist.Store, key: str, who: str) -> str:
    """Poll the store until a key exists, so that signals are still handled; return its value."""
    start = time.monotonic()
    while not store.check([key]):
        if store.check([_SPOKEN]):
            raise LostWorkerError(lost_workers([]))
        if key.startswith("greeting") and time.monotonic() - start > _SECONDS_TO_COME:
            raise TrainingError(f"{who} did not come within {_SECONDS_TO_COME:.0f} s; start all of them")
        time.sleep(0.05)
    return store.get(key).decode()


class Messages:
    """Texts by key that the workers leave for each other; each key is used once.

    Args:
        store: A connection to the workers' store that is used by one thread alone.
    """

    def __init__(self, store: dist.Store) -> None:
        self._store = store

    def put(self, key: str, text: str) -> None:
        """Leave a text for the others.

        Raises:
            LostWorkerError: If the store does not answer.
        """
        with self._answered():
            self._store.set(key, text)

    def get(self, key: str, ended: threading.Event) -> str:
        """Return a text, for which this waits until `ended` is set.

        Raises:
            LostWorkerError: If `ended` is set, or the store does not answer.
        """
        with self._answered():
            while not self._store.check([key]):
                if ended.wait(0.05):
                    raise LostWorkerError("this worker ended before the others had written their shares")
            return self._store.get(key).decode()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LostWorkerError(f"the workers' store does not answer: {str(error).splitlines()[0]:.200}") from None

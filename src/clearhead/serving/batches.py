"""The batches of a server: sentences of all requests that search alike go through the same workers.

A search that is asked for the first time begins a batch, which stays open while sentences come and ends when none has
come for a while. A sentence's translation does not depend on what is beside it in a batch, so each request gets what it
would get alone.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from threading import Lock, Thread, get_native_id
from typing import Protocol

import torch

from clearhead.decoding import Engine, Hypothesis, SearchOptions
from clearhead.decoding.batching import advice_on_memory
from clearhead.decoding.scheduler import SentenceQueue, find
from clearhead.decoding.sentence import Sentence
from clearhead.errors import ClearheadError
from clearhead.serving.fair_queue import FairOrder
from clearhead.serving.http_errors import Refusal

__all__ = ["SECONDS_TO_END", "Batches", "Call", "SearchObserver", "Withdraw", "join_threads", "spare_what_is_loaded"]

LINGER_SECONDS = 20.0
"""That a batch without sentences waits for the next one."""
SECONDS_TO_END = 5.0
"""That threads are waited for at the end: one that is stuck ends with the process."""
_NICENESS = 10
"""Added to that of the server, for threads that search."""

Withdraw = Callable[[], None]
"""Lets go of sentences that nobody waits for any more."""


class SearchObserver(Protocol):
    """Who counts what happens."""

    def waited(self, seconds: float) -> None:
        """A sentence waited so long for its place in a batch."""

    def entered(self, in_flight: int) -> None:
        """With a sentence that entered, so many are in flight in its batch."""

    def translated(self, source_tokens: int, target_tokens: int) -> None:
        """A sentence was translated."""


class Call(Protocol):
    """Who waits for the sentences of one search."""

    @property
    def client(self) -> str:
        """Whose turn it takes."""

    def deliver(self, index: int, hypotheses: list[Hypothesis], /) -> None:
        """Take what was found for a sentence."""

    def fail(self, error: BaseException, /) -> None:
        """Learn that nothing more is found."""


@dataclass
class _Entry:
    """A sentence in a batch."""

    call: Call
    index: int
    source_tokens: int
    since: float


class _Batch:
    """The searches of one engine that are alike."""

    def __init__(
        self, engine: Engine, options: SearchOptions, max_slots: int, observer: SearchObserver, *, is_usual: bool
    ) -> None:
        self.is_usual = is_usual
        self._observer = observer
        self._entries: dict[int, _Entry] = {}
        self._order = FairOrder(lambda number: self._entries[number].call.client, self._left)
        self._queue = SentenceQueue(self._order)
        self._next = 0
        self._lock = Lock()
        self.idle_since = time.monotonic()
        # The engine is this thread's alone, and goes with it.
        search = engine, options, max_slots
        self.thread = Thread(target=self._run, args=search, daemon=True, name="clearhead batch")
        self.thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more sentences."""
        return self._queue.is_closed

    @property
    def num_open(self) -> int:
        """Sentences that are not done."""
        return len(self._entries)

    def submit(self, call: Call, sentences: Sequence[Sentence]) -> list[int] | None:
        """Add the sentences of a call, numbered from 0; return their own numbers, or None if the batch is closed."""
        now = time.monotonic()
        with self._lock:
            if self.is_closed:
                return None
            first = self._next
            self._next += len(sentences)
            own = [replace(sentence, number=first + sentence.number) for sentence in sentences]
            for index, sentence in enumerate(own):
                self._entries[sentence.number] = _Entry(call, index, len(sentence.source), now)
            self._queue.add(own)
        return [sentence.number for sentence in own]

    def withdraw(self, numbers: Sequence[int]) -> None:
        """Let go of sentences of a call that nobody waits for."""
        with self._lock:
            for number in self._queue.withdraw([number for number in numbers if number in self._entries]):
                self._drop(number)

    def close_if_idle(self, seconds: float) -> bool:
        """Take no more sentences, if there has been none for so long."""
        with self._lock:
            if self._entries or time.monotonic() - self.idle_since < seconds:
                return False
            self._queue.close()
            return True

    def stop(self) -> None:
        """Search no further than this step; whoever still waits for a sentence is told."""
        self._queue.stop()
        self._queue.close()

    def _left(self, number: int) -> None:
        entry = self._entries[number]
        self._observer.waited(time.monotonic() - entry.since)
        self._observer.entered(self._queue.num_open - len(self._order))

    def _run(self, engine: Engine, options: SearchOptions, max_slots: int) -> None:
        _give_way()
        error: BaseException | None = None
        try:
            with torch.inference_mode(), advice_on_memory(options.config.batch_tokens):
                workers = engine.num_workers(max_slots)
                for number, hypotheses in find(engine, self._queue, options, workers, max_slots):
                    entry = self._forget(number)
                    if hypotheses:  # there are none of a sentence that was withdrawn
                        self._observer.translated(entry.source_tokens, len(hypotheses[0].tokens))
                        entry.call.deliver(entry.index, hypotheses)
        except BaseException as found:  # it is for those who wait, each in a thread of its own
            error = found
        with self._lock:
            self._queue.close()
            left, self._entries = list(self._entries.values()), {}
        for entry in left:
            entry.call.fail(error or ClearheadError("the batch ended before its sentences"))

    def _forget(self, number: int) -> _Entry:
        with self._lock:
            return self._drop(number)

    def _drop(self, number: int) -> _Entry:
        entry = self._entries.pop(number)
        if not self._entries:
            self.idle_since = time.monotonic()
        return entry


class Batches:
    """The batches of all models.

    Args:
        max_batch: Most sentences that a worker has in flight.
        max_searches: Most batches at once, beside those of the searches that are usual.
        observer: Who counts what happens.
    """

    is_ended = False
    """Whether there are no searches any more; here there always are."""

    def __init__(self, max_batch: int, max_searches: int, observer: SearchObserver) -> None:
        self._max_batch = max_batch
        self._max_searches = max_searches
        self._observer = observer
        self._batches: dict[Hashable, _Batch] = {}
        self._lock = Lock()

    def submit(
        self, call: Call, engine: Engine, sentences: Sequence[Sentence], options: SearchOptions, *, is_usual: bool
    ) -> Withdraw:
        """Search for the sentences of a call, numbered from 0, among those of others.

        Args:
            call: Gets what is found, from another thread.
            engine: What translates.
            sentences: At least one, whose source ids are in the vocabulary.
            options: How to search.
            is_usual: Whether the search has a batch however many there are.

        Raises:
            Refusal: If there are too many batches of other kinds.
        """
        numbers = None
        while numbers is None:  # a batch may close between the two lines
            batch = self._batch(engine, options, is_usual=is_usual)
            numbers = batch.submit(call, sentences)
        return partial(batch.withdraw, numbers)

    def _batch(self, engine: Engine, options: SearchOptions, *, is_usual: bool) -> _Batch:
        """Return the batch for searches of a kind.

        Raises:
            Refusal: If there are too many batches of other kinds.
        """
        key = (id(engine), options.config, options.num_best, options.most_required, id(options.shortlist))
        with self._lock:
            batch = self._batches.get(key)
            if batch is not None and not batch.is_closed:
                return batch
            self._sweep(LINGER_SECONDS)
            if not is_usual and self._num_unusual() >= self._max_searches:
                self._sweep(0.0)
            if not is_usual and self._num_unusual() >= self._max_searches:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "too many kinds of searches are running (numbers of alternatives and of beams); ask again",
                    retry_after=1,
                )
            batch = _Batch(engine, options, self._max_batch, self._observer, is_usual=is_usual)
            self._batches[key] = batch
            return batch

    def _num_unusual(self) -> int:
        return sum(not batch.is_usual for batch in self._batches.values())

    def sweep(self) -> None:
        """End the batches that have been without sentences for a while."""
        with self._lock:
            self._sweep(LINGER_SECONDS)

    def _sweep(self, seconds: float) -> None:
        for key, batch in list(self._batches.items()):
            if batch.is_closed or batch.close_if_idle(seconds):
                del self._batches[key]

    def close(self) -> None:
        """End all batches, and wait for their threads: `SECONDS_TO_END` at most, since a step may be stuck."""
        with self._lock:
            batches, self._batches = list(self._batches.values()), {}
        for batch in batches:
            batch.stop()
        join_threads([batch.thread for batch in batches])

    @property
    def num_open(self) -> int:
        """Sentences that wait or are in flight."""
        return sum(batch.num_open for batch in list(self._batches.values()))


def join_threads(threads: Sequence[Thread]) -> None:
    """Wait for threads that have been told to end: `SECONDS_TO_END` at most for all of them."""
    until = time.monotonic() + SECONDS_TO_END
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _give_way() -> None:
    """Let other threads of this process go before this one, and those that it starts.

    So whoever is answered or refused in a few instructions does not wait for a processor that searches.
    """
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = get_native_id()
        with suppress(OSError):  # a sandbox may not allow it, and searches go on without
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def spare_what_is_loaded() -> None:
    """Leave all that there is now out of Python's search for cycles, which looks at everything from time to time.

    With a model that takes a tenth of a second, in which all threads wait.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()

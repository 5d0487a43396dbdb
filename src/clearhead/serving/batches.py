"""Continuous batching: sentences of all requests with the same search options share one batch and its workers.

The first search with given options opens a batch. It stays open while sentences arrive and closes when none has arrived
for a while. A sentence's translation does not depend on the others in its batch, so each request gets the same result
as alone.
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
from threading import Lock, Thread, get_native_id
from typing import Protocol

from clearhead.decoding import Engine, Hypothesis, SearchOptions
from clearhead.decoding.scheduler import SentenceQueue, search_queue
from clearhead.decoding.sentence import Sentence, advice_on_memory
from clearhead.errors import ClearheadError
from clearhead.serving.fair_queue import FairOrder
from clearhead.serving.http_errors import unavailable

LINGER_SECONDS = 20.0
"""Seconds that an idle batch waits for the next sentence."""
SECONDS_TO_END = 5.0
"""Seconds that threads are waited for at shutdown; a stuck thread ends with the process."""
_NICENESS = 10
"""Added to the server's niceness, for search threads."""

Withdraw = Callable[[], None]
"""Withdraws sentences whose result is no longer needed."""


@dataclass(frozen=True, slots=True)
class Search:
    """Sentences to search for, and how."""

    engine: Engine
    """The model's inference engine."""
    sentences: Sequence[Sentence]
    """At least one, numbered from 0, whose source ids are in the vocabulary."""
    options: SearchOptions
    has_default_options: bool
    """Whether these are the model's default options, which get a batch whatever `max_searches` says."""


class MetricsListener(Protocol):
    """Receiver of search metrics."""

    def waited(self, seconds: float) -> None:
        """Record how many seconds a sentence waited for its place in a batch."""

    def entered(self, in_flight: int) -> None:
        """Record the number of sentences in flight in a batch when one enters, itself included."""

    def translated(self, source_tokens: int, target_tokens: int) -> None:
        """Record a translated sentence and its lengths in tokens."""


class PendingSearch(Protocol):
    """A pending search request."""

    @property
    def client(self) -> str:
        """Client whose share of the fair queue is used."""

    def deliver(self, index: int, hypotheses: list[Hypothesis], /) -> None:
        """Receive the hypotheses of one sentence."""

    def fail(self, error: BaseException, /) -> None:
        """Receive an error; no further results follow."""


@dataclass
class _Entry:
    """A sentence in a batch."""

    call: PendingSearch
    index: int
    source_tokens: int
    since: float


class _Batch:
    """One running batch: an engine, its search options, and a thread.

    Args:
        search: The search that opens it; its sentences are submitted afterwards.
        max_slots: Most sentences that a worker has in flight.
        observer: Receives the metrics.
    """

    def __init__(self, search: Search, max_slots: int, observer: MetricsListener) -> None:
        self.has_default_options = search.has_default_options
        self._observer = observer
        self._entries: dict[int, _Entry] = {}
        self._order = FairOrder(lambda number: self._entries[number].call.client, self._left)
        self._queue = SentenceQueue(self._order)
        self._next = 0
        self._lock = Lock()
        self.idle_since = time.monotonic()
        # Only this thread refers to the engine, so the engine is freed with it.
        arguments = search.engine, search.options, max_slots
        self.thread = Thread(target=self._run, args=arguments, daemon=True, name="clearhead batch")
        self.thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the batch accepts no more sentences."""
        return self._queue.is_closed

    @property
    def num_open(self) -> int:
        """Number of unfinished sentences."""
        return len(self._entries)

    def submit(self, call: PendingSearch, sentences: Sequence[Sentence]) -> list[int] | None:
        """Add the sentences of a call, numbered from 0; return their numbers in the batch, or None if it is closed."""
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
        """Withdraw sentences of a call whose results are no longer needed."""
        with self._lock:
            for number in self._queue.withdraw([number for number in numbers if number in self._entries]):
                self._drop(number)

    def close_if_idle(self, seconds: float) -> bool:
        """Close the batch if it has been idle for so many seconds; return whether it did."""
        with self._lock:
            if self._entries or time.monotonic() - self.idle_since < seconds:
                return False
            self._queue.close()
            return True

    def stop(self) -> None:
        """Stop the search after the current step; pending calls receive an error."""
        self._queue.stop()
        self._queue.close()

    def _left(self, number: int) -> None:
        entry = self._entries[number]
        self._observer.waited(time.monotonic() - entry.since)
        self._observer.entered(self._queue.num_open - len(self._order))

    def _run(self, engine: Engine, options: SearchOptions, max_slots: int) -> None:
        _lower_priority()
        error: BaseException | None = None
        try:
            with engine.computing(), advice_on_memory(options.config.batch_tokens):
                workers = engine.num_workers(max_slots)
                for number, hypotheses in search_queue(engine, self._queue, options, workers, max_slots):
                    entry = self._forget(number)
                    if hypotheses:  # empty for a sentence that was withdrawn
                        self._observer.translated(entry.source_tokens, len(hypotheses[0].tokens))
                        entry.call.deliver(entry.index, hypotheses)
        except BaseException as problem:  # passed to the waiting calls, each in a thread of its own
            error = problem
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
        max_searches: Most batches at once, besides those of searches with default options.
        observer: Receives the metrics.
    """

    is_ended = is_stuck = False
    """Whether the search back end has ended or does nothing; never for batches in this process."""

    def __init__(self, max_batch: int, max_searches: int, observer: MetricsListener) -> None:
        self._max_batch = max_batch
        self._max_searches = max_searches
        self._observer = observer
        self._batches: dict[Hashable, _Batch] = {}
        self._lock = Lock()

    def submit(self, call: PendingSearch, search: Search) -> Withdraw:
        """Queue the sentences of a call for search in a shared batch.

        Args:
            call: Receives the results, from another thread.
            search: What to search.

        Raises:
            HTTPError: If there are too many batches with other options.
        """
        numbers = None
        while numbers is None:  # a batch may close between the two lines
            batch = self._batch(search)
            numbers = batch.submit(call, search.sentences)
        return partial(batch.withdraw, numbers)

    def _batch(self, search: Search) -> _Batch:
        """Return the open batch for an engine and its search options; create it if needed.

        Raises:
            HTTPError: If there are too many batches with other options.
        """
        options = search.options
        kind = options.num_best, options.most_required, options.scores
        key = (id(search.engine), options.config, *kind, id(options.shortlist))
        with self._lock:
            batch = self._batches.get(key)
            if batch is not None and not batch.is_closed:
                return batch
            self._sweep(LINGER_SECONDS)
            if not search.has_default_options and self._num_with_other_options() >= self._max_searches:
                self._sweep(0.0)
            if not search.has_default_options and self._num_with_other_options() >= self._max_searches:
                raise unavailable(
                    "too many kinds of searches are running (numbers of alternatives and of beams); ask again"
                )
            batch = _Batch(search, self._max_batch, self._observer)
            self._batches[key] = batch
            return batch

    def _num_with_other_options(self) -> int:
        return sum(not batch.has_default_options for batch in self._batches.values())

    def sweep(self) -> None:
        """Close the batches that have been idle for `LINGER_SECONDS`."""
        with self._lock:
            self._sweep(LINGER_SECONDS)

    def _sweep(self, seconds: float) -> None:
        for key, batch in list(self._batches.items()):
            if batch.is_closed or batch.close_if_idle(seconds):
                del self._batches[key]

    def close(self) -> None:
        """Stop all batches and wait for their threads, for `SECONDS_TO_END` at most, since a step may be stuck."""
        with self._lock:
            batches, self._batches = list(self._batches.values()), {}
        for batch in batches:
            batch.stop()
        join_threads([batch.thread for batch in batches])

    @property
    def num_open(self) -> int:
        """Number of sentences that wait or are in flight."""
        return sum(batch.num_open for batch in list(self._batches.values()))


def join_threads(threads: Sequence[Thread]) -> None:
    """Wait for threads that are ending: `SECONDS_TO_END` at most for all of them."""
    until = time.monotonic() + SECONDS_TO_END
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _lower_priority() -> None:
    """Lower the scheduling priority of this thread and of the threads that it starts.

    Requests that are answered or refused in a few instructions then do not wait for a core that runs a search.
    """
    if sys.platform == "linux":  # only there do threads have their own priorities
        thread = get_native_id()
        with suppress(OSError):  # a sandbox may forbid it; searches work without
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def freeze_loaded_objects() -> None:
    """Exclude all objects that exist now from Python's cyclic garbage collection.

    With a model loaded, one full collection takes a tenth of a second, in which all threads wait.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()

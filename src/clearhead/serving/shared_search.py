"""One batch for many clients: the sentences of all requests that search alike go through the same workers.

A search that is asked for the first time begins a batch, which stays open while sentences come and ends when none has
come for a while. Who asks waits in a thread of its own. A sentence's translation does not depend on what is beside it
in a batch, so each request gets what it would get alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from threading import Condition, Lock, Thread, get_native_id
from typing import Protocol

import torch

from clearhead.config import DecodeConfig
from clearhead.decoding import Engine, Hypothesis, Prefix, Required, SearchOptions, length_limits
from clearhead.decoding.batching import advice_on_memory
from clearhead.decoding.rules import check_ids
from clearhead.decoding.search import BEAMS_OF_TERMS
from clearhead.decoding.sentence import Sentence, sentences_of
from clearhead.decoding.workers import SentenceQueue, find
from clearhead.errors import ClearheadError
from clearhead.serving.fair_order import FairOrder
from clearhead.serving.refusal import Refusal
from clearhead.text_search import Decode

__all__ = ["Job", "SearchObserver", "SharedSearch"]

LINGER_SECONDS = 20.0
"""That a batch without sentences waits for the next one."""
_NICENESS = 10
"""Added to that of the server, for threads that search."""


class SearchObserver(Protocol):
    """Who counts what happens."""

    def waited(self, seconds: float) -> None:
        """A sentence waited so long for its place in a batch."""

    def entered(self, in_flight: int) -> None:
        """With a sentence that entered, so many are in flight in its batch."""

    def translated(self, source_tokens: int, target_tokens: int) -> None:
        """A sentence was translated."""


@dataclass(eq=False)
class Job:
    """What a request may use, and whether anybody still waits for it."""

    client: str
    """Whose turn it takes."""
    deadline: float
    """On the clock of `time.monotonic`."""
    max_tokens: int
    """Of all its searches: tokens read, and the most that may be written."""
    is_cancelled: bool = False
    _changed: Condition = field(default_factory=Condition, repr=False)

    def cancel(self) -> None:
        """Say that nobody waits for the answer any more."""
        with self._changed:
            self.is_cancelled = True
            self._changed.notify_all()

    def require_time(self) -> None:
        """Go on only while somebody waits and there is time.

        Raises:
            Refusal: If not.
        """
        if self.is_cancelled:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "the request was broken off", retry_after=1)
        if time.monotonic() > self.deadline:
            raise Refusal(
                HTTPStatus.GATEWAY_TIMEOUT, "the translation took too long; send less text at once, or ask again later"
            )

    def spend(self, tokens: int) -> None:
        """Take tokens from what the request may use.

        Raises:
            Refusal: If it has not so many left.
        """
        if tokens > self.max_tokens:
            raise Refusal(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the text has too many tokens for one request ({tokens:,} with those that may be written, of "
                f"{self.max_tokens:,} left); send it in parts",
            )
        self.max_tokens -= tokens


@dataclass(eq=False)
class _Call:
    """The sentences of one search of a job."""

    job: Job
    results: list[list[Hypothesis]]
    left: int
    error: BaseException | None = None

    def deliver(self, index: int, hypotheses: list[Hypothesis]) -> None:
        with self.job._changed:
            self.results[index] = hypotheses
            self.left -= 1
            if not self.left:
                self.job._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.job._changed:
            self.error = error
            self.job._changed.notify_all()

    def wait(self) -> None:
        """Wait until all is found, or nobody wants it, or it is too late."""
        job = self.job
        with job._changed:
            while self.left and self.error is None and not job.is_cancelled:
                remaining = job.deadline - time.monotonic()
                if remaining <= 0 or not job._changed.wait(remaining):
                    break


@dataclass
class _Entry:
    """A sentence in a batch."""

    call: _Call
    index: int
    source_tokens: int
    since: float


class _Batch:
    """The searches of one engine that are alike."""

    def __init__(
        self, engine: Engine, options: SearchOptions, max_slots: int, observer: SearchObserver, *, is_usual: bool
    ) -> None:
        self.is_usual = is_usual
        self._engine = engine
        self._options = options
        self._observer = observer
        self._entries: dict[int, _Entry] = {}
        self._order = FairOrder(lambda number: self._entries[number].call.job.client, self._left)
        self._queue = SentenceQueue(self._order)
        self._next = 0
        self._lock = Lock()
        self.idle_since = time.monotonic()
        self._thread = Thread(target=self._run, args=(max_slots,), daemon=True, name="clearhead batch")
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more sentences."""
        return self._queue.is_closed

    @property
    def num_open(self) -> int:
        """Sentences that are not done."""
        return len(self._entries)

    def submit(self, call: _Call, sentences: Sequence[Sentence]) -> list[int] | None:
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

    def _left(self, number: int) -> None:
        entry = self._entries[number]
        self._observer.waited(time.monotonic() - entry.since)
        self._observer.entered(self._queue.num_open - len(self._order))

    def _run(self, max_slots: int) -> None:
        _give_way()
        engine, options = self._engine, self._options
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


def _times_as_wide(sentence: Sentence, beam_size: int) -> int:
    """Return how many times as many hypotheses a search has in flight for the terms of a sentence, about."""
    required = sentence.required
    return 1 if required is None else 1 + max(BEAMS_OF_TERMS, required.num_tokens // beam_size)


class SharedSearch:
    """The batches of all models.

    Args:
        max_batch: Most sentences that a worker has in flight.
        max_searches: Most batches at once, beside those of the searches that are usual.
        observer: Who counts what happens.
    """

    def __init__(self, max_batch: int, max_searches: int, observer: SearchObserver) -> None:
        self._max_batch = max_batch
        self._max_searches = max_searches
        self._observer = observer
        self._batches: dict[Hashable, _Batch] = {}
        self._lock = Lock()

    def decoder(self, job: Job, usual: DecodeConfig | None = None) -> Decode:
        """Return what searches for a job, as `decoding.decode` does.

        Args:
            job: Who asks.
            usual: How the model searches if nothing else is asked for: that always has a batch, so that who asks for
                something else leaves no one without.
        """

        def decode(
            engine: Engine,
            sources: list[list[int]],
            options: SearchOptions,
            on_progress: Callable[[int], None] | None = None,
            prefixes: Sequence[Prefix] = (),
            required: Sequence[Required] = (),
        ) -> list[list[Hypothesis]]:
            most_required = max((forms.num_tokens for forms in required), default=0)
            # To a power of two, so that searches with nearly as many share a batch.
            options = replace(options, most_required=1 << (most_required - 1).bit_length() if most_required else 0)
            max_lengths = length_limits(engine.model.config, options.config, sources, prefixes)
            # The search knows tokens alone: neither a language nor how lines are read and cut.
            options = replace(options, config=_of_tokens(options.config))
            is_usual = usual is not None and replace(options, shortlist=None) == SearchOptions(_of_tokens(usual))
            sentences = sentences_of(sources, max_lengths, prefixes, required)
            found = self._search(job, engine, sentences, options, is_usual=is_usual)
            if on_progress is not None and sources:
                on_progress(len(sources))
            return found

        return decode

    def _search(
        self, job: Job, engine: Engine, sentences: Sequence[Sentence], options: SearchOptions, *, is_usual: bool
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, found among those of others.

        Raises:
            ClearheadError: As `decode` does.
            Refusal: If the job may not use so much, has no time left, or is cancelled; or there are too many batches.
        """
        job.require_time()
        model = engine.model.config
        sources = [sentence.source for sentence in sentences]
        check_ids(sources, model.source_vocabulary, None if model.is_decoder_alone else model.pad_id, "source")
        beam = options.config.beam_size
        job.spend(sum(len(one.source) + one.max_length * _times_as_wide(one, beam) for one in sentences))
        if not sentences:
            return []
        call = _Call(job, [[] for _ in sentences], len(sentences))
        numbers = None
        while numbers is None:  # a batch may close between the two lines
            batch = self._batch(engine, options, is_usual=is_usual)
            numbers = batch.submit(call, sentences)
        call.wait()
        if call.error is not None:
            raise call.error
        if call.left:
            batch.withdraw(numbers)
            job.require_time()
            raise AssertionError("a search ended early without a reason")
        return call.results

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

    @property
    def num_open(self) -> int:
        """Sentences that wait or are in flight."""
        return sum(batch.num_open for batch in list(self._batches.values()))


def _of_tokens(config: DecodeConfig) -> DecodeConfig:
    return config.model_copy(update={"source_lang": None, "target_lang": None, "split": "auto", "familiar": True})


def _give_way() -> None:
    """Let other threads of this process go before this one, and those that it starts.

    So whoever is answered or refused in a few instructions does not wait for a processor that searches.
    """
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = get_native_id()
        with suppress(OSError):  # a sandbox may not allow it, and searches go on without
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)

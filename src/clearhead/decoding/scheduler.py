"""Continuous batching: workers search a queue of sentences; one that is finished leaves its slot to the next.

The engine chooses the number of workers. Each worker has its own slots, and its own thread if there are several, so
that no worker waits for another at every product. If there are fewer sentences than threads, and no other call is
running, the idle threads help (see `helper_threads`).
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from clearhead.config import ModelConfig
from clearhead.decoding.beam_state import SearchedSentence
from clearhead.decoding.engine import Engine, InFlight, Slots, SlotSearch, leave_slot
from clearhead.decoding.helper_threads import helpers
from clearhead.decoding.neighbour_keys import KeysOf, with_keys
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import (
    NO_NUMBERS,
    NO_NUMBERS_IN_FP16,
    Hypothesis,
    SearchOptions,
    check_ids,
    first_token,
    rank_penalty,
)
from clearhead.decoding.sentence import Prefix, Sentence, sentences_of
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ModelError
from clearhead.runtime.threads import num_threads

if TYPE_CHECKING:
    from clearhead.decoding.constraints import Required

ENCODED_TOKENS = 512
"""Source tokens that a worker encodes in one batch, if so many are waiting."""

Found = tuple[int, list[Hypothesis]]
"""The number of a sentence and its best hypotheses, best first; no hypotheses if it was cancelled."""


@runtime_checkable  # so that tests can check annotations
class Waiting(Protocol):
    """An ordered queue of sentences."""

    def __len__(self) -> int:
        """Return the number of waiting sentences."""

    def __getitem__(self, index: Literal[0], /) -> Sentence:
        """Return the next sentence."""

    def popleft(self) -> Sentence:
        """Remove and return the next sentence."""

    def extend(self, sentences: Iterable[Sentence], /) -> None:
        """Add sentences."""

    def discard(self, numbers: Container[int], /) -> list[int]:
        """Remove the sentences with these numbers; return the numbers that were found."""


class _Fifo(deque[Sentence]):
    """A first-in, first-out queue of sentences."""

    def discard(self, numbers: Container[int], /) -> list[int]:
        gone = [sentence.number for sentence in self if sentence.number in numbers]
        kept = [sentence for sentence in self if sentence.number not in numbers]
        self.clear()
        self.extend(kept)
        return gone


class SentenceQueue:
    """A thread-safe queue of sentences for the workers; sentences may be added until it is closed.

    Args:
        waiting: Queue that decides the order; first in, first out if None.
    """

    def __init__(self, waiting: Waiting | None = None) -> None:
        self._waiting: Waiting = _Fifo() if waiting is None else waiting
        self._withdrawn: set[int] = set()
        self._changed = Condition()
        self.changes = np.zeros(1, dtype=np.int64)
        """Counter of what workers must look at: additions, cancellations and the stop."""
        self.num_open = 0
        """Number of sentences that were added and are not finished."""
        self.is_closed = False
        self.is_stopped = False
        """Whether workers must stop and discard their results; not an event, because Ctrl-C may interrupt its `set`."""

    def add(self, sentences: Iterable[Sentence]) -> None:
        """Add sentences to the queue."""
        with self._changed:
            before = len(self._waiting)
            self._waiting.extend(sentences)
            self.num_open += len(self._waiting) - before
            self.changes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Close the queue; workers end when it is empty."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Make all workers end at once."""
        self.is_stopped = True
        with self._changed:
            self.changes += 1
            self._changed.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether no sentence is waiting."""
        return not self._waiting

    def take(self, room: Callable[[int], int], num_workers: int, *, wait: bool) -> list[Sentence]:
        """Remove and return the next sentences: as many as fit, or if many wait, enough for efficient encoding.

        Args:
            room: Function that returns how many sentences fit, given the longest source length in tokens.
            num_workers: Number of workers that share the waiting sentences.
            wait: Whether to wait until there is a sentence, or until the queue is closed or stopped.
        """
        with self._changed:
            while wait and not (self._waiting or self.is_closed or self.is_stopped):
                self._changed.wait()
            plenty = len(self._waiting) // (2 * num_workers)
            taken: list[Sentence] = []
            longest = tokens = 0
            while self._waiting:
                length = len(self._waiting[0].source)
                longest = max(longest, length)
                tokens += length
                is_worth_more = taken and len(taken) < plenty and tokens <= ENCODED_TOKENS
                if len(taken) >= room(longest) and not is_worth_more:
                    break
                taken.append(self._waiting.popleft())
            return taken

    def finish(self, number: int) -> None:
        """Mark a sentence that was taken as finished."""
        with self._changed:
            self.num_open -= 1
            self._withdrawn.discard(number)

    def withdraw(self, numbers: Iterable[int]) -> list[int]:
        """Cancel sentences; return the numbers of those removed from the queue, which get no result.

        A cancelled sentence that a worker has already taken leaves at the next step, with an empty result.

        Args:
            numbers: Unique numbers of unfinished sentences, such as those of one search.
        """
        unwanted = set(numbers)
        with self._changed:
            gone = self._waiting.discard(unwanted)
            self.num_open -= len(gone)
            self._withdrawn |= unwanted.difference(gone)
            self.changes += 1
        return gone

    def is_withdrawn(self, number: int) -> bool:
        """Return whether the sentence was cancelled after a worker took it."""
        return number in self._withdrawn


def search(
    engine: Engine,
    sources: Sequence[Sequence[int]],
    max_lengths: Sequence[int],
    options: SearchOptions,
    prefixes: Sequence[Prefix] = (),
    required: Sequence[Required] = (),
    neighbours: Sequence[Neighbours | None] = (),
) -> Iterator[Found]:
    """Return an iterator over the index and the best hypotheses, best first, of each sentence as it is finished.

    Samples are drawn `rules.TOGETHER` at a time, so the index of a sentence may be yielded several times.

    Args:
        engine: The inference engine.
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Maximum target tokens of each sentence, end token included.
        options: Options of the search.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        required: Required terms of each sentence; empty if there are none.
        neighbours: Retrieved pairs of each sentence; empty if there are none.

    Raises:
        IndexError: If a source id is not in the vocabulary.
        ModelError: If the model's probabilities are not numbers, or the shortlist does not fit the model.
    """
    model = engine.model.config
    check_ids(sources, model.source_vocabulary, None if model.is_decoder_alone else model.pad_id, "source")
    waiting = SentenceQueue()
    # Longest first, so that what needs too much memory fails at once, not after an hour.
    sentences = sentences_of(sources, max_lengths, prefixes, required, neighbours)
    if options.sampling is not None:
        from clearhead.decoding.batched_sampling import in_groups

        sentences = list(in_groups(sentences, options.num_found))
    waiting.add(sorted(sentences, key=lambda sentence: (len(sentence.source), sentence.number), reverse=True))
    waiting.close()
    max_slots = min(len(sentences), _capacity(min(map(len, sources), default=1), options, engine.batch_factor))
    return search_queue(engine, waiting, options, engine.num_workers(len(sentences)), max_slots)


def search_queue(
    engine: Engine, waiting: SentenceQueue, options: SearchOptions, num_workers: int, max_slots: int
) -> Iterator[Found]:
    """Yield the results for the sentences of a queue until it is closed and empty; see `search`.

    Args:
        engine: The inference engine.
        waiting: The queue; its source ids must be in the vocabulary.
        options: Options of the search.
        num_workers: Number of parallel workers.
        max_slots: Maximum sentences in flight per worker.
    """
    with helpers.call() as call:
        teams = [call.team(num_threads() // num_workers) for _ in range(num_workers)]
        shortlist, parts = options.shortlist, engine.parts
        if shortlist is not None and parts is not None:
            shortlist = shortlist.with_common(parts.continuing)
        slots = [engine.slots(options.most_beams, max_slots, shortlist, team) for team in teams]
        config, factor = engine.model.config, engine.batch_factor
        listed = None if shortlist is None else shortlist.common.tolist()
        rules = config, options.config, parts, listed
        keys = engine.keys_of if engine.consults_neighbours else None
        how = waiting, config, options, num_workers, max_slots, factor, keys
        workers = [_Worker(s, *how, AllowedTokens.of(*rules)) for s in slots]
        yield from workers[0].work() if num_workers == 1 else _work_together(engine, workers, waiting)


@dataclass
class _Worker:
    slots: Slots
    waiting: SentenceQueue
    model: ModelConfig
    options: SearchOptions
    num_workers: int
    max_slots: int
    batch_factor: int
    keys: KeysOf | None
    allowed: AllowedTokens

    def __post_init__(self) -> None:
        options, slots = self.options, self.slots
        self._is_plain = not (options.are_separate or options.is_constrained)
        self._search: SlotSearch | None = None
        has_search = not (options.diversity or options.is_constrained)
        if has_search and hasattr(slots, "search"):  # they are SearchingSlots; isinstance takes 0.03 ms
            num_best = options.num_best if self._is_plain else options.most_beams
            how = options.config, num_best, self.allowed, self.waiting.changes
            self._search = slots.search(*how, scores=options.scores, sampling=options.sampling)

    def work(self) -> Iterator[Found]:
        """Yield the results of this worker."""
        active: list[Any] = []  # by slot: the search state of each sentence
        ready: list[tuple[Sentence, Any]] = []  # the next sentences to enter, with their encoded sources
        while not self.waiting.is_stopped:
            seen = int(self.waiting.changes[0])
            if taken := self._take(ready, wait=not (active or ready)):
                taken = taken if self.keys is None else with_keys(taken, self.keys)
                ready += zip(taken, self.slots.encode(taken), strict=True)
            if entering := ready[: self._fitting(ready)]:
                del ready[: len(entering)]
                self.slots.enter([encoded for _, encoded in entering])
                active += (self._begin(sentence) for sentence, _ in entering)
            if not active:
                if ready or not self.waiting.is_closed or not self.waiting.is_empty:
                    continue
                return
            if self._search is not None:
                self._search.advance(active, seen)
            elif not self._is_plain:
                self._advance_separately(active)
            else:
                for searched, candidates in zip(active, self.slots.step(active), strict=True):
                    searched.advance(candidates, self.model.eos_id, self.options)
            for slot in reversed(range(len(active))):
                done, number = active[slot], active[slot].sentence.number
                is_wanted = not self.waiting.is_withdrawn(number)
                if not done.is_open or not is_wanted:  # finished or cancelled
                    leave_slot(slot, active)
                    self.slots.leave(slot)
                    self.waiting.finish(number)
                    hypotheses = done.best(self.options.num_found) if is_wanted else []
                    if is_wanted and not hypotheses:
                        raise ModelError(NO_NUMBERS_IN_FP16 if self.options.config.precision == "fp16" else NO_NUMBERS)
                    yield number, hypotheses

    def _begin(self, sentence: Sentence) -> InFlight:
        options, bos_id = self.options, first_token(self.model, sentence.source)
        if self._search is not None:
            return self._search.begin(sentence, bos_id)
        # Imported here, because most searches need none of them.
        if options.sampling is not None:
            from clearhead.decoding.batched_sampling import begin_samples

            return begin_samples(sentence, bos_id, self.allowed, options.sampling.seed)
        if options.is_constrained:
            from clearhead.decoding.grid_beam_search import begin_constrained

            return begin_constrained(sentence, bos_id, self.allowed, options)
        if options.diversity:
            from clearhead.decoding.batched_sampling import SeparateHypotheses

            count = options.config.beam_size
            return SeparateHypotheses.begin(sentence, bos_id, self.allowed, [None] * count, count=count)
        longest_penalty = rank_penalty(sentence.max_length, options.config)
        return SearchedSentence.begin(sentence, bos_id, self.allowed, longest_penalty)

    def _advance_separately(self, active: Sequence[Any]) -> None:
        """Advance every sample, or hypothesis of diverse or constrained search, by a token."""
        options, log_probs, eos_id = self.options, self.slots.log_probs(active), self.model.eos_id
        if not np.isfinite(log_probs.max(axis=-1)).all():  # NaN or infinite
            for searched in active:
                searched.scores = []
        elif options.is_constrained:
            from clearhead.decoding.grid_beam_search import advance_constrained

            advance_constrained(active, log_probs, options, eos_id)
        elif options.sampling is not None:
            from clearhead.decoding.batched_sampling import advance_samples

            advance_samples(active, log_probs, options.sampling, eos_id)
        else:
            from clearhead.decoding.batched_sampling import advance_diverse

            advance_diverse(active, log_probs, options.diversity, options.config, eos_id)

    def _take(self, ready: Sequence[tuple[Sentence, Any]], *, wait: bool) -> list[Sentence]:
        """Take the next sentences that may enter after the ready ones."""
        ahead = max((len(sentence.source) for sentence, _ in ready), default=0)
        return self.waiting.take(
            lambda longest: min(self._room(max(longest, ahead)), self._share()) - len(ready),
            self.num_workers,
            wait=wait,
        )

    def _fitting(self, ready: Sequence[tuple[Sentence, Any]]) -> int:
        """Return how many of the ready sentences may enter now."""
        longest = 0
        for count, (sentence, _) in enumerate(ready):
            longest = max(longest, len(sentence.source))
            if count >= self._room(longest):
                return count
        return len(ready)

    def _share(self) -> int:
        """Return how many more sentences this worker may take, so that all workers have equally many."""
        return -(-self.waiting.num_open // self.num_workers) - len(self.slots.source_lengths)

    def _room(self, longest: int) -> int:
        """Return how many sentences up to a length may enter; 0 instead of only a few, while others are in flight."""
        in_flight = self.slots.source_lengths
        capacity = min(self.max_slots, _capacity(max([longest, *in_flight]), self.options, self.batch_factor))
        room = capacity - len(in_flight)
        return room if room >= max(1, capacity // 8) else 0


def _work_together(engine: Engine, workers: Sequence[_Worker], waiting: SentenceQueue) -> Iterator[Found]:
    """Yield the results of several workers, each in its own thread."""
    results: queue.SimpleQueue[Found | BaseException | None] = queue.SimpleQueue()

    def work(worker: _Worker) -> None:
        try:
            with engine.computing():
                for result in worker.work():
                    results.put(result)
            results.put(None)
        except BaseException as error:
            results.put(error)

    threads: list[Thread] = []
    try:
        for worker in workers:
            thread = Thread(target=work, args=(worker,), daemon=True)
            thread.start()
            threads.append(thread)
        at_work = len(threads)
        while at_work:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                at_work -= 1
            else:
                yield result
    finally:
        waiting.stop()
        for thread in threads:
            thread.join()


def _capacity(length: int, options: SearchOptions, batch_factor: int) -> int:
    """Return the maximum number of sentences of a length that a worker has in flight."""
    return max(1, batch_factor * options.config.batch_tokens // (options.most_beams * length))

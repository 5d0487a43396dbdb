"""Greedy and beam search with a full batch: a sentence that is done leaves, and the next one enters at once.

It finds what `beam.beam_search` and `sampling.greedy_search` find, token for token, and computes less:

- A row is a hypothesis that can still win. One that cannot is dropped, and with it what would come of it; whatever
  ranks below it cannot win either, so no place is lost by not filling its own.
- All beams of a sentence share its keys and values, and no search step copies them.
- With the compiled core every thread is a worker with sentences of its own, so none waits for another at every product.
  If there are fewer sentences than threads, and no other call is running, the others help (see `team`).
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

import torch

from clearhead.config import DecodeConfig
from clearhead.decoding.compiled import CompiledModel, CompiledStepper
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.shortlist import ListedTokens, Shortlist
from clearhead.decoding.stepper import Beams, PackedStepper, Stepper
from clearhead.decoding.team import helpers
from clearhead.device import num_threads
from clearhead.errors import ModelError

__all__ = ["search"]

PREPARED_TOKENS = 512
"""Source tokens that a worker encodes at once, if so many wait."""

Prefix = tuple[Any, int] | None
"""The tokens of a hypothesis, from the newest back: the prefix before it, and its token. Beginnings are shared."""


@dataclass
class _Sentence(Beams):
    """A sentence in flight."""

    number: int = 0
    longest_penalty: float = 1.0
    prefixes: list[Prefix] = field(default_factory=lambda: [None])
    finished: list[Hypothesis] = field(default_factory=list)
    bar: float = float("-inf")
    """The rank score that one must beat to enter the best."""


@dataclass
class _Task:
    """What all workers share."""

    sources: Sequence[list[int]]
    max_lengths: Sequence[int]
    config: DecodeConfig
    num_best: int
    bos_id: int
    eos_id: int
    num_workers: int
    waiting: list[int]
    """Numbers of the sentences that wait, the next one last."""
    lock: Lock = field(default_factory=Lock)
    is_stopped: bool = False
    """Whether nobody wants what the workers would still find; no event, because Ctrl-C may interrupt its `set`."""

    def take(self, wanted: int) -> list[int]:
        """Take the next sentences: as many as are wanted, and if there are plenty, enough for products to be fast."""
        with self.lock:
            plenty = len(self.waiting) // (2 * self.num_workers)
            taken: list[int] = []
            tokens = 0
            while self.waiting and (len(taken) < wanted or (len(taken) < plenty and tokens < PREPARED_TOKENS)):
                taken.append(self.waiting.pop())
                tokens += len(self.sources[taken[-1]])
            return taken


def search(
    model: PackedModel | CompiledModel,
    sources: Sequence[list[int]],
    max_lengths: Sequence[int],
    config: DecodeConfig,
    num_best: int = 1,
    shortlist: Shortlist | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the index of each sentence with its best hypotheses, best first, as soon as they are found.

    Args:
        model: What translates.
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Most target tokens of each sentence, the end token included.
        config: Beam size, length penalty, and how many tokens are in flight at once.
        num_best: Hypotheses of each sentence; at most the beam size.
        shortlist: What each sentence may be written in; None allows the whole vocabulary.

    Raises:
        IndexError: If a source id is not in the vocabulary.
        ModelError: If the model's probabilities are not numbers, or the shortlist does not fit the model.
    """
    _check_sources(sources, model.config.source_vocab_size or model.config.vocab_size)
    threads = num_threads()
    num_workers = max(1, min(threads, len(sources))) if isinstance(model, CompiledModel) else 1
    # Longest first: what needs the most memory comes at once, not after an hour.
    waiting = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    ids = (model.config.bos_id, model.config.eos_id)
    task = _Task(sources, max_lengths, config, num_best, *ids, num_workers, waiting)
    with helpers.call() as call:
        if isinstance(model, PackedModel):
            max_lanes = min(len(sources), _capacity(min(map(len, sources), default=1), config))
            choice = None if shortlist is None else ListedTokens(model, shortlist)
            yield from _work(PackedStepper(model, config.beam_size, max_lanes, choice), task)
            return
        steppers = [
            CompiledStepper(model, config.beam_size, shortlist, call.team(threads // num_workers))
            for _ in range(num_workers)
        ]
        yield from _work(steppers[0], task) if num_workers == 1 else _work_together(steppers, task)


def _check_sources(sources: Sequence[list[int]], vocab_size: int) -> None:
    """See that every sentence has ids, and that all of them are in the vocabulary.

    Raises:
        IndexError: If an id is not.
        ValueError: If a sentence has none.
    """
    for number, source in enumerate(sources):
        if not source:
            raise ValueError(f"sentence {number} has no source ids, not even the end token")
        if not 0 <= min(source) <= max(source) < vocab_size:
            raise IndexError(f"sentence {number} has a source id that is not in the vocabulary of {vocab_size}")


def _work_together(steppers: Sequence[Stepper], task: _Task) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield what several workers find, each in a thread of its own."""
    found: queue.SimpleQueue[tuple[int, list[Hypothesis]] | BaseException | None] = queue.SimpleQueue()

    def work(stepper: Stepper) -> None:
        try:
            with torch.inference_mode():
                for result in _work(stepper, task):
                    found.put(result)
            found.put(None)
        except BaseException as error:
            found.put(error)

    threads: list[Thread] = []
    try:
        for stepper in steppers:
            thread = Thread(target=work, args=(stepper,), daemon=True)
            thread.start()
            threads.append(thread)
        at_work = len(threads)
        while at_work:
            result = found.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                at_work -= 1
            else:
                yield result
    finally:
        task.is_stopped = True
        for thread in threads:
            thread.join()


def _work(stepper: Stepper, task: _Task) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield what one worker finds."""
    flying: list[_Sentence] = []  # by lane
    ready: list[tuple[int, Any]] = []  # numbers of sentences that enter next, and what was prepared for them
    while not task.is_stopped:
        room = _room(task, stepper, ready)
        if len(ready) < room and (numbers := task.take(room - len(ready))):
            ready += zip(numbers, stepper.prepare([task.sources[number] for number in numbers]), strict=True)
        if ready and room:
            stepper.enter([prepared for _, prepared in ready[:room]])
            flying += [_begin(number, task) for number, _ in ready[:room]]
            del ready[:room]
        if not flying:
            return
        for sentence, candidates in zip(flying, stepper.step(flying), strict=True):
            _advance(sentence, candidates, task.eos_id, task.config, task.num_best)
        for lane in reversed(range(len(flying))):
            if not flying[lane].scores:
                done = flying[lane]
                flying[lane] = flying[-1]
                flying.pop()
                stepper.leave(lane)
                if not done.finished:
                    raise ModelError(
                        "the model's probabilities are not numbers: its weights hold NaN or infinity, so it is "
                        "damaged, or its training diverged"
                    )
                yield done.number, sorted(done.finished, key=lambda h: -h.rank_score)[: task.num_best]


def _room(task: _Task, stepper: Stepper, ready: Sequence[tuple[int, Any]]) -> int:
    """Return how many sentences may enter now; none rather than a few, while others fly."""
    next_ones = [ready[0][0]] if ready else task.waiting[-1:]
    longest = max([*(len(task.sources[number]) for number in next_ones), *stepper.source_lengths], default=1)
    capacity = _capacity(longest, task.config)
    room = capacity - len(stepper.source_lengths)
    share = -(-len(task.sources) // task.num_workers)
    return min(room, share) if room >= max(1, capacity // 8) else 0


def _begin(number: int, task: _Task) -> _Sentence:
    longest = task.max_lengths[number]
    sentence = _Sentence([0.0], [task.bos_id], [0], max_length=longest, number=number)
    sentence.longest_penalty = _penalty(longest, task.config)
    return sentence


def _capacity(length: int, config: DecodeConfig) -> int:
    """Return how many sentences of a length a worker may have in flight at once."""
    return max(1, config.batch_tokens // (config.beam_size * length))


def _advance(
    sentence: _Sentence, candidates: Iterator[tuple[float, int, int]], eos_id: int, config: DecodeConfig, num_best: int
) -> None:
    """Take the best ways for a sentence to go on: score, beam and token of each."""
    sentence.length += 1
    beam_size = config.beam_size
    scores: list[float] = []
    parents: list[int] = []
    newest: list[int] = []
    for rank, (score, beam, token) in enumerate(candidates):
        if not score > float("-inf") or len(scores) == beam_size:  # a score that is no number is none either
            break
        if token != eos_id:
            scores.append(score)
            parents.append(beam)
            newest.append(token)
        elif rank < beam_size:
            tokens = (*_tokens(sentence.prefixes[beam]), eos_id)
            rank_score = score / _penalty(sentence.length, config)
            sentence.finished.append(Hypothesis(tokens, score, rank_score))
    if len(sentence.finished) >= num_best:
        sentence.bar = sorted(hypothesis.rank_score for hypothesis in sentence.finished)[-num_best]
    # Log-probabilities only fall, so the best one can reach is its present one over the penalty of the longest output.
    live = sum(score / sentence.longest_penalty > sentence.bar for score in scores)
    if sentence.length == sentence.max_length:
        live = 0
    sentence.prefixes = [(sentence.prefixes[beam], token) for beam, token in zip(parents[:live], newest, strict=False)]
    sentence.scores, sentence.parents, sentence.newest = scores[:live], parents[:live], newest[:live]


def _penalty(length: int, config: DecodeConfig) -> float:
    """Return what a log-probability is divided by; greedy search compares nothing."""
    return length_penalty(length, config.length_penalty, config.length_penalty_form) if config.beam_size > 1 else 1.0


def _tokens(prefix: Prefix) -> list[int]:
    tokens = []
    while prefix is not None:
        prefix, token = prefix
        tokens.append(token)
    return tokens[::-1]

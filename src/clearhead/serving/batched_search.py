"""Decoder for requests that share batches: each has a token budget and a deadline, and waits in its own thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from threading import Condition

from clearhead.config import DecodeConfig
from clearhead.decoding import Engine, Hypothesis, Prefix, Required, SearchOptions, length_limits
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import BEAMS_OF_TERMS, check_ids
from clearhead.decoding.sentence import Sentence, sentences_of
from clearhead.serving.batches import Batches, Search
from clearhead.serving.http_errors import HTTPError, timed_out, unavailable
from clearhead.serving.search_process import SearchProcess
from clearhead.translation.search import Decode


@dataclass(eq=False)
class Job:
    """One request: its token budget, its deadline, and whether it is cancelled."""

    client: str
    """Client whose share of the fair queue is used."""
    deadline: float
    """Time limit, on the clock of `time.monotonic`."""
    max_tokens: int
    """Tokens left for all searches of the request: source tokens, and the most target tokens that may be generated."""
    is_cancelled: bool = False
    preparation: ExitStack = field(default_factory=ExitStack, repr=False)
    """Closed when the first search begins: what large texts hold while they are prepared."""
    _changed: Condition = field(default_factory=Condition, repr=False)

    def cancel(self) -> None:
        """Cancel the request, because no client waits for the answer."""
        with self._changed:
            self.is_cancelled = True
            self._changed.notify_all()

    def require_time(self) -> None:
        """Raise `HTTPError` if the request is cancelled or its deadline has passed.

        Raises:
            HTTPError: If the request is cancelled or its deadline has passed.
        """
        if self.is_cancelled:
            raise unavailable("the request was broken off")
        if time.monotonic() > self.deadline:
            raise timed_out()

    def spend(self, tokens: int) -> None:
        """Subtract tokens from the budget of the request.

        Raises:
            HTTPError: If fewer tokens are left.
        """
        if tokens > self.max_tokens:
            raise HTTPError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the text has too many tokens for one request ({tokens:,} with those that may be written, of "
                f"{self.max_tokens:,} left); send it in parts",
            )
        self.max_tokens -= tokens


@dataclass(eq=False)
class _Call:
    """The sentences of one search of a job, with the results so far."""

    job: Job
    results: list[list[Hypothesis]]
    left: int
    error: BaseException | None = None

    @property
    def client(self) -> str:
        return self.job.client

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
        """Wait until all sentences are done, the search fails, the job is cancelled, or its deadline passes."""
        job = self.job
        with job._changed:
            while self.left and self.error is None and not job.is_cancelled:
                remaining = job.deadline - time.monotonic()
                if remaining <= 0 or not job._changed.wait(remaining):
                    break


def _width_factor(sentence: Sentence, beam_size: int) -> int:
    """Return roughly by what factor the required terms of a sentence multiply its hypotheses in flight."""
    required = sentence.required
    return 1 if required is None else 1 + max(BEAMS_OF_TERMS, required.num_tokens // beam_size)


@dataclass(frozen=True, slots=True)
class SharedSearch:
    """Decoder for requests, whose searches share their batches."""

    searches: Batches | SearchProcess

    def decoder(self, job: Job, default: DecodeConfig | None = None) -> Decode:
        """Return a function for the job with the interface of `decoding.decode`.

        Args:
            job: The request.
            default: The model's default search options. Searches with these options always get a batch, so a client
                that asks for other options cannot leave the others without one.
        """

        def decode(
            engine: Engine,
            sources: list[list[int]],
            options: SearchOptions,
            on_progress: Callable[[int], None] | None = None,
            prefixes: Sequence[Prefix] = (),
            required: Sequence[Required] = (),
            neighbours: Sequence[Neighbours | None] = (),
        ) -> list[list[Hypothesis]]:
            most_required = max((forms.num_tokens for forms in required), default=0)
            # Round up to a power of two, so that searches with nearly as many share a batch.
            options = replace(options, most_required=1 << (most_required - 1).bit_length() if most_required else 0)
            # Only a greedy search of the model alone is faster without scores.
            scores = options.scores or options.config.beam_size > 1 or any(neighbours)
            options = replace(options, scores=scores)
            max_lengths = length_limits(engine.model.config, options.config, sources, prefixes)
            # The search sees token ids only: neither languages nor normalization nor segmentation matter to it.
            options = replace(options, config=_of_tokens(options.config))
            are_default = default is not None and replace(options, shortlist=None) == SearchOptions(_of_tokens(default))
            sentences = sentences_of(sources, max_lengths, prefixes, required, neighbours)
            hypotheses = self._search(job, Search(engine, sentences, options, are_default))
            if on_progress is not None and sources:
                on_progress(len(sources))
            return hypotheses

        return decode

    def _search(self, job: Job, search: Search) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, searched in the shared batches.

        Raises:
            ClearheadError: If the search fails, as `decode` raises it.
            HTTPError: If the job exceeds its token budget or deadline, is cancelled, or there are too many batches.
        """
        job.require_time()
        model, sentences = search.engine.model.config, search.sentences
        sources = [sentence.source for sentence in sentences]
        check_ids(sources, model.source_vocabulary, None if model.is_decoder_alone else model.pad_id, "source")
        beam = search.options.config.beam_size
        job.spend(sum(len(one.source) + one.max_length * _width_factor(one, beam) for one in sentences))
        if not sentences:
            return []
        call = _Call(job, [[] for _ in sentences], len(sentences))
        job.preparation.close()
        withdraw = self.searches.submit(call, search)
        call.wait()
        if call.error is not None:
            raise call.error
        if call.left:
            withdraw()
            job.require_time()
            raise AssertionError("a search ended early without a reason")
        return call.results


def _of_tokens(config: DecodeConfig) -> DecodeConfig:
    others = {"source_lang": None, "target_lang": None, "split": "auto", "familiar": True, "memory_weight": None}
    return config.model_copy(update=others)

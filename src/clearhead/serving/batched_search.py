"""One batch for many clients: a request's search that waits, in a thread of its own, for its turn among all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from threading import Condition
from typing import Protocol

from clearhead.config import DecodeConfig
from clearhead.decoding import Engine, Hypothesis, Prefix, Required, SearchOptions, length_limits
from clearhead.decoding.beam_state import BEAMS_OF_TERMS
from clearhead.decoding.rules import check_ids
from clearhead.decoding.sentence import Sentence, sentences_of
from clearhead.serving.batches import Call, Withdraw
from clearhead.serving.http_errors import Refusal
from clearhead.translation.search import Decode

__all__ = ["Job", "Searches", "SharedSearch"]


class Searches(Protocol):
    """What searches for all: `Batches`, or those of another process."""

    def submit(
        self, call: Call, engine: Engine, sentences: Sequence[Sentence], options: SearchOptions, *, is_usual: bool
    ) -> Withdraw:
        """Search for the sentences of a call; see `Batches.submit`."""


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
        """Wait until all is found, or nobody wants it, or it is too late."""
        job = self.job
        with job._changed:
            while self.left and self.error is None and not job.is_cancelled:
                remaining = job.deadline - time.monotonic()
                if remaining <= 0 or not job._changed.wait(remaining):
                    break


def _times_as_wide(sentence: Sentence, beam_size: int) -> int:
    """Return how many times as many hypotheses a search has in flight for the terms of a sentence, about."""
    required = sentence.required
    return 1 if required is None else 1 + max(BEAMS_OF_TERMS, required.num_tokens // beam_size)


@dataclass(frozen=True, slots=True)
class SharedSearch:
    """Searches of requests, which go through the same batches."""

    searches: Searches

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
        withdraw = self.searches.submit(call, engine, sentences, options, is_usual=is_usual)
        call.wait()
        if call.error is not None:
            raise call.error
        if call.left:
            withdraw()
            job.require_time()
            raise AssertionError("a search ended early without a reason")
        return call.results


def _of_tokens(config: DecodeConfig) -> DecodeConfig:
    return config.model_copy(update={"source_lang": None, "target_lang": None, "split": "auto", "familiar": True})

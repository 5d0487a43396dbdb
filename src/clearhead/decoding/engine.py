"""Decode any number of sentences: the longest first, so many at once as are allowed, answers in the order asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from clearhead.config import MOST_SAMPLES, DecodeConfig, DecodePrecision, ModelConfig, Sampling
from clearhead.decoding.compiled import CompiledModel
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.sampling import sample
from clearhead.decoding.scoring import DoubleModel
from clearhead.decoding.search import search
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.team import helpers
from clearhead.device import num_threads
from clearhead.errors import ConfigError, DeviceError
from clearhead.model.transformer import Transformer

__all__ = [
    "SearchOptions",
    "advice_on_memory",
    "decode",
    "length_batches",
    "length_limits",
    "pack",
    "pack_for_scoring",
    "score",
]

SCORED_TOKENS = 512
"""Tokens of the longer side that a thread of the compiled core scores at once: what they need stays in the cache."""


@dataclass(frozen=True)
class SearchOptions:
    """What to search for: beam search, greedy search (`beam_size` 1), or samples."""

    config: DecodeConfig
    num_best: int = 1
    """Translations returned for each sentence."""
    sampling: Sampling | None = None
    """Draw at random instead of searching."""
    shortlist: Shortlist | None = None
    """What each sentence may be written in; None allows the whole vocabulary."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_best <= MOST_SAMPLES:
            raise ConfigError(f"nbest ({self.num_best}) must be at least 1 and at most {MOST_SAMPLES:,}")
        if self.sampling is None and self.num_best > self.config.beam_size:
            raise ConfigError(
                f"nbest ({self.num_best}) must not be more than the beam size ({self.config.beam_size}); "
                f"use --beam {self.num_best}"
            )
        if self.sampling is not None and (self.shortlist is not None or self.config.shortlist):
            raise ConfigError("a shortlist has no meaning for samples, which are drawn from the whole vocabulary")


def pack(model: Transformer, precision: DecodePrecision = "fp32") -> PackedModel | CompiledModel:
    """Return a model in the form that decodes fastest here: for the compiled core if that can run it, else for PyTorch.

    Args:
        model: In evaluation mode; the form holds as long as its weights stay as they are.
        precision: Of the matrix products; `fp32` gives the model's own numbers.

    Raises:
        DeviceError: If the device cannot compute in that precision.
        ValueError: If the model has no encoder or no decoder.
    """
    form = CompiledModel if CompiledModel.supports(model, precision) else PackedModel
    return form(model, precision)


def pack_for_scoring(model: Transformer) -> CompiledModel | DoubleModel:
    """Return a model in the form that scores: in float32 for the compiled core if that can run it, else in float64.

    Args:
        model: In evaluation mode; the form holds as long as its weights stay as they are.
    """
    return CompiledModel(model) if CompiledModel.supports(model, "fp32") else DoubleModel(model)


def length_limits(model: ModelConfig, config: DecodeConfig, sources: list[list[int]]) -> list[int]:
    """Return the most target tokens of each sentence, the end token included; one that has so many was ended there.

    Args:
        model: Whose positions may have an end.
        config: Of which `extra_length` counts.
        sources: Source ids of each sentence, ended by `eos_id`.
    """
    room = model.max_length or math.inf
    return [int(min(len(ids) + config.extra_length, room)) for ids in sources]


@torch.inference_mode()
def decode(
    model: Transformer | PackedModel | CompiledModel,
    sources: list[list[int]],
    options: SearchOptions,
    on_progress: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Translate source ids.

    Args:
        model: In evaluation mode; who decodes often packs it once, and its precision then counts.
        sources: Source ids of each sentence, ended by `eos_id`.
        options: What to search for.
        on_progress: Called with the number of sentences finished, whenever some are.

    Returns:
        For each sentence, in the order given, its `num_best` hypotheses, best first; their log-probabilities are those
        of the form that found them, which rounds where its precision is not fp32.
    """
    config = options.config
    packed = pack(model, config.precision) if isinstance(model, Transformer) else model
    max_lengths = length_limits(packed.config, config, sources)
    results: list[list[Hypothesis]] = [[] for _ in sources]
    with advice_on_memory(config.batch_tokens):
        found = (
            search(packed, sources, max_lengths, config, options.num_best, options.shortlist)
            if options.sampling is None
            else _samples(packed.model, sources, max_lengths, config.batch_tokens, options.sampling, options.num_best)
        )
        for index, hypotheses in found:
            results[index] = hypotheses
            if on_progress is not None:
                on_progress(1)
    return results


def score(
    model: Transformer | CompiledModel | DoubleModel,
    sources: list[list[int]],
    targets: list[list[int]],
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[float]:
    """Return the log-probability of each target given its source, in nats, over the whole vocabulary.

    Args:
        model: In evaluation mode; who scores often packs it once, with `pack_for_scoring`.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side computed at once, padding included.
        on_progress: Called with the number of pairs finished, batch by batch.
    """
    form = pack_for_scoring(model) if isinstance(model, Transformer) else model
    is_compiled = isinstance(form, CompiledModel)
    results = [0.0] * len(sources)
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    batches = list(length_batches(lengths, min(batch_tokens, SCORED_TOKENS) if is_compiled else batch_tokens))

    @torch.inference_mode()  # of the thread that runs it
    def totals(indices: list[int]) -> list[float]:
        return form.score([sources[i] for i in indices], [targets[i] for i in indices])

    threads = min(num_threads(), len(batches)) if is_compiled else 1
    with advice_on_memory(batch_tokens), helpers.call():  # searches that run meanwhile go on without helpers
        for indices, scores in zip(batches, _on_threads(totals, batches, threads), strict=True):
            for index, total in zip(indices, scores, strict=True):
                results[index] = total
            if on_progress is not None:
                on_progress(len(indices))
    return results


def _on_threads(
    function: Callable[[list[int]], list[float]], batches: Iterable[list[int]], threads: int
) -> Iterator[list[float]]:
    """Yield what a function makes of each batch, in order, computed by several threads at once."""
    if threads <= 1:
        yield from map(function, batches)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(function, batches)
    finally:
        pool.shutdown(cancel_futures=True)


def _samples(
    model: Transformer,
    sources: list[list[int]],
    max_lengths: list[int],
    batch_tokens: int,
    sampling: Sampling,
    num_best: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield the index of each sentence with its samples, most probable first."""
    for indices in length_batches([len(ids) for ids in sources], batch_tokens):
        batch, limits = [sources[index] for index in indices], [max_lengths[index] for index in indices]
        draws = [
            sample(model, batch, max_lengths=limits, sampling=sampling, number=number) for number in range(num_best)
        ]
        for index, samples in zip(indices, map(list, zip(*draws, strict=True)), strict=True):
            yield index, sorted(samples, key=lambda hypothesis: -hypothesis.rank_score)


@contextmanager
def advice_on_memory(batch_tokens: int) -> Iterator[None]:
    """Turn the device's lack of memory into advice.

    Raises:
        DeviceError: If the device ran out of memory.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise DeviceError(
            f"the device ran out of memory; lower decode.batch_tokens ({batch_tokens}), for example "
            f"--batch-tokens {max(1, batch_tokens // 4)}"
        ) from None


def length_batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Cut the sentences, longest first, into batches of at most `batch_tokens` padded tokens (or one sentence)."""
    batch: list[int] = []
    # Longest first: what needs the most memory comes at once, not after an hour.
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch

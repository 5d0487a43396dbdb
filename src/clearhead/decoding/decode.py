"""Public entry points of decoding: make an engine, decode and score, with results in input order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np

from clearhead.config import DecodePrecision
from clearhead.decoding.engine import Engine
from clearhead.decoding.ensemble import Ensemble
from clearhead.decoding.ensemble_engine import EnsembleEngine
from clearhead.decoding.helper_threads import helpers
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import NO_NUMBERS, Hypothesis, SearchOptions, check_ids, length_limits
from clearhead.decoding.scheduler import search
from clearhead.decoding.sentence import Prefix, advice_on_memory, length_batches
from clearhead.errors import ChangedModelWarning, ModelError
from clearhead.model.stored import StoredModel
from clearhead.runtime.pytorch import needing_pytorch, require_pytorch

if TYPE_CHECKING:
    from clearhead.decoding.constraints import Required
    from clearhead.model.transformer import Transformer

_Result = TypeVar("_Result")


def make_engine(model: Transformer | StoredModel | Ensemble, precision: DecodePrecision = "fp32") -> Engine:
    """Return the fastest engine for a model: the compiled core if it supports the model, else PyTorch.

    A module that was changed, so that it computes something else than its configuration says, computes itself.

    Args:
        model: A model in evaluation mode. The engine is valid until its weights change. Each member of an ensemble gets
            its own engine.
        precision: Precision of the matrix products; `fp32` gives the model's own numbers.

    Raises:
        ClearheadError: If the core does not support the model, and PyTorch is not installed.
        ValueError: If the model has no decoder.

    Warns:
        ChangedModelWarning: If the module computes itself.
    """
    if isinstance(model, Ensemble):
        return EnsembleEngine(model, [make_engine(member, precision) for member in model.members])
    if isinstance(model, StoredModel) and model.is_changed:
        model = model.own_module
    obstacle = NativeEngine.obstacle(model, precision)
    if obstacle is None:
        return NativeEngine(model, precision)
    with needing_pytorch(f"this model ({obstacle})"):
        from clearhead.decoding.pytorch.engine import PyTorchEngine
        from clearhead.decoding.pytorch.module_engine import ModuleEngine
        from clearhead.decoding.pytorch.weights import unpackable

    module = model.own_module if isinstance(model, StoredModel) else model
    if reason := unpackable(module):
        message = f"{reason}: the model computes itself in PyTorch, step by step and far more slowly"
        warnings.warn(message, ChangedModelWarning, stacklevel=2)
        return ModuleEngine(module)
    return PyTorchEngine(module, precision)


def require_computable(model: StoredModel, precision: DecodePrecision) -> None:
    """Require the compiled core or PyTorch for a model as it was read, before anything is asked of it.

    Raises:
        ClearheadError: If the core does not support the model, or is not in use, and PyTorch is not installed.
    """
    if (obstacle := NativeEngine.obstacle(model, precision)) is not None:
        require_pytorch(f"this model ({obstacle})")


def decode(
    model: Transformer | StoredModel | Ensemble | Engine,
    sources: list[list[int]],
    options: SearchOptions,
    on_progress: Callable[[int], None] | None = None,
    prefixes: Sequence[Prefix] = (),
    required: Sequence[Required] = (),
    neighbours: Sequence[Neighbours | None] = (),
) -> list[list[Hypothesis]]:
    """Translate source ids.

    Args:
        model: A model in evaluation mode, or an engine made once for repeated calls, whose precision then applies.
        sources: Source ids of each sentence, ended by `eos_id`.
        options: Options of the search.
        on_progress: Called with 1 for every finished sentence.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        required: Required terms of each sentence, decoded by `grid_beam_search`; empty if there are none.
        neighbours: Retrieved pairs of each sentence, which the search consults (`Engine.consults_neighbours`); empty
            if there are none.

    Returns:
        For each sentence, in input order, its `num_found` hypotheses, best first. Their log-probabilities are rounded
        as the decoding precision rounds them, if it is not fp32.

    Raises:
        DeviceError: If the device cannot compute in the precision, or has too little memory.
        ValueError: If a prefix leaves no position for the end token.
    """
    config = options.config
    engine = model if isinstance(model, Engine) else make_engine(model, config.precision)
    assert engine.consults_neighbours or not any(neighbours)
    max_lengths = length_limits(engine.model.config, config, sources, prefixes)
    options = replace(
        options,
        most_required=max((forms.num_tokens for forms in required), default=0),
        scores=options.scores or any(neighbours),  # a mixture needs the model's log-probabilities
    )
    results: list[list[Hypothesis]] = [[] for _ in sources]
    with engine.computing(), advice_on_memory(config.batch_tokens):
        for index, hypotheses in _search(engine)(sources, max_lengths, options, prefixes, required, neighbours):
            results[index] += hypotheses
            is_done = options.sampling is None or len(results[index]) == options.num_found
            if on_progress is not None and is_done:
                on_progress(1)
    if options.sampling is not None:  # the workers finish them in any order
        results = [sorted(drawn, key=lambda sample: (-sample.rank_score, sample.tokens)) for drawn in results]
    return results


def _search(engine: Engine) -> Callable[..., Iterator[tuple[int, list[Hypothesis]]]]:
    """Return the search of an engine: the scheduler's, or that of plain code."""
    if not engine.is_plain:
        return partial(search, engine)
    from clearhead.decoding.pytorch.plain_engine import PlainEngine

    assert isinstance(engine, PlainEngine)
    return engine.search


def score(
    model: Transformer | StoredModel | Ensemble | Engine,
    sources: list[list[int]],
    targets: list[list[int]],
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
    given: Sequence[int] = (),
) -> list[float]:
    """Return the log-probability of each target given its source, in nats, over the whole vocabulary.

    Args:
        model: A model in evaluation mode, or an fp32 engine made once for repeated calls; of other engines only the
            model is used.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
        given: Number of tokens at the beginning of each target that cost nothing, see `Prefix`; 0 for all if empty.

    Raises:
        IndexError: If an id is not in its vocabulary.
        ModelError: If a log-probability is no number.
        ValueError: If sources and targets do not pair up, or one has no ids or holds padding.
    """
    if isinstance(model, Engine) and model.precision != "fp32":
        model = model.model
    engine = model if isinstance(model, Engine) else make_engine(model)
    config = engine.model.config
    pad_id = None if config.is_decoder_alone else config.pad_id
    check_ids(sources, config.source_vocabulary, pad_id, "source")
    check_ids(targets, config.vocab_size, pad_id, "target")

    def totals(indices: list[int], *pairs: list[list[int]]) -> list[float]:
        with engine.computing():
            if not any(given):
                sums = engine.score(*pairs)
            else:
                # Add in the same order and precision as the search.
                log_probs = zip(indices, engine.token_log_probs(*pairs), strict=True)
                sums = [float(np.cumsum(row[given[i] :])[-1]) for i, row in log_probs]
        if not all(map(math.isfinite, sums)):
            raise ModelError(NO_NUMBERS)
        return sums

    return of_pairs(engine, totals, sources, targets, batch_tokens=batch_tokens, on_progress=on_progress)


@runtime_checkable  # so that tests can check annotations
class PairEngine(Protocol):
    """An engine that computes given pairs of source and target in batches, several at once."""

    most_scored: int

    def num_workers(self, most: int) -> int:
        """Return how many threads should work in parallel, at most `most`."""


def of_pairs(
    engine: PairEngine,
    function: Callable[[list[int], list[list[int]], list[list[int]]], Sequence[_Result]],
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None,
) -> list[_Result]:
    """Return the results of a function for pairs, in order, computed in batches of pairs of similar length.

    Args:
        engine: The engine that the function computes with.
        function: Returns the result of each pair of a batch from their indices, sources and targets; called by several
            threads.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
    """
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    batches = list(length_batches(lengths, min(batch_tokens, engine.most_scored)))
    by_index: dict[int, _Result] = {}

    def computed(indices: list[int]) -> Sequence[_Result]:
        return function(indices, [sources[index] for index in indices], [targets[index] for index in indices])

    threads = engine.num_workers(len(batches))
    with advice_on_memory(batch_tokens), helpers.call():  # concurrent searches run without helpers meanwhile
        for indices, results in zip(batches, _on_threads(computed, batches, threads), strict=True):
            by_index.update(zip(indices, results, strict=True))
            if on_progress is not None:
                on_progress(len(indices))
    return [by_index[index] for index in range(len(sources))]


def _on_threads(
    function: Callable[[list[int]], _Result], batches: Iterable[list[int]], threads: int
) -> Iterator[_Result]:
    """Yield the function's result for each batch, in order, computed by several threads."""
    if threads <= 1:
        yield from map(function, batches)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(function, batches)
    finally:
        pool.shutdown(cancel_futures=True)

"""The PyTorch inference engine: packed weights, slots, and scores in float64.

Shapes: N slots, K beams, R rows (the active beams of all slots), D d_model, V vocabulary, T tokens
of a target; L layers, H heads, S source length.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from clearhead.config import DecodeConfig, DecodePrecision, Sampling
from clearhead.decoding.engine import Beams, Candidates
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.pytorch.candidates import (
    ListedTokens,
    ListMasks,
    best_candidates,
    best_tokens,
    log_probs_of_all,
)
from clearhead.decoding.pytorch.device_beams import DeviceBeams
from clearhead.decoding.pytorch.device_search import DeviceSearch
from clearhead.decoding.pytorch.module_engine import TransformerEngine
from clearhead.decoding.pytorch.slots import SlotCache, SlotRows
from clearhead.decoding.pytorch.weights import PackedModel
from clearhead.decoding.rules import candidates_of_row
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.step import pad_batch, token_log_probs
from clearhead.decoding.token_masks import AllowedTokens, Mask
from clearhead.model.transformer import Transformer
from clearhead.runtime.lazy import cached_property

_ON_GPU = 16
"""`Engine.batch_factor` on a GPU, where a step of a search takes as long for hundreds of sentences as for one."""


class PyTorchEngine(TransformerEngine):
    """A `Transformer` in PyTorch; it computes no gradients: use it inside `computing`.

    Raises:
        ValueError: If the model has no decoder.
    """

    def __init__(self, model: Transformer, precision: DecodePrecision = "fp32") -> None:
        super().__init__(model, precision)
        self._stays_on_device = model.device.type != "cpu"
        """Whether greedy and beam search and sampling run on the device; on a CPU that is slower."""
        self._idle: dict[tuple[Any, ...], DeviceBeams] = {}
        """The beams of the last search, with their graphs, by what they depend on."""
        if self._stays_on_device:
            self.batch_factor = _ON_GPU

    @cached_property
    def packed(self) -> PackedModel:
        """The packed weights, for searching.

        Raises:
            DeviceError: If the model's device cannot compute in that precision.
        """
        return PackedModel(self.model, self.precision)

    @cached_property
    def _in_float64(self) -> Transformer:
        """A copy of the model, for scoring."""
        # Sums in float32 depend on the batch from the fourth decimal on, those in float64 from the twelfth.
        return deepcopy(self.model).double()

    def computing(self) -> AbstractContextManager[Any]:
        """Return PyTorch's inference mode."""
        return torch.inference_mode()

    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> PyTorchSlots:
        """Return the slots of the worker; see `engine.Engine`. PyTorch has its own threads and needs no team."""
        del team
        listed = None if shortlist is None else ListedTokens(self.packed, shortlist)  # it holds the search's sentences
        search = partial(self._search, shortlist) if self._stays_on_device else None
        return PyTorchSlots(self.packed, beam_size, max_slots, listed, search)

    def _search(
        self,
        shortlist: Shortlist | None,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        sampling: Sampling | None,
    ) -> DeviceSearch:
        """Return a search on the device."""
        penalty = config.length_penalty, config.length_penalty_form
        repetition = config.end_loops, config.no_repeat_ngram_size
        key = config.beam_size, num_best, penalty, repetition, config.min_length, allowed.parts, shortlist, sampling
        beams = self._idle.pop(key, None)
        if beams is None:
            lists = None if shortlist is None else ListMasks(self.packed.config, shortlist, self.packed.device)
            beams = DeviceBeams(self.packed, config, num_best, allowed, lists, sampling)
        search = DeviceSearch(beams, allowed)
        weakref.finalize(search, self._keep, key, beams)
        return search

    def _keep(self, key: tuple[Any, ...], beams: DeviceBeams) -> None:
        """Keep the beams of a search that is over, and no others."""
        self._idle = {key: beams}

    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the log-probability of every target token, in nats; see `engine.Engine`."""
        sides = ([list(ids) for ids in side] for side in (sources, targets))
        log_probs = token_log_probs(self._in_float64, *sides).numpy(force=True)
        return [row[: len(target)] for row, target in zip(log_probs, targets, strict=True)]


class PyTorchSlots:
    """The sentences that the worker has in flight; see `engine.Slots`.

    Args:
        packed: The packed weights of the model.
        beam_size: Maximum hypotheses of a sentence, K.
        max_slots: Maximum sentences in flight.
        listed: Output rows of the shortlist; None allows the whole vocabulary.
        search: Makes a search on the device; None if there is none.
    """

    def __init__(
        self,
        packed: PackedModel,
        beam_size: int,
        max_slots: int,
        listed: ListedTokens | None,
        search: Callable[[DecodeConfig, int, AllowedTokens, Sampling | None], DeviceSearch] | None,
    ) -> None:
        self._packed = packed
        self._cache = packed.cache(beam_size, max_slots)
        self._store: SlotCache | DeviceSearch = self._cache
        self._listed = listed
        self._search = search
        self.source_lengths = self._cache.source_lengths

    def search(
        self,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        changes: Int64[np.ndarray, "1"],
        *,
        scores: bool,
        sampling: Sampling | None = None,
    ) -> DeviceSearch | None:
        """Return a search on the device; None if there is none. See `engine.SearchingSlots`."""
        del changes, scores
        if self._search is None:
            return None
        self._listed = None  # the search masks all tokens
        self._store = search = self._search(config, num_best, allowed, sampling)
        self.source_lengths = search.source_lengths
        return search

    def encode(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """Return the sentences unchanged: `enter` encodes them in one batch."""
        return list(sentences)

    def enter(self, encoded: Sequence[Sentence]) -> None:
        """Encode sentences and assign them the next free slots."""
        batch = [list(sentence.source) for sentence in encoded]
        if self._packed.config.is_decoder_alone:
            self._store.enter_pasts([self._packed.past(source[:-1]) for source in batch])
        else:
            memory = self._packed.encode(pad_batch(batch, self._packed.config.pad_id))
            self._store.enter(memory, list(map(len, batch)))
        if self._listed is not None:
            self._listed.enter(encoded)

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        self._store.leave(slot)
        if self._listed is not None:
            self._listed.leave(slot)

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step and return the best candidates; see `engine.Slots`."""
        newest, rows, masks = self._advance(active)
        hidden_states = self._packed.hidden_states(newest, self._cache.past, self._cache.memory, rows)
        count = candidates_of_row(self._cache.beam_size)
        if self._listed is None:
            gains, tokens = best_tokens(log_probs_of_all(self._packed, hidden_states, masks), count)
        else:
            gains, tokens = self._listed.best(hidden_states, rows, masks, count)
        scores = torch.tensor([score for beams in active for score in beams.scores], device=gains.device)
        return best_candidates(gains + scores[:, None], tokens, rows)

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step and return all log-probabilities; see `engine.Slots`."""
        assert self._listed is None
        newest, rows, masks = self._advance(active)
        hidden_states = self._packed.hidden_states(newest, self._cache.past, self._cache.memory, rows)
        log_probs = log_probs_of_all(self._packed, hidden_states, masks)[:, : self._packed.config.vocab_size]
        return log_probs.numpy(force=True)

    def _advance(self, active: Sequence[Beams]) -> tuple[Int64[Tensor, " R"], SlotRows, list[Mask | None]]:
        """Return the newest tokens of all open hypotheses, their rows in the cache, and their allowed next tokens."""
        beam_size, device = self._cache.beam_size, self._packed.device
        index = [slot * beam_size + beam for slot, beams in enumerate(active) for beam in range(len(beams.scores))]
        parents = [slot * beam_size + parent for slot, beams in enumerate(active) for parent in beams.parents]
        newest = torch.tensor([token for beams in active for token in beams.newest], device=device)
        rows = self._cache.advance(index, parents)
        masks = [mask for beams in active for mask in beams.masks]
        return newest, rows, masks

"""The beams of the sentences in flight as tensors: a step of a search that never waits for the device.

Decisions of greedy and beam search are those of `beam_state`. Samples of a sentence are beams of which each has one
candidate, the token drawn for it. Every tensor of a step has a size that the host knows, and no value is read back,
so a step can be recorded as a CUDA graph. A sentence keeps its row until it leaves; without open hypotheses it takes
part in steps without effect.

Positions count from the first token in the cache, which for a decoder-only model is that of its source.

Shapes: N rows (sentences), K beams, P target positions, S source positions, B finished hypotheses kept, V vocabulary,
C candidates, L decoder layers, W width of keys and values together, G guided hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding.batched_sampling import chances_of
from clearhead.decoding.pytorch.candidates import ListMasks, best_tokens, drawn_tokens
from clearhead.decoding.pytorch.device_state import NONE, Guide, Sizes, State, rounded
from clearhead.decoding.pytorch.slots import SlotRows
from clearhead.decoding.pytorch.weights import PackedModel
from clearhead.decoding.repetition import LOOP_TIMES, LOOP_TOKENS
from clearhead.decoding.rules import (
    Hypothesis,
    candidates_of_row,
    candidates_of_sentence,
    first_token,
    never_written,
    rank_penalty,
)
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.decoding.utf8 import NUM_ROOMS, NUM_STATES
from clearhead.kernels.cuda_graphs import GraphRecorder

_INFINITY = float("inf")


class DeviceBeams:
    """The open and the finished hypotheses of the sentences in flight, in the memory of the model's device.

    Args:
        packed: The packed weights of the model.
        config: Settings of the search.
        num_best: Finished hypotheses to keep for each sentence.
        allowed: The allowed tokens of the model.
        lists: The shortlist; None allows the whole vocabulary.
        sampling: How to sample, `num_best` samples of a sentence at once; None searches instead.
    """

    def __init__(
        self,
        packed: PackedModel,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        lists: ListMasks | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        if sampling is not None:
            config = config.model_copy(update={"beam_size": 1})  # whose ranks are log-probabilities
        self.beam_size = config.beam_size if sampling is None else num_best
        self._sampling, self._num_best, self._config, self._packed = sampling, num_best, config, packed
        self._eos_id, self.device = packed.config.eos_id, packed.device
        self._eos = torch.tensor(self._eos_id, device=self.device)
        self._ngram_size = config.no_repeat_ngram_size
        self._counts_suffixes = config.end_loops or self._ngram_size > 0
        self._never = torch.tensor(never_written(packed.config), dtype=torch.int64, device=self.device)
        self._lists, searched = lists, allowed.searched
        self._searched = searched if isinstance(searched, slice) else torch.tensor(searched, device=self.device).long()
        self._parts: tuple[Tensor, Tensor] | None = None
        if allowed.parts is not None:
            excluded = torch.stack([torch.from_numpy(~mask) for mask in allowed.of_states])
            next_states = torch.from_numpy(allowed.parts.next_states).long().clamp_min(0)
            self._parts = excluded.to(self.device), next_states.to(self.device)
        self._repeats: dict[Sizes, Callable[[], None]] = {}
        """Recorded steps, by size."""
        self._recorder: GraphRecorder | None = None
        """Recorder of CUDA graphs; made at the first recording."""
        self._state: State
        self.sizes = Sizes(0, 0, 0)
        self.grow(rounded(1, 1, 1))

    def grow(self, least: Sizes) -> None:
        """Grow to at least these sizes."""
        before, sizes = self.sizes, Sizes(*map(max, least, self.sizes))
        if sizes == before:
            return
        (n, p, s), k, b = sizes, self.beam_size, self._num_best
        layers, width = self._packed.num_layers, self._packed.kv_width
        on: dict[str, Any] = {"device": self.device}
        whole, double = {"dtype": torch.int64, **on}, {"dtype": torch.float64, **on}
        own = {"dtype": self._packed.dtype, **on}
        larger = State(
            # Values that a mask hides must still be finite, because 0 times NaN is NaN.
            past=torch.zeros(layers, n, p * k, width, **own),
            memory=torch.zeros(layers, n, s, width, **own),
            memory_mask=torch.full((n, s), -_INFINITY, **own),
            scores=torch.full((n, k), -_INFINITY, **on),
            newest=torch.zeros(n, k, **whole),
            utf8=torch.zeros(n, k, **whole),
            lengths=torch.zeros(n, **whole),
            history=torch.zeros(n, 3, k, p, **whole),
            finished=torch.full((n, b, 3), -_INFINITY, **double),
            finished_tokens=torch.zeros(n, b, p, **whole),
            forced=torch.full((n, p), NONE, **whole),
            limits=torch.zeros(n, 5, **whole),
            longest_penalties=torch.ones(n, **double),
            chances=torch.zeros(n, k, p if self._sampling else 0, **on),
            unlisted=torch.zeros(n, self._packed.config.vocab_size if self._lists else 0, dtype=torch.bool, **on),
        )
        larger.memory_mask[:, 0] = 0.0  # for empty rows, in which NaN would last
        larger.history[:, 0] = NONE
        if before.rows:
            for field in fields(State):
                old = getattr(self._state, field.name)
                getattr(larger, field.name)[tuple(map(slice, old.shape))] = old
        self._state, self.sizes = larger, sizes
        self._count = torch.arange(max(n, p) * k, **on)
        self._first_places = self._count[:n, None] * (p * k) + self._count[:k]
        self._free = torch.zeros((), **own)
        penalties = [1.0, *(rank_penalty(length, self._config) for length in range(1, p + 2))]
        self._penalties = torch.tensor(penalties, **double)
        self._repeats, self._recorder = {}, None  # they have the addresses of the smaller tensors

    def enter(self, rows: list[int], memory: Float[Tensor, "L _ _ W"], source_lengths: list[int]) -> None:
        """Store the cross-attention keys and values of new sentences in their rows."""
        state, index = self._empty(rows), torch.tensor(rows, device=self.device)
        state.memory[:, index, : memory.size(2)] = memory
        ends = torch.tensor(source_lengths, device=self.device)[:, None]
        is_beyond = torch.arange(state.memory.size(2), device=self.device) >= ends
        state.memory_mask[index] = torch.zeros_like(is_beyond, dtype=memory.dtype).masked_fill(is_beyond, -_INFINITY)

    def enter_past(self, row: int, past: Float[Tensor, "L _ W"]) -> None:
        """Store the keys and values of the beginning of a decoder-only model's text."""
        self._empty([row]).past[:, row, : past.size(1) * self.beam_size : self.beam_size] = past

    def _empty(self, rows: list[int]) -> State:
        """Remove the keys and values of former sentences, which may be NaN, from rows; return the state."""
        index = torch.tensor(rows, device=self.device)
        self._state.past.index_fill_(1, index, 0.0)
        self._state.memory.index_fill_(1, index, 0.0)
        return self._state

    def first_position(self, sentence: Sentence) -> int:
        """Return the position of the first target token."""
        return len(sentence.source) - 1 if self._packed.config.is_decoder_alone else 0

    def begin(self, rows: list[int], sentences: Sequence[Sentence], forced: Sequence[Sequence[int]]) -> None:
        """Set rows to the state before the first target token.

        Args:
            rows: The row of each sentence, whose keys and values are stored.
            sentences: The sentences.
            forced: The tokens that each must begin with; none if its masks are given to each step.
        """
        config, index = self._packed.config, torch.tensor(rows, device=self.device)
        limits: list[list[int]] = []
        for sentence in sentences:
            first, prefix = self.first_position(sentence), sentence.prefix
            ends = (0, sentence.max_length, prefix.given, len(prefix.tokens))
            times = LOOP_TIMES * sentence.times_in_source if self._config.end_loops else 0
            limits.append([*(first + end for end in ends), times])
        self.grow(rounded(1, max(limit[1 if self._sampling else 3] for limit in limits), 1))  # for chances or prefixes
        state = self._state
        state.limits[index] = torch.tensor(limits, device=self.device)
        state.lengths[index] = starts = state.limits[index, 0]
        longest = [rank_penalty(sentence.max_length, self._config) for sentence in sentences]
        state.longest_penalties[index] = torch.tensor(longest, dtype=torch.float64, device=self.device)
        newest = [[first_token(config, sentence.source)] for sentence in sentences]
        state.newest[index] = torch.tensor(newest, device=self.device)
        if self._lists is not None:
            state.unlisted[index] = self._lists.unlisted(sentences)
        state.utf8[index] = 0
        num_open = torch.tensor([max(1, len(sentence.draws)) for sentence in sentences], device=self.device)
        state.scores[index] = torch.where(self._count[: self.beam_size] < num_open[:, None], 0.0, -_INFINITY)
        state.finished[index] = -_INFINITY
        state.history[index] = 0
        state.history[index, 0] = NONE
        is_source = self._count[: self.sizes.positions] < starts[:, None]
        state.history[index, 1] = is_source.long()[:, None]  # its keys and values belong to the first beam
        if self._sampling is not None:
            state.chances[index] = self._chances(sentences, self._sampling.seed).to(self.device)
        state.forced[index] = NONE
        if any(forced):
            begun = [[NONE] * first + [*tokens] for (first, *_), tokens in zip(limits, forced, strict=True)]
            width = max(map(len, begun))
            padded = [[*tokens, *[NONE] * (width - len(tokens))] for tokens in begun]
            state.forced[index, :width] = torch.tensor(padded, device=self.device)

    def _chances(self, sentences: Sequence[Sentence], seed: int) -> Float[Tensor, "_ K P"]:
        """Return the random numbers of the samples of sentences, on the host."""
        chances = torch.zeros(len(sentences), self.beam_size, self.sizes.positions)
        for own, sentence in zip(chances, sentences, strict=True):
            first = self.first_position(sentence)
            numbers = np.stack(chances_of(sentence, seed))
            own[: len(numbers), first : first + sentence.max_length] = torch.from_numpy(numbers)
        return chances

    def close(self, rows: Sequence[int]) -> None:
        """End the searches of rows."""
        index = torch.tensor(rows, device=self.device)
        self._state.scores[index] = -_INFINITY
        self._state.lengths[index] = 0  # of any use of fewer positions

    def move(self, rows: list[int], places: list[int]) -> None:
        """Move sentences to other rows."""
        before, index = torch.tensor(rows, device=self.device), torch.tensor(places, device=self.device)
        for field in fields(State):
            tensor = getattr(self._state, field.name)
            axis = int(field.name in ("past", "memory"))
            tensor.index_copy_(axis, index, tensor.index_select(axis, before))

    def are_open(self, rows: list[int]) -> list[bool]:
        """Return whether each row has open hypotheses; this waits for the device."""
        return (self._state.scores.amax(dim=1) > -_INFINITY)[torch.tensor(rows, device=self.device)].tolist()

    def written(self, rows: list[int]) -> list[list[list[int]]]:
        """Return the tokens of the open hypotheses of each row, best first."""
        index = torch.tensor(rows, device=self.device)
        state, first = self._state, self._state.limits[index, 0].tolist()
        spans = zip(first, state.lengths[index].tolist(), strict=True)
        open_beams = (state.scores[index] > -_INFINITY).sum(dim=1).tolist()
        tokens = state.history[index, 0].tolist()
        return [
            [beam[start:end] for beam in beams[:count]]
            for beams, count, (start, end) in zip(tokens, open_beams, spans, strict=True)
        ]

    def found(self, rows: list[int]) -> list[list[Hypothesis]]:
        """Return the best finished hypotheses of each row, best first; none if its probabilities were not numbers."""
        index = torch.tensor(rows, device=self.device)
        state, first = self._state, self._state.limits[index, 0].tolist()
        finished = state.finished[index].masked_fill(state.scores[index, :1, None].isnan(), -_INFINITY)
        every = zip(first, finished.tolist(), state.finished_tokens[index].tolist(), strict=True)
        return [
            [
                Hypothesis((*ids[start : int(code) // 2 - 1], self._eos_id), log_prob, rank, bool(code % 2))
                for (rank, log_prob, code), ids in zip(numbers, tokens, strict=True)
                if rank > -_INFINITY
            ]
            for start, numbers, tokens in every
        ]

    def take_step(self, sizes: Sizes) -> None:
        """Take a step without a guide, on a GPU as a CUDA graph."""
        if repeat := self._repeats.get(sizes):
            repeat()
            return
        self.step(sizes)  # before a recording, because libraries prepare at their first use
        if self.device.type == "cuda":
            self._recorder = self._recorder or GraphRecorder(self.device)
            step = partial(self.step, sizes)
            self._repeats[sizes] = self._recorder.record(step, self._packed.model.buffers())

    def step(self, sizes: Sizes, guide: Guide | None = None) -> None:
        """Advance every open hypothesis by a token.

        Args:
            sizes: The rows in use; positions beyond the newest of each; source positions.
            guide: The allowed tokens of guided hypotheses, if there are any.
        """
        length = self._state.lengths[: sizes.rows, None] + 1  # of the candidates
        log_probs = self._log_probs(sizes)
        ended, forced = self._rules(sizes, length)
        if guide is not None:
            ended = torch.where(guide.are_guided, guide.ends, ended)
            forced = forced.masked_fill(guide.are_guided, NONE)
        only = forced.expand_as(ended).masked_fill(ended, self._eos_id).flatten()[:, None]  # (NK, 1)
        gain_of_only = log_probs.gather(1, only.clamp_min(0))
        self._restrict(log_probs, sizes, length, guide)
        if self._sampling is None:
            gains, tokens = best_tokens(log_probs, candidates_of_row(self.beam_size))  # (NK, C)
        else:
            places = (length - 1).expand_as(ended)[..., None]  # (N, K, 1)
            tokens = drawn_tokens(
                log_probs, self._state.chances[: sizes.rows].gather(2, places).flatten(), self._sampling
            )
            gains = log_probs.gather(1, tokens)
        is_only = only != NONE
        gain_of_only = functional.pad(gain_of_only, (0, gains.size(1) - 1), value=-_INFINITY)
        gains, tokens = torch.where(is_only, gain_of_only, gains), torch.where(is_only, only, tokens)
        self._choose(sizes, gains, tokens, ended, length)

    def _log_probs(self, sizes: Sizes) -> Float[Tensor, "NK V"]:
        """Run a step of the decoder and return the model's log-probabilities of the next tokens."""
        (n, p, s), k, state = sizes, self.beam_size, self._state
        lengths, owns = state.lengths[:n, None], self._count[1 : k + 1]
        owners = state.history[:n, 1, :, :p]
        owners.scatter_(2, lengths[..., None].expand(n, k, 1), owns[:, None].expand(n, k, 1))
        is_other = owners[..., None] != owns  # (N, K, P, K)
        mask = self._free.expand_as(is_other).masked_fill(is_other, -_INFINITY)
        knows_distances = self._packed.model.decoder.relative_positions is not None
        rows = SlotRows(
            num_slots=n,
            beam_size=k,
            index=self._count[: n * k],
            positions=lengths.expand(n, k).flatten(),
            places=torch.add(self._first_places[:n], lengths, alpha=k).flatten(),
            longest=min(p, self._packed.config.max_length or p),
            past_mask=mask.flatten(2)[:, None],
            memory_mask=state.memory_mask[:n, None, None, :s],
            distances=self._count[:p, None].expand(p, k).flatten() - lengths if knows_distances else None,
        )
        newest = state.newest[:n].flatten()
        hidden_states = self._packed.hidden_states(newest, state.past, state.memory, rows)
        return self._packed.log_probs(hidden_states, None if self._lists is None else state.unlisted[:n])

    def _rules(self, sizes: Sizes, length: Int[Tensor, "N 1"]) -> tuple[Bool[Tensor, "N K"], Int[Tensor, "N 1"]]:
        """Return whether only the end token is allowed, at the length limit or in a loop; and the prefix's token."""
        (n, p, _), state = sizes, self._state
        lengths, limits, positions = state.lengths[:n, None], state.limits[:n], self._count[:p]
        ended = (length == limits[:, 1:2]).expand(n, self.beam_size)
        if self._config.end_loops:
            periods = lengths - positions  # (N, P)
            needed = torch.maximum(limits[:, 4:] * periods, LOOP_TOKENS + 1 - periods)
            own = (positions - limits[:, 3:4])[:, None]  # tokens before each position that are not of the prefix
            ended = ended | (torch.minimum(state.history[:n, 2, :, :p], own) >= needed[:, None]).any(dim=2)
        if self._parts is not None:
            ended = ended & (state.utf8[:n] == 0)
        return ended, state.forced[:n].gather(1, lengths)

    def _restrict(
        self, log_probs: Float[Tensor, "NK V"], sizes: Sizes, length: Int[Tensor, "N 1"], guide: Guide | None
    ) -> None:
        """Give the tokens that no rule allows minus infinity."""
        n, k, state = sizes.rows, self.beam_size, self._state
        vocab_size, min_length, ngram = self._packed.config.vocab_size, self._config.min_length, self._ngram_size
        if guide is not None:
            own = log_probs[guide.beams]
            own[:, :vocab_size].masked_fill_(~guide.masks, -_INFINITY)
        log_probs.index_fill_(1, self._never, -_INFINITY)
        if self._parts is not None:
            rooms = state.limits[:n, 1:2] - length - 1
            masks = rooms.clamp(0, NUM_ROOMS - 1) * NUM_STATES + state.utf8[:n]
            log_probs[:, :vocab_size].masked_fill_(self._parts[0][masks.flatten()], -_INFINITY)
        # With both, or with a shortlist, there may be no token left.
        before = log_probs.clone() if min_length > 1 and (ngram or self._lists is not None) else None
        if min_length > 1:
            is_short = (length - state.limits[:n, :1] < min_length).expand(n, k).flatten()
            log_probs[:, self._eos_id].masked_fill_(is_short, -_INFINITY)
        if ngram:
            self._exclude_repetitions(log_probs, sizes)
        if before is not None:
            has_none = (log_probs[:, self._searched] == -_INFINITY).all(dim=1, keepdim=True)
            log_probs.copy_(torch.where(has_none, before, log_probs))
        if guide is not None:
            log_probs[guide.beams] = own

    def _exclude_repetitions(self, log_probs: Float[Tensor, "NK V"], sizes: Sizes) -> None:
        """Give the tokens that would repeat `no_repeat_ngram_size` tokens minus infinity."""
        (n, p, _), state = sizes, self._state
        tokens, suffixes = state.history[:n, 0, :, :p], state.history[:n, 2, :, :p]
        repeats = (suffixes >= self._ngram_size - 1) & (tokens != NONE)  # (N, K, P)
        if self._parts is not None:
            repeats = repeats & (state.utf8[:n] == 0)[..., None]  # the rest of a character comes first
        losses = log_probs.new_zeros(()).expand_as(repeats).masked_fill(repeats, -_INFINITY)
        log_probs.scatter_add_(1, tokens.clamp_min(0).flatten(0, 1), losses.flatten(0, 1))

    def _choose(
        self,
        sizes: Sizes,
        gains: Float[Tensor, "NK C"],
        tokens: Int[Tensor, "NK C"],
        ended: Bool[Tensor, "N K"],
        length: Int[Tensor, "N 1"],
    ) -> None:
        """Finish, continue or drop hypotheses, as `beam_state.SearchedSentence.advance` does."""
        (n, p, _), k, state = sizes, self.beam_size, self._state
        scores, limits, history = state.scores[:n], state.limits[:n], state.history[:n, :, :, :p]
        is_open, before = scores[:, :1] > -_INFINITY, scores.flatten()[:, None]
        candidates = torch.where(before == -_INFINITY, before, before + gains).view(n, -1)
        best, places = candidates.topk(min(candidates_of_sentence(k), candidates.size(1)), dim=1)
        beams, tokens = places // gains.size(1), tokens.view(n, -1).gather(1, places)
        closed = best[:, :1] - _INFINITY  # NaN if any candidate is, because NaN counts as the largest
        best = torch.maximum(best, closed)
        is_possible = best > -_INFINITY
        goes_on = is_possible & (tokens != self._eos_id)
        self._finish(sizes, best[:, :k], beams[:, :k], (is_possible & ~goes_on)[:, :k], ended, length)

        # Stable, so that of equal ones the first counts.
        best, order = torch.where(goes_on, best, closed).sort(dim=1, descending=True, stable=True)
        best, order = best[:, :k], order[:, :k]
        beams, newest = beams.gather(1, order), tokens.gather(1, order)
        can_win = best.double() / state.longest_penalties[:n, None] > state.finished[:n, -1:, 0]
        stays = can_win & (length < limits[:, 1:2])
        best = best.masked_fill(length <= limits[:, 2:3], 0.0)  # control tokens cost nothing
        torch.where(stays, best, closed, out=scores)
        newest = torch.where(stays, newest, self._eos, out=state.newest[:n])  # it may be none of the vocabulary
        if self._parts is not None:
            utf8 = state.utf8[:n]
            utf8.copy_(self._parts[1][utf8.gather(1, beams), newest])

        if self._sampling is not None:
            chances = state.chances[:n]  # also those of positions beyond this step's
            chances.copy_(chances.gather(1, beams[..., None].expand_as(chances)))
        if k > 1:
            history.copy_(history.gather(2, beams[:, None, :, None].expand(n, 3, k, p)))
        written, suffixes = history[:, 0], history[:, 2]
        if self._counts_suffixes:
            is_same = written == newest[..., None]
            suffixes[..., 1:] = ((suffixes + 1) * is_same)[..., :-1]
        written.scatter_(2, state.lengths[:n, None, None].expand(n, k, 1), newest[..., None])
        state.lengths[:n].add_(is_open[:, 0])

    def _finish(
        self,
        sizes: Sizes,
        best: Float[Tensor, "N C"],
        beams: Int[Tensor, "N C"],
        is_finished: Bool[Tensor, "N C"],
        ended: Bool[Tensor, "N K"],
        length: Int[Tensor, "N 1"],
    ) -> None:
        """Merge the candidates that end into the best finished hypotheses."""
        (n, p, _), state = sizes, self._state
        finished, tokens = state.finished[:n], state.finished_tokens[:n, :, :p]
        log_probs = best.double()
        ranks = log_probs / self._penalties[length - state.limits[:n, :1]]
        ranks = ranks.masked_fill(~is_finished, -_INFINITY)
        codes = torch.add(ended.gather(1, beams), length, alpha=2).double()
        every = torch.cat([finished, torch.stack([ranks, log_probs, codes], dim=2)], dim=1)
        # Stable, so that of equal ones the first counts.
        order = every[..., 0].sort(dim=1, descending=True, stable=True).indices[:, : self._num_best, None]
        written = state.history[:n, 0, :, :p].gather(1, beams[..., None].expand(-1, -1, p))
        written = torch.cat([tokens, written], dim=1)
        torch.gather(every, 1, order.expand(-1, -1, 3), out=finished)
        tokens.copy_(written.gather(1, order.expand(-1, -1, p)))

"""Greedy and beam search with a full batch: a sentence that is done leaves, and the next one enters at once.

It finds what `beam.beam_search` and `sampling.greedy_search` find, token for token, and computes less:

- A row is a hypothesis that can still win. One that cannot is dropped, and with it what would come of it; whatever
  ranks below it cannot win either, so no place is lost by not filling its own.
- All beams of a sentence share its keys and values, and no search step copies them (`lanes`).
- The best tokens of a row are sought in the best blocks of tokens only, or among those of a shortlist.

Shapes: R rows, D d_model, V vocabulary in whole blocks, N lanes, K beams, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.config import DecodeConfig
from clearhead.decoding.hypothesis import Hypothesis, length_penalty
from clearhead.decoding.lanes import Lanes, Rows
from clearhead.decoding.packed import BLOCK, PackedModel
from clearhead.decoding.shortlist import ListedTokens, Shortlist
from clearhead.decoding.step import pad_batch
from clearhead.errors import ModelError

__all__ = ["Choice", "best_tokens", "search"]

Prefix = tuple[Any, int] | None
"""The tokens of a hypothesis, from the newest back: the prefix before it, and its token. Beginnings are shared."""


@runtime_checkable  # so that tests can check annotations
class Choice(Protocol):
    """Among which tokens each sentence in flight chooses; its lanes are those of `Lanes`."""

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Give the next lanes to sentences."""

    def leave(self, lane: int) -> None:
        """Give up a lane; the last one moves there."""

    def best(
        self, states: Float[Tensor, "R D"], rows: Rows, is_last: Sequence[bool], count: int
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
        """Return log-probabilities and ids of the best next tokens of each row, best first.

        Args:
            states: The decoder's.
            rows: Where each row stands.
            is_last: Whether a row is at its length limit, where only the end is possible.
            count: Tokens wanted, C; fewer if there are not as many.
        """


class _AllTokens:
    """The choice among the whole vocabulary."""

    def __init__(self, model: PackedModel) -> None:
        self.model = model

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Take note of nothing: all may write the same."""

    def leave(self, lane: int) -> None:
        """Forget nothing."""

    def best(
        self, states: Float[Tensor, "R D"], rows: Rows, is_last: Sequence[bool], count: int
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
        log_probs = self.model.log_probs(states)
        if any(is_last):
            _leave_the_end_alone(log_probs, is_last, self.model.config.eos_id)
        return best_tokens(log_probs, count)


@dataclass
class _Sentence:
    """A sentence in flight; its open hypotheses are beams 0, 1, ... of its lane, best first."""

    number: int
    max_length: int
    longest_penalty: float
    scores: list[float]
    prefixes: list[Prefix]
    newest: list[int]
    parents: list[int] = field(default_factory=lambda: [0])
    length: int = 0
    finished: list[Hypothesis] = field(default_factory=list)
    bar: float = float("-inf")
    """The rank score that one must beat to enter the best."""


def search(
    model: PackedModel,
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
        ModelError: If the model's probabilities are not numbers.
    """
    choice: Choice = _AllTokens(model) if shortlist is None else ListedTokens(model, shortlist)
    beam_size = config.beam_size
    lanes = model.lanes(beam_size, min(len(sources), _capacity(min(map(len, sources), default=1), config)))
    flying: list[_Sentence] = []  # by lane
    # Longest first: what needs the most memory comes at once, not after an hour.
    waiting = sorted(range(len(sources)), key=lambda number: len(sources[number]))

    while flying or waiting:
        if entering := _next_in(waiting, sources, lanes, config):
            batch = [sources[number] for number in entering]
            lanes.enter(model.encode(pad_batch(batch, model.config.pad_id)), list(map(len, batch)))
            choice.enter(batch)
            for number in entering:
                longest = _penalty(max_lengths[number], config)
                flying.append(_Sentence(number, max_lengths[number], longest, [0.0], [None], [model.config.bos_id]))
        _step(model, lanes, choice, flying, config, num_best)
        for lane in reversed(range(len(flying))):
            if not flying[lane].scores:
                done = flying[lane]
                flying[lane] = flying[-1]
                flying.pop()
                lanes.leave(lane)
                choice.leave(lane)
                if not done.finished:
                    raise ModelError(
                        "the model's probabilities are not numbers: its weights hold NaN or infinity, so it is "
                        "damaged, or its training diverged"
                    )
                yield done.number, sorted(done.finished, key=lambda h: -h.rank_score)[:num_best]


def _next_in(waiting: list[int], sources: Sequence[list[int]], lanes: Lanes, config: DecodeConfig) -> list[int]:
    """Take the sentences that enter now: as many as there is room for, but not a few of them while others fly."""
    if not waiting:
        return []
    capacity = _capacity(max([len(sources[waiting[-1]]), *lanes.source_lengths]), config)
    room = capacity - len(lanes)
    if room < max(1, capacity // 8):
        return []
    return [waiting.pop() for _ in range(min(room, len(waiting)))]


def _capacity(length: int, config: DecodeConfig) -> int:
    """Return how many sentences of a length may be in flight at once."""
    return max(1, config.batch_tokens // (config.beam_size * length))


def _step(
    model: PackedModel,
    lanes: Lanes,
    choice: Choice,
    flying: list[_Sentence],
    config: DecodeConfig,
    num_best: int,
) -> None:
    """Let every open hypothesis take its next token."""
    beam_size = config.beam_size
    index = [lane * beam_size + beam for lane, sentence in enumerate(flying) for beam in range(len(sentence.scores))]
    parents = [lane * beam_size + parent for lane, sentence in enumerate(flying) for parent in sentence.parents]
    newest = [token for sentence in flying for token in sentence.newest]
    scores = [score for sentence in flying for score in sentence.scores]

    rows = lanes.advance(index, parents)
    states = model.states(torch.tensor(newest, device=model.device), lanes, rows)
    is_last = [sentence.length + 1 == sentence.max_length for sentence in flying for _ in sentence.scores]
    # A row's end and K other tokens are all that can matter of it; greedy search takes the best, whatever it is.
    gains, tokens = choice.best(states, rows, is_last, 1 if beam_size == 1 else beam_size + 1)
    ways = _best_ways(gains + torch.tensor(scores, device=model.device)[:, None], tokens, rows)
    for sentence, candidates in zip(flying, ways, strict=True):
        _advance(sentence, candidates, model.config.eos_id, config, num_best)


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
        if score == float("-inf") or len(scores) == beam_size:
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


def _best_ways(
    scores: Float[Tensor, "R C"], tokens: Int[Tensor, "R C"], rows: Rows
) -> list[Iterator[tuple[float, int, int]]]:
    """Return for each lane the best (score, beam, token), best first."""
    count = scores.size(1)
    scores = rows.spread(scores, float("-inf"))  # (N, K, C)
    tokens = rows.spread(tokens)
    most = 1 if rows.beam_size == 1 else 2 * rows.beam_size
    best, places = scores.flatten(1).topk(min(most, scores[0].numel()), dim=-1)
    best_ids = tokens.flatten(1).gather(1, places)
    return [
        zip(lane_scores, beams, ids, strict=True)
        for lane_scores, beams, ids in zip(best.tolist(), (places // count).tolist(), best_ids.tolist(), strict=True)
    ]


def best_tokens(log_probs: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Return the `count` best tokens of each row, best first; V is a whole number of blocks.

    The best tokens are in the blocks whose best tokens are best, and to find those takes one pass at full speed.
    """
    blocks = log_probs.unflatten(1, (-1, BLOCK))
    chosen = blocks.amax(dim=-1).topk(min(count, blocks.size(1)), dim=-1).indices  # (R, C)
    candidates = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    values, places = candidates.topk(min(count, candidates.size(1)), dim=-1)
    return values, chosen.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def _leave_the_end_alone(log_probs: Float[Tensor, "R V"], is_last: Sequence[bool], eos_id: int) -> None:
    """Where a translation is at its length limit, it ends."""
    last = torch.tensor(is_last, device=log_probs.device)
    end = log_probs[last, eos_id]
    log_probs[last] = float("-inf")
    log_probs[last, eos_id] = end


def _penalty(length: int, config: DecodeConfig) -> float:
    """Return what a log-probability is divided by; greedy search compares nothing."""
    return length_penalty(length, config.length_penalty, config.length_penalty_form) if config.beam_size > 1 else 1.0


def _tokens(prefix: Prefix) -> list[int]:
    tokens = []
    while prefix is not None:
        prefix, token = prefix
        tokens.append(token)
    return tokens[::-1]

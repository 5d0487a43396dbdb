"""Taking the hypotheses in flight a token further; `search` decides which of them go on.

Shapes: R rows, D d_model, V vocabulary in whole blocks, N lanes, K beams, C candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.decoding.lanes import Rows
from clearhead.decoding.packed import BLOCK, PackedModel
from clearhead.decoding.step import pad_batch

__all__ = ["Beams", "Choice", "PackedStepper", "Stepper", "best_tokens"]


@dataclass
class Beams:
    """The open hypotheses of a sentence, best first."""

    scores: list[float]
    """Log-probabilities so far."""
    newest: list[int]
    """Newest token of each."""
    parents: list[int]
    """The beam that each goes on from, at the step before."""
    length: int = 0
    """Tokens written."""
    max_length: int = 0
    """Most tokens that may be written, the end token included."""

    @property
    def is_last(self) -> bool:
        """Whether the next token is the last that may be written, and so the end."""
        return self.length + 1 == self.max_length


@runtime_checkable  # so that tests can check annotations
class Stepper(Protocol):
    """Takes hypotheses further. Each sentence in flight has a lane; lanes in use are always the first ones."""

    source_lengths: list[int]
    """Source tokens of the sentence in each lane."""

    def prepare(self, sources: Sequence[Sequence[int]]) -> list[Any]:
        """Do what can be done for some sentences at once before they enter."""

    def enter(self, prepared: Sequence[Any]) -> None:
        """Give the next lanes to sentences that were prepared."""

    def leave(self, lane: int) -> None:
        """Give up a lane; the last one moves there."""

    def step(self, flying: Sequence[Beams]) -> list[Iterator[tuple[float, int, int]]]:
        """Take every open hypothesis a token further.

        Args:
            flying: The open hypotheses of every lane.

        Returns:
            For each lane its best continuations, best first: log-probability, beam and token. Of K beams these are at
            least the 2 K best, with one beam the best alone.
        """


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


class PackedStepper:
    """Hypotheses in flight, in PyTorch.

    Args:
        model: What translates.
        beam_size: Most hypotheses of a sentence, K.
        max_lanes: Most sentences at once.
        choice: Among which tokens; None is the whole vocabulary.
    """

    def __init__(self, model: PackedModel, beam_size: int, max_lanes: int, choice: Choice | None = None) -> None:
        self.model = model
        self.lanes = model.lanes(beam_size, max_lanes)
        self.choice = choice or _AllTokens(model)
        self.source_lengths = self.lanes.source_lengths

    def prepare(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Do nothing yet: those that enter are encoded together."""
        return [list(source) for source in sources]

    def enter(self, prepared: Sequence[list[int]]) -> None:
        """Give the next lanes to sentences."""
        batch = list(prepared)
        self.lanes.enter(self.model.encode(pad_batch(batch, self.model.config.pad_id)), list(map(len, batch)))
        self.choice.enter(batch)

    def leave(self, lane: int) -> None:
        """Give up a lane; the last one moves there."""
        self.lanes.leave(lane)
        self.choice.leave(lane)

    def step(self, flying: Sequence[Beams]) -> list[Iterator[tuple[float, int, int]]]:
        """Take every open hypothesis a token further; see `Stepper`."""
        beam_size, device = self.lanes.beam_size, self.model.device
        index = [lane * beam_size + beam for lane, beams in enumerate(flying) for beam in range(len(beams.scores))]
        parents = [lane * beam_size + parent for lane, beams in enumerate(flying) for parent in beams.parents]
        newest = [token for beams in flying for token in beams.newest]
        scores = [score for beams in flying for score in beams.scores]
        is_last = [beams.is_last for beams in flying for _ in beams.scores]

        rows = self.lanes.advance(index, parents)
        states = self.model.states(torch.tensor(newest, device=device), self.lanes, rows)
        # A row's end and K other tokens are all that can matter of it; greedy search takes the best, whatever it is.
        gains, tokens = self.choice.best(states, rows, is_last, 1 if beam_size == 1 else beam_size + 1)
        return _best_ways(gains + torch.tensor(scores, device=device)[:, None], tokens, rows)


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

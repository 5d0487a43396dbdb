"""Inference engine of an ensemble: run each member's own engine, average the probabilities, select candidates.

The core and PyTorch select candidates among the tokens of one model. Here they return all log-probabilities, and
candidates are selected after averaging.

Shapes: R rows (the open hypotheses of all slots), V vocabulary, T tokens of a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.decoding.best_tokens import best_continuations
from clearhead.decoding.engine import Beams, Candidates, Engine, Slots
from clearhead.decoding.ensemble import Ensemble, mean_log_probs
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from jaxtyping import Float


class EnsembleEngine(Engine):
    """The inference engine of an ensemble.

    Args:
        model: The ensemble.
        members: One engine for each model, all of the same precision.
    """

    def __init__(self, model: Ensemble, members: Sequence[Engine]) -> None:
        super().__init__(model, members[0].precision)
        self.members = members
        self.most_scored = min(member.most_scored for member in members)
        self.batch_factor = min(member.batch_factor for member in members)

    def is_current(self) -> bool:
        """Return whether all members still have the weights that their engines were made from."""
        return all(member.is_current() for member in self.members)

    def computing(self) -> AbstractContextManager[Any]:
        """Return the contexts of all members."""
        contexts = ExitStack()
        for member in self.members:
            contexts.enter_context(member.computing())
        return contexts

    def num_workers(self, most: int) -> int:
        """Return how many threads should work in parallel: the minimum over the members."""
        return min(member.num_workers(most) for member in self.members)

    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> EnsembleSlots:
        """Return the slots of one worker; see `engine.Engine`.

        Raises:
            ConfigError: If there is a shortlist, which is learned from one model.
        """
        if shortlist is not None:
            raise ConfigError("a shortlist is learned from one model, and has no meaning for an ensemble")
        return EnsembleSlots([member.slots(beam_size, max_slots, None, team) for member in self.members], beam_size)

    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the logarithm of the mean probability of every token of each target; see `engine.Engine`."""
        of_members = [member.token_log_probs(sources, targets) for member in self.members]
        of_targets = ([row.astype(np.float64) for row in rows] for rows in zip(*of_members, strict=True))
        return list(map(mean_log_probs, of_targets))


class EnsembleSlots:
    """The sentences that one worker has in flight, in slots of every member; see `engine.Slots`."""

    def __init__(self, members: Sequence[Slots], beam_size: int) -> None:
        self._members = members
        self._beam_size = beam_size
        self.source_lengths = members[0].source_lengths  # equal in all members

    def encode(self, sentences: Sequence[Sentence]) -> list[Any]:
        """Encode sentences before they enter their slots, in each member that can."""
        return list(zip(*(member.encode(sentences) for member in self._members), strict=True))

    def enter(self, encoded: Sequence[Any]) -> None:
        """Assign the next free slots to encoded sentences."""
        for member, own in zip(self._members, zip(*encoded, strict=True), strict=True):
            member.enter(own)

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        for member in self._members:
            member.leave(slot)

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step and return all log-probabilities; see `engine.Slots`."""
        return mean_log_probs([member.log_probs(active) for member in self._members])

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step and return the best candidates; see `engine.Slots`."""
        return list(best_continuations(active, self.log_probs(active), self._beam_size))

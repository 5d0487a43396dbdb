"""What a search asks of whatever computes the model: the one interface of `pytorch` and `native`.

Shapes: K beams, R rows (the open hypotheses of all slots), V vocabulary, T tokens of a target.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import DecodePrecision
from clearhead.decoding.ensemble import Ensemble
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.token_masks import Mask
from clearhead.model.transformer import Transformer

__all__ = ["Beams", "Candidates", "Engine", "Slots"]

Candidates = Iterator[tuple[float, int, int]]
"""The best continuations of a sentence, best first: log-probability, beam and token."""


@dataclass
class Beams:
    """The open hypotheses of a sentence, best first."""

    scores: list[float]
    """Log-probabilities so far."""
    newest: list[int]
    """Newest token of each."""
    parents: list[int]
    """The beam that each goes on from, at the step before."""
    masks: list[Mask | None]
    """What each may go on with; None is anything but padding and the start token."""
    length: int
    """Tokens written."""


@runtime_checkable  # so that tests can check annotations
class Slots(Protocol):
    """The sentences that one worker has in flight, a slot each; slots in use are always the first ones."""

    source_lengths: list[int]
    """Source tokens of the sentence in each slot."""

    def encode(self, sentences: Sequence[Sentence]) -> list[Any]:
        """Encode some sentences ahead of their entry, if the engine can."""

    def enter(self, encoded: Sequence[Any]) -> None:
        """Give the next slots to sentences that were encoded."""

    def leave(self, slot: int) -> None:
        """Give up a slot; the last sentence moves there."""

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Take every open hypothesis a token further.

        Args:
            active: The open hypotheses of every slot.

        Returns:
            For each slot `rules.candidates_of_sentence` candidates, or as many as there are.
        """

    def log_probs(self, active: Sequence[Beams]) -> Float[Tensor, "R V"]:
        """Take every open hypothesis a token further, and leave the choice to others.

        Args:
            active: The open hypotheses of every slot.

        Returns:
            For each of them, slot by slot, the log-probability of every token that may come after it; minus infinity of
            the others.
        """


class Engine(ABC):
    """A model, or an ensemble, in a form that translates and scores fast, as long as its weights stay as they are.

    Args:
        model: In evaluation mode.
        precision: Of the matrix products; `fp32` gives the model's own numbers.
    """

    finds_scores = False
    """Whether the log-probabilities that a search finds are those that `score` gives."""
    most_scored = sys.maxsize
    """Tokens of the longer side that are best scored at once."""

    def __init__(self, model: Transformer | Ensemble, precision: DecodePrecision = "fp32") -> None:
        self.model = model
        self.precision = precision
        members = model.members if isinstance(model, Ensemble) else (model,)
        self._modules = [module for member in members for module in member.modules()]
        self._fingerprint = _fingerprint(self._modules)

    def is_current(self) -> bool:
        """Tell whether the model still has the weights that this was made of; if not, make another one."""
        return self._fingerprint == _fingerprint(self._modules)

    @abstractmethod
    def num_workers(self, most: int) -> int:
        """Return how many threads should work at once, each on its own sentences; `most` could."""

    @abstractmethod
    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> Slots:
        """Return the slots of one worker.

        Args:
            beam_size: Most hypotheses of a sentence, K.
            max_slots: Most sentences at once.
            shortlist: What each sentence may be written in; None allows the whole vocabulary.
            team: Threads that may help the worker.

        Raises:
            DeviceError: If the device cannot compute in the precision.
            ModelError: If the shortlist does not fit the model.
        """

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the model's own log-probability of each target given its source, in nats; asked in fp32 alone.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.
        """
        return [float(log_probs.sum(dtype=np.float64)) for log_probs in self.token_log_probs(sources, targets)]

    @abstractmethod
    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the log-probability of every token of each target given what comes before it; see `score`."""


def _fingerprint(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Return what changes when modules or weights are replaced, or written to by PyTorch's own operations.

    It is asked for at each call, so it reads the modules' own dictionaries: to walk through the model with `parameters`
    takes 0.2 ms more, a fifth of all that a translation of one line needs beside its search.
    """
    parts = [(id(child), 0) for module in modules for child in module._modules.values()]
    weights = (weight for module in modules for weight in module._parameters.values() if weight is not None)
    return parts + [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]

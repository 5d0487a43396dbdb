"""Interface of the inference engines: the steps of a search, and scores of given translations.

Shapes: K beams, R rows (the open hypotheses of all slots), V vocabulary, T tokens of a target.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from clearhead.config import DecodeConfig, DecodePrecision, Sampling
from clearhead.decoding.ensemble import Ensemble
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.neighbour_keys import TOKENS_AT_ONCE, KeyCache
from clearhead.decoding.neighbours import Pair
from clearhead.decoding.rules import Hypothesis
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens, Mask
from clearhead.decoding.utf8 import CharacterParts
from clearhead.model.stored import StoredModel

if TYPE_CHECKING:
    from jaxtyping import Float, Int64

    from clearhead.decoding.shortlist import Shortlist
    from clearhead.model.transformer import Transformer

Candidates = Iterator[tuple[float, int, int]]
"""The best continuations of a sentence, best first, as (log-probability, beam, token)."""


@dataclass
class Beams:
    """The open hypotheses of a sentence, best first."""

    scores: list[float]
    """Log-probability of each so far, in nats."""
    newest: list[int]
    """The last token of each."""
    parents: list[int]
    """The beam of the previous step that each hypothesis extends."""
    masks: list[Mask | None]
    """The allowed next tokens of each; None allows all but padding and the start token."""
    length: int
    """Number of target tokens written."""


def rows_of(active: Sequence[Beams]) -> Iterator[slice]:
    """Yield the rows of each sentence, in arrays with a row for each open hypothesis of all sentences."""
    first = 0
    for beams in active:
        yield slice(first, first := first + len(beams.scores))


def leave_slot(slot: int, *columns: list[Any]) -> None:
    """Remove a slot from lists with an entry for each; the last entry moves there."""
    for column in columns:
        column[slot] = column[-1]
        column.pop()


@runtime_checkable  # so that tests can check annotations
class Slots(Protocol):
    """The sentences that one worker has in flight, one per slot; occupied slots always come first."""

    source_lengths: list[int]
    """Number of source tokens of the sentence in each slot."""

    def encode(self, sentences: Sequence[Sentence]) -> list[Any]:
        """Encode sentences before they enter their slots, if the engine can."""

    def enter(self, encoded: Sequence[Any]) -> None:
        """Assign the next free slots to encoded sentences."""

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step for every open hypothesis and return the best candidates.

        Args:
            active: The open hypotheses of every slot.

        Returns:
            For each slot, `rules.candidates_of_sentence` candidates, or all if there are fewer. Their scores begin with
            NaN if the probabilities after any of its hypotheses are not numbers.
        """

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step for every open hypothesis and return all log-probabilities.

        Args:
            active: The open hypotheses of every slot.

        Returns:
            For each hypothesis, slot by slot, the log-probability of every allowed next token; minus infinity for the
            others.
        """


@runtime_checkable
class InFlight(Protocol):
    """The hypotheses of a sentence in flight."""

    sentence: Sentence

    @property
    def is_open(self) -> bool:
        """Whether any hypothesis is open; if not, the search of the sentence is done."""

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first."""


@runtime_checkable
class SlotSearch(Protocol):
    """A search in the slots of an engine that makes its decisions itself, the same as `beam_state`, or samples."""

    def begin(self, sentence: Sentence, bos_id: int) -> InFlight:
        """Return the state of a sentence before the first target token.

        Args:
            sentence: The sentence.
            bos_id: The first decoder input.
        """

    def advance(self, active: Sequence[Any], seen: int) -> None:
        """Take steps until a sentence is done, or some steps; begin none after about a hundredth of a second.

        Args:
            active: The sentences in all slots.
            seen: Value of the counter of changes up to which the caller has looked at them; the search returns soon
                after it increases.
        """


@runtime_checkable
class SearchingSlots(Slots, Protocol):
    """Slots that offer a search of their own."""

    def search(
        self,
        config: DecodeConfig,
        num_best: int,
        allowed: AllowedTokens,
        changes: Int64[np.ndarray, "1"],
        *,
        scores: bool,
        sampling: Sampling | None = None,
    ) -> SlotSearch | None:
        """Return a search in these slots; None if they have no search of this kind.

        Args:
            config: Settings of the search.
            num_best: Hypotheses to find for each sentence, or most samples of one.
            allowed: The allowed tokens of the model.
            changes: Counter of what the caller must look at: new, withdrawn and stopped sentences.
            scores: Whether the log-probabilities of what is found are needed.
            sampling: How to sample; None searches instead.
        """


class Engine(ABC):
    """A model or ensemble prepared for fast translation and scoring; valid until the model changes.

    Args:
        model: A model in evaluation mode.
        precision: Precision of the matrix products; `fp32` gives the model's own numbers.
    """

    is_plain = False
    """Whether it has searches of its own, the plain ones."""
    finds_scores = False
    """Whether the log-probabilities found by a search equal those of `score`."""
    most_scored = sys.maxsize
    """Recommended maximum batch for scoring, in tokens of the longer side."""
    parts: CharacterParts | None = None
    """The tokens that are parts of characters, which a search then writes whole; None if there are none."""
    consults_neighbours = False
    """Whether its searches mix in the probabilities of `Sentence.neighbours`."""
    batch_factor = 1
    """How many times `DecodeConfig.batch_tokens` a worker searches at once."""

    def __init__(self, model: Transformer | StoredModel | Ensemble, precision: DecodePrecision = "fp32") -> None:
        self.model = model
        self.precision = precision
        self._keys = KeyCache()
        self._state = None
        if not isinstance(model, StoredModel | Ensemble):
            from clearhead.model.module_state import ModuleState

            self._state = ModuleState(model)

    def is_current(self) -> bool:
        """Return whether the model is still as it was when this engine was made; if not, make a new engine."""
        if isinstance(self.model, StoredModel):
            return not self.model.is_changed
        return self._state is None or self._state.is_current()

    def computing(self) -> AbstractContextManager[Any]:
        """Return the context in which each thread uses this engine; PyTorch's must compute no gradients."""
        return nullcontext()

    @abstractmethod
    def num_workers(self, most: int) -> int:
        """Return how many threads should work in parallel on separate sentences, at most `most`."""

    @abstractmethod
    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> Slots:
        """Return the slots of one worker.

        Args:
            beam_size: Maximum hypotheses of a sentence, K.
            max_slots: Maximum sentences in flight.
            shortlist: Selects the target tokens allowed for each sentence; None allows the whole vocabulary.
            team: Helper threads of the worker.

        Raises:
            DeviceError: If the device cannot compute in the precision.
            ModelError: If the shortlist does not fit the model.
        """

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[float]:
        """Return the model's own log-probability of each target given its source, in nats; only called in fp32.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.
        """
        return [float(log_probs.sum(dtype=np.float64)) for log_probs in self.token_log_probs(sources, targets)]

    @abstractmethod
    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the log-probability of every target token given the tokens before it, in nats; see `score`."""

    def keys_of(self, pairs: Sequence[Pair]) -> dict[Pair, Float[np.ndarray, "T D"]]:
        """Return the keys of retrieved pairs; only called if `consults_neighbours`. The most recent ones are cached."""
        return self._keys(pairs, self.decoder_states, min(self.most_scored, TOKENS_AT_ONCE))

    def decoder_states(self, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "T D"]]:
        """Return the decoder's output at the steps that write the targets of pairs; only called with neighbours.

        An engine with `consults_neighbours` has this method; the others are given no neighbours.
        """
        raise AssertionError(f"{type(self).__name__} does not consult neighbours")

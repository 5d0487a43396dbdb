"""Nearest neighbours from retrieved translations: keys, values, and their mixture with the model's probabilities.

A step looks for states of the decoder that are near its own among those of the translations of similar sources
(Khandelwal et al. 2021, "Nearest Neighbor Machine Translation"; of retrieved sentences alone, Dai et al. 2023, "Simple
and Scalable Nearest Neighbor Machine Translation"). Each of these states is a key; its value is the token that the
translation has next.

Shapes: N keys of a sentence, T tokens of a target, R rows (the open hypotheses of all sentences), D d_model, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

TEMPERATURE = 0.05
"""Temperature of the softmax over squared distances. Like `REACH` it is in mean squared lengths of the keys, so that it
fits any model."""
REACH = 0.5
"""Squared distance of the nearest key from which on a step ignores the neighbours."""

NEAR = 0.3
"""Similarity of a pair from which on it is consulted."""
MOST_WEIGHT = 0.8
"""The automatic weight, at most."""
FIRST_WEIGHT = 0.5
"""The automatic weight at a similarity of `NEAR`."""


class Pair(NamedTuple):
    """A similar source and its translation, as tokens that end in `eos_id`."""

    source: tuple[int, ...]
    target: tuple[int, ...]


def automatic_weight(similarity: float) -> float:
    """Return the weight of neighbours of which the most similar has this similarity, the share of equal words.

    >>> automatic_weight(0.2), round(automatic_weight(0.4), 3), automatic_weight(0.9)
    (0.0, 0.6, 0.8)
    """
    return 0.0 if similarity < NEAR else min(MOST_WEIGHT, FIRST_WEIGHT + similarity - NEAR)


class Neighbours(NamedTuple):
    """The retrieved pairs of a sentence."""

    pairs: tuple[Pair, ...]
    """At least one, the most similar first."""
    weight: float
    """Share of their distribution in the mixture where a key is equal to the state, above 0 and below 1."""
    keys: Float[np.ndarray, "N D"] | None = None
    """Decoder states at the steps that write the targets, one after another; None before `with_keys`."""

    @property
    def values(self) -> Int[np.ndarray, " N"]:
        """The target token that belongs to each key."""
        return np.concatenate([pair.target for pair in self.pairs]).astype(np.int32)

    @property
    def temperature(self) -> float:
        """The divisor of squared distances."""
        return TEMPERATURE * self._squared_length

    @property
    def reach(self) -> float:
        """The squared distance of the nearest key that leaves the neighbours no weight."""
        return REACH * self._squared_length

    @property
    def _squared_length(self) -> float:
        assert self.keys is not None
        return float(np.mean(np.sum(np.square(self.keys, dtype=np.float64), axis=1)))

    def distances(self, states: Float[np.ndarray, "R D"]) -> Float[np.ndarray, "R N"]:
        """Return the squared distance of each key from these states."""
        assert self.keys is not None
        return np.square(states[:, None].astype(np.float64) - self.keys).sum(axis=-1)

    def probabilities(self, states: Float[np.ndarray, "R D"]) -> Float[np.ndarray, "R N"]:
        """Return the probability of each key at the steps with these states: softmax(-distance / temperature)."""
        scores = -self.distances(states) / self.temperature
        odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return odds / odds.sum(axis=-1, keepdims=True)

    def weights(self, states: Float[np.ndarray, "R D"]) -> Float[np.ndarray, " R"]:
        """Return the share of the neighbours at the steps with these states (Dai et al. 2023)."""
        return self.weight * np.maximum(0.0, 1.0 - self.distances(states).min(axis=-1) / self.reach)

    def mix(self, log_probs: Float[np.ndarray, "R V"], states: Float[np.ndarray, "R D"]) -> Float[np.ndarray, "R V"]:
        """Return the mixture of the model's distribution and that of the neighbours, as log-probabilities.

        The probability of a token is that of all keys with it as their value. Impossible tokens stay impossible.

        Args:
            log_probs: The model's log-probabilities; minus infinity for tokens that are not allowed.
            states: The decoder states that they were computed from.
        """
        of_tokens = np.zeros(log_probs.shape)
        for value, of_key in zip(self.values, self.probabilities(states).T, strict=True):
            of_tokens[:, value] += of_key
        weights = self.weights(states)[:, None]
        mixed = (1 - weights) * np.exp(log_probs.astype(np.float64)) + weights * of_tokens
        with np.errstate(divide="ignore"):
            return np.where(np.isneginf(log_probs), -np.inf, np.log(mixed)).astype(log_probs.dtype)


def mix_rows(
    log_probs: Float[np.ndarray, "R V"], states: Float[np.ndarray, "R D"], neighbours: Sequence[Neighbours | None]
) -> Float[np.ndarray, "R V"]:
    """Return log-probabilities with the mixture of each row that has neighbours; see `Neighbours.mix`."""
    mixed = log_probs.copy()
    for row, own in enumerate(neighbours):
        if own is not None:
            mixed[row] = own.mix(log_probs[row : row + 1], states[row : row + 1])[0]
    return mixed

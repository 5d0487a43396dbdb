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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

TEMPERATURE = 0.1
"""Temperature of the softmax over squared distances, in mean squared lengths of the keys, so that it fits any model."""

NEAR = 0.5
"""Similarity from which the automatic weight grows."""
MOST_WEIGHT = 0.7
"""The automatic weight at a similarity of 1."""


class Pair(NamedTuple):
    """A similar source and its translation, as tokens that end in `eos_id`."""

    source: tuple[int, ...]
    target: tuple[int, ...]


def automatic_weight(similarity: float) -> float:
    """Return the weight of neighbours of which the most similar has this similarity, the share of equal words.

    >>> automatic_weight(0.4), round(automatic_weight(0.75), 3)
    (0.0, 0.35)
    """
    return MOST_WEIGHT * max(0.0, (similarity - NEAR) / (1 - NEAR))


@dataclass(frozen=True)
class Neighbours:
    """The retrieved pairs of a sentence."""

    pairs: tuple[Pair, ...]
    """At least one, the most similar first."""
    weight: float
    """Share of their distribution in the mixture, above 0 and below 1."""
    keys: Float[np.ndarray, "N D"] | None = None
    """Decoder states at the steps that write the targets, one after another; None before `Engine.with_keys`."""

    @property
    def values(self) -> Int[np.ndarray, " N"]:
        """The target token that belongs to each key."""
        return np.concatenate([pair.target for pair in self.pairs]).astype(np.int32)

    @property
    def temperature(self) -> float:
        """The divisor of squared distances."""
        assert self.keys is not None
        return TEMPERATURE * float(np.mean(np.sum(np.square(self.keys, dtype=np.float64), axis=1)))

    def probabilities(self, states: Float[np.ndarray, "R D"]) -> Float[np.ndarray, "R N"]:
        """Return the probability of each key at the steps with these states: softmax(-distance ** 2 / temperature)."""
        assert self.keys is not None
        differences = states[:, None].astype(np.float64) - self.keys
        scores = -np.square(differences).sum(axis=-1) / self.temperature
        odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return odds / odds.sum(axis=-1, keepdims=True)

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
        mixed = (1 - self.weight) * np.exp(log_probs.astype(np.float64)) + self.weight * of_tokens
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

"""Neighbours from a memory at each step of a translation: probability of the token written, and the pair it is from.

Shapes: T target tokens, N keys of the neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearhead.config import DecodeChanges
from clearhead.decoding import Engine
from clearhead.decoding.neighbour_keys import with_keys
from clearhead.decoding.neighbours import Neighbours, Pair
from clearhead.decoding.sentence import Sentence
from clearhead.translation.memory import Retrieve
from clearhead.translation.options import TranslateOptions
from clearhead.translation.result import MemoryMatch
from clearhead.translation.retrieval import consults
from clearhead.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class NeighbourStep:
    """Probability of the token written at a step, given by the neighbours."""

    probability: float
    """Probability of the token written among the neighbours alone."""
    pair: int | None
    """The pair, counted from 0, that gives it most of that; None if no pair has the token, or none is near."""
    weight: float
    """Share of the neighbours in the mixture at this step."""


@dataclass(frozen=True, slots=True)
class ConsultedMemory:
    """The pairs that the model consulted for a line."""

    pairs: tuple[MemoryMatch, ...]
    """The pairs, the most similar first."""
    weight: float
    """Share of their probabilities in the mixture, at most."""
    steps: tuple[NeighbourStep, ...]
    """One for each target token."""

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "pairs": [
                {"source": pair.source, "target": pair.target, "similarity": pair.similarity} for pair in self.pairs
            ],
            "weight": round(self.weight, 6),
            "steps": [
                {"probability": round(step.probability, 6), "pair": step.pair, "weight": round(step.weight, 6)}
                for step in self.steps
            ],
        }


@dataclass(frozen=True, slots=True)
class ConsultedPairs:
    """The pairs that a search consults, tokenized and as text."""

    neighbours: Neighbours
    """With keys."""
    matches: list[MemoryMatch]

    def over(self, engine: Engine, source: list[int], target: list[int]) -> ConsultedMemory:
        """Return the probabilities that the neighbours give the tokens of a target.

        Args:
            engine: The model, which computed the keys.
            source: Source ids.
            target: Target ids.
        """
        own = self.neighbours
        assert own.keys is not None
        (states,) = engine.decoder_states([Pair(tuple(source), tuple(target))])
        pair_of_key = np.repeat(np.arange(len(own.pairs)), [len(pair.target) for pair in own.pairs])
        steps = []
        for token, of_keys, weight in zip(target, own.probabilities(states), own.weights(states).tolist(), strict=True):
            of_pairs = np.bincount(pair_of_key, of_keys * (own.values == token))
            pair = int(of_pairs.argmax()) if weight and of_pairs.any() else None
            steps.append(NeighbourStep(float(of_pairs.sum()), pair, weight))
        return ConsultedMemory(tuple(self.matches), own.weight, tuple(steps))


def consulted_pairs(
    translator: Translator, text: str, retrieve: Retrieve | None, settings: DecodeChanges
) -> ConsultedPairs | None:
    """Return the pairs that the translation of a line consults; None if it consults none.

    Args:
        translator: The model.
        text: The line, which is neither split nor normalized.
        retrieve: Returns the pairs of a memory most similar to a text, if there is a memory.
        settings: Decode settings.

    Raises:
        ConfigError: If `memory_weight` is set, and the model cannot consult a memory.
    """
    config = translator.decode_config({**settings, "split": "never", "familiar": False})
    if retrieve is None or not translator.config.num_decoder_layers:
        return None
    engine = translator.engines.of("fp32")
    if not consults(engine, config):
        return None
    [line] = translator.preprocessor([text], config, "", TranslateOptions())
    neighbours, matches = translator.find_neighbours.found(line.segments[0], retrieve, config)
    if neighbours is None:
        return None
    [sentence] = with_keys([Sentence(0, (), 1, neighbours=neighbours)], engine.keys_of)
    assert sentence.neighbours is not None
    return ConsultedPairs(sentence.neighbours, matches)

"""Token probabilities of every target token, at the output and after each layer (the "logit lens").

Shapes: T target tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clearhead.decoding.best_tokens import best_tokens
from clearhead.inspection.tokens import Reader

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from clearhead.model.transformer import Transformer

NUM_CANDIDATES = 5
"""Number of most probable tokens shown at each step."""

NUM_LENS_CANDIDATES = 3
"""Number of most probable tokens shown after a layer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the most probable tokens at a step."""

    token: str
    probability: float


@dataclass(frozen=True, slots=True)
class Step:
    """The choice of one target token."""

    token: str
    """The token written."""
    probability: float
    """Its probability given the source and the target tokens before it."""
    candidates: tuple[Candidate, ...]
    """The most probable tokens, best first; the one written need not be among them."""
    entropy: float = 0.0
    """Entropy of the distribution over the whole vocabulary, in nats; 0 is certainty, ln V is uniform."""
    rank: int = 1
    """Number of tokens that are at least as probable as the one written, itself included."""


@dataclass(frozen=True, slots=True)
class LensStep:
    """The prediction from the state after one layer."""

    probability: float
    """Probability of the token written in the end."""
    rank: int
    """Number of tokens that are at least as probable as the one written, itself included."""
    candidates: tuple[Candidate, ...]
    """The most probable tokens, best first."""


def steps_of(
    reader: Reader, target_ids: Sequence[int], log_probs: Float[np.ndarray, "T V"], *, top: int = NUM_CANDIDATES
) -> list[Step]:
    """Return the choice of every target token.

    The distribution is the model's own, special tokens included: the search skips <pad> and <s> even if they are the
    most probable.

    Args:
        reader: Converts tokens to text.
        target_ids: The tokens written.
        log_probs: Log-probability of every token at every step.
        top: Number of candidates per step.
    """
    written, ranks = _written(target_ids, log_probs)
    # 0 log 0 is 0, also where a logit is minus infinity.
    entropies = -np.sum(np.exp(log_probs) * log_probs, axis=-1, where=log_probs > -np.inf)
    return [
        Step(token, probability, candidates, entropy, rank)
        for token, probability, candidates, entropy, rank in zip(
            reader.pieces(target_ids),
            written,
            _candidates(reader, log_probs, top),
            entropies.tolist(),
            ranks,
            strict=True,
        )
    ]


def lens(
    model: Transformer, reader: Reader, target_ids: Sequence[int], states: Sequence[Float[Tensor, "T D"]]
) -> list[list[LensStep]]:
    """Return the prediction of each layer: its states through the final norm and the output matrix.

    From nostalgebraist (2020), "interpreting GPT: the logit lens". A post-norm model has no final norm to apply.

    Args:
        model: The model that computed the states.
        reader: Converts tokens to text.
        target_ids: The tokens written.
        states: States as in `HiddenStates.decoder`: the embedded tokens, then the output of each layer, the last after
            the final norm.

    Returns:
        For each of the states, one entry per target token; the last are the steps of the model.
    """
    layers = []
    for place, state in enumerate(states):
        is_last = place == len(states) - 1
        normed = state if is_last else model.decoder.final_norm(state)
        log_probs = model.logits(normed).float().log_softmax(dim=-1).numpy(force=True)  # (T, V), one layer at a time
        written, ranks = _written(target_ids, log_probs)
        candidates = _candidates(reader, log_probs, NUM_LENS_CANDIDATES)
        layers.append([LensStep(*values) for values in zip(written, ranks, candidates, strict=True)])
    return layers


def _written(target_ids: Sequence[int], log_probs: Float[np.ndarray, "T V"]) -> tuple[list[float], list[int]]:
    """Return probability and rank of the tokens written."""
    own = np.take_along_axis(log_probs, np.array(target_ids, dtype=np.int64)[:, None], axis=-1)
    return np.exp(own)[:, 0].tolist(), (log_probs >= own).sum(axis=-1).tolist()


def _candidates(reader: Reader, log_probs: Float[np.ndarray, "T V"], top: int) -> list[tuple[Candidate, ...]]:
    best, tokens = best_tokens(log_probs, min(top, log_probs.shape[-1]))
    return [
        tuple(Candidate(piece, value) for piece, value in zip(reader.pieces(ids), values, strict=True))
        for ids, values in zip(tokens.tolist(), np.exp(best).tolist(), strict=True)
    ]

"""How sure a model was of every target token, at the end and behind each layer (the "logit lens").

Shapes: T target tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.inspection.tokens import Reader
from clearhead.model.transformer import Transformer

__all__ = ["NUM_CANDIDATES", "Candidate", "LensStep", "Step", "lens", "steps_of"]

NUM_CANDIDATES = 5
"""Most probable tokens shown at each step."""

NUM_LENS_CANDIDATES = 3
"""Most probable tokens shown behind a layer."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token the model might have written."""

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
    """Of the distribution over the whole vocabulary, in nats; 0 is certain, ln V is no idea."""
    rank: int = 1
    """How many tokens were at least as probable as the one written, itself among them."""


@dataclass(frozen=True, slots=True)
class LensStep:
    """What the state behind a layer would have written."""

    probability: float
    """Of the token that was written in the end."""
    rank: int
    """As of `Step`."""
    candidates: tuple[Candidate, ...]
    """The most probable tokens, best first."""


def steps_of(
    reader: Reader, target_ids: Sequence[int], log_probs: Float[Tensor, "T V"], *, top: int = NUM_CANDIDATES
) -> list[Step]:
    """Return the choice of every target token.

    The distribution is the model's own, special tokens included: the search passes over <pad> and <s> even where they
    lead.

    Args:
        reader: Reads the tokens.
        target_ids: The tokens written.
        log_probs: Of every token at every step.
        top: Candidates of a step.
    """
    written, ranks = _written(target_ids, log_probs)
    # 0 log 0 is 0, also where a logit is minus infinity.
    entropies = -(log_probs.exp() * log_probs).nan_to_num(nan=0.0).sum(dim=-1)
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
    """Return what each layer would have written: its states through the final norm and the output matrix.

    From nostalgebraist (2020), "interpreting GPT: the logit lens". With post-norm there is no final norm to go through.

    Args:
        model: Whose states they are.
        reader: Reads the tokens.
        target_ids: The tokens written.
        states: As of `HiddenStates.decoder`: the embedded tokens, what each layer makes of them, the last behind the
            final norm.

    Returns:
        For each of the states, for each target token; the last are the steps of the model.
    """
    found = []
    for place, state in enumerate(states):
        is_last = place == len(states) - 1
        normed = state if is_last else model.decoder.final_norm(state)
        log_probs = model.logits(normed).float().log_softmax(dim=-1)  # (T, V): of one layer at a time
        written, ranks = _written(target_ids, log_probs)
        candidates = _candidates(reader, log_probs, NUM_LENS_CANDIDATES)
        found.append([LensStep(*values) for values in zip(written, ranks, candidates, strict=True)])
    return found


def _written(target_ids: Sequence[int], log_probs: Float[Tensor, "T V"]) -> tuple[list[float], list[int]]:
    """Return probability and rank of the tokens written."""
    ids: Int[Tensor, "T 1"] = torch.tensor(list(target_ids), device=log_probs.device)[:, None]
    own = log_probs.gather(-1, ids)
    return own.exp()[:, 0].tolist(), (log_probs >= own).sum(dim=-1).tolist()


def _candidates(reader: Reader, log_probs: Float[Tensor, "T V"], top: int) -> list[tuple[Candidate, ...]]:
    best = log_probs.topk(min(top, log_probs.size(-1)), dim=-1)
    return [
        tuple(Candidate(piece, value) for piece, value in zip(reader.pieces(ids), values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
    ]

"""Records of a beam search: the candidates of every step and what became of them.

Shapes: B open sentences, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

Fate = Literal["kept", "finished", "beam", "late end"]
"""What became of a candidate. "kept": still open. "finished": it ended and is a finished hypothesis. "beam": dropped,
because K better ones stay open. "late end": it ended, but was not among the K best of its step."""


Ending = Literal["", "hopeless", "limit"]


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate: a hypothesis of the previous step, extended by one token."""

    beam: int
    """Rank of the extended hypothesis in the previous step, 0 for the best."""
    token: int
    log_prob: float
    """Log-probability of the token, in nats."""
    score: float
    """Log-probability of the extended hypothesis, in nats, by which the search ranks it."""
    fate: Fate
    becomes: int | None
    """Its rank among the open hypotheses after this step, 0 for the best; None if it is not one of them."""


@dataclass(frozen=True, slots=True)
class BeamStep:
    """One search step of one sentence."""

    sentence: int
    """Index of the sentence in the sources."""
    length: int
    """Length of the candidates, in tokens."""
    candidates: tuple[Considered, ...]
    """The candidates, best first."""
    ending: Ending
    """Why the search of the sentence ended after this step. "hopeless": no open hypothesis could win any more. "limit":
    the length limit was reached. Empty if the search continues."""


BeamObserver = Callable[[BeamStep], None]


def considered(
    beams: Int[Tensor, "B candidates"],
    ids: Int[Tensor, "B candidates"],
    scores: Float[Tensor, "B candidates"],
    log_probs: Float[Tensor, "B K V"],
    kept: Int[Tensor, "B K"],
    *,
    eos_id: int,
) -> list[tuple[Considered, ...]]:
    """Return the candidates of every open sentence, without those of probability zero.

    Args:
        beams: The hypothesis that each candidate extends.
        ids: The next token of each candidate.
        scores: The log-probability of each candidate, best first.
        log_probs: Log-probability of every token after every hypothesis.
        kept: Indices of the candidates that stay open.
        eos_id: The end token.
    """
    return [
        considered_of_sentence(
            beams[row].tolist(),
            ids[row].tolist(),
            scores[row].tolist(),
            log_probs[row],
            kept_places,
            size=len(kept_places),
            eos_id=eos_id,
        )
        for row, kept_places in enumerate(kept.tolist())
    ]


def considered_of_sentence(
    beams: Sequence[int],
    ids: Sequence[int],
    scores: Sequence[float],
    log_probs: Any,
    kept: Sequence[int],
    *,
    size: int,
    eos_id: int,
) -> tuple[Considered, ...]:
    """Return the candidates of one sentence, as `considered`, of `size` beams; `log_probs` is an array or a tensor."""
    becomes = {place: beam for beam, place in enumerate(kept)}
    found = []
    for place, (beam, token, score) in enumerate(zip(beams, ids, scores, strict=True)):
        if score == float("-inf"):
            continue
        fate: Fate
        if token == eos_id:
            fate = "finished" if place < size else "late end"
        else:
            fate = "kept" if place in becomes else "beam"
        beam_after = becomes[place] if fate == "kept" else None
        found.append(Considered(beam, token, float(log_probs[beam, token]), score, fate, beam_after))
    return tuple(found)

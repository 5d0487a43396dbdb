"""What a beam search looked at, step by step, for whoever wants to see it as it was.

Shapes: B open sentences, K beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["BeamObserver", "BeamStep", "Considered", "Ending", "Fate", "considered"]

Fate = Literal["kept", "finished", "beam", "late end"]
"""What became of a candidate: it went on; it ended and is a finished hypothesis; more than K went on before it; it
ended, but was not among the K best of its step."""


Ending = Literal["", "hopeless", "limit"]


@dataclass(frozen=True, slots=True)
class Considered:
    """A candidate: a hypothesis of the step before and the token that would come next."""

    beam: int
    """The hypothesis, counted from the best of the step before."""
    token: int
    log_prob: float
    """Of the token, in nats."""
    score: float
    """Of the hypothesis with it: the log-probability that the search ranks it by."""
    fate: Fate
    becomes: int | None
    """Its place among the hypotheses that go on, best first; None if it does not."""


@dataclass(frozen=True, slots=True)
class BeamStep:
    """One step of one sentence."""

    sentence: int
    """Its number among the sources."""
    length: int
    """Tokens of the candidates."""
    candidates: tuple[Considered, ...]
    """Best first."""
    ending: Ending
    """Why the sentence is done after this step: nothing open could win any more, or the length limit was reached;
    empty if it goes on."""


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
    """Return the candidates of every open sentence, those that are impossible left out.

    Args:
        beams: The hypothesis each goes on from.
        ids: Its next token.
        scores: Its log-probability, best first.
        log_probs: Of every token after every hypothesis.
        kept: Places of those that go on.
        eos_id: The end token.
    """
    found = []
    for row, kept_places in enumerate(kept.tolist()):
        becomes = {place: beam for beam, place in enumerate(kept_places)}
        some = []
        for place, (beam, token, score) in enumerate(
            zip(beams[row].tolist(), ids[row].tolist(), scores[row].tolist(), strict=True)
        ):
            if score == float("-inf"):
                continue
            fate: Fate
            if token == eos_id:
                fate = "finished" if place < len(kept_places) else "late end"
            else:
                fate = "kept" if place in becomes else "beam"
            beam_after = becomes[place] if fate == "kept" else None
            some.append(Considered(beam, token, log_probs[row, beam, token].item(), score, fate, beam_after))
        found.append(tuple(some))
    return found

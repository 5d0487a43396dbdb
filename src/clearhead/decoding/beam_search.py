"""Beam search with a length penalty (paper section 6.1), step by step; every step can be observed.

Shapes: K beams, V vocabulary, R rows (the open hypotheses of all sentences).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from clearhead.config import DecodeConfig
from clearhead.decoding.beam_state import SearchState
from clearhead.decoding.best_tokens import best_continuations
from clearhead.decoding.engine import Candidates, Engine, leave_slot, rows_of
from clearhead.decoding.rules import (
    NO_NUMBERS,
    Hypothesis,
    SearchOptions,
    can_win,
    first_token,
    rank_penalty,
    score_to_beat,
)
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ModelError

if TYPE_CHECKING:
    from jaxtyping import Float

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
    """Number of the sentence."""
    length: int
    """Length of the candidates, in tokens."""
    candidates: tuple[Considered, ...]
    """The candidates, best first."""
    ending: Ending
    """Why the search of the sentence ended after this step. "hopeless": no open hypothesis could win any more. "limit":
    the length limit was reached. Empty if the search continues."""


BeamObserver = Callable[[BeamStep], None]


def beam_search(
    engine: Engine,
    sentences: Sequence[Sentence],
    config: DecodeConfig,
    *,
    num_best: int = 1,
    observer: BeamObserver | None = None,
) -> list[list[Hypothesis]]:
    """Return the translations with the best log-probability divided by length penalty.

    Every step keeps the `beam_size` best candidates. A candidate that ends is finished and frees its place for the next
    best one. The search of a sentence stops when no open hypothesis can still enter its `num_best` finished ones
    (`rules.can_win`).

    `translate` runs its fast twin, `beam_state.SearchedSentence`; with `plain=True` and `--plain`, and where `explain`
    records a search, this one. tests/unit/decoding/test_beam_state.py holds them equal.

    Args:
        engine: An engine in fp32; `PlainEngine` computes by the code of `Transformer`.
        sentences: The sentences; all are in flight at once.
        config: Settings of the search.
        num_best: Hypotheses returned for each sentence, best first; at most `beam_size`.
        observer: Called with every step of every sentence, if given; it does not change the result.

    Raises:
        ConfigError: If `num_best` is not between 1 and `beam_size`.
        ModelError: If the model's probabilities are not numbers.
    """
    SearchOptions(config, num_best)  # refuses a number that the beam does not have
    model = engine.model.config
    allowed = AllowedTokens.of(model, config, engine.parts)
    slots = engine.slots(config.beam_size, len(sentences))
    slots.enter(slots.encode(sentences))
    searches = [SearchState.begin(sentence, first_token(model, sentence.source), allowed) for sentence in sentences]
    active = list(searches)  # by slot
    while active:
        log_probs = slots.log_probs(active)  # (R, V)
        if np.isnan(log_probs.max()):
            raise ModelError(NO_NUMBERS)
        # At most K of the best 2 K end, so the K best open ones are always among them.
        best = best_continuations(active, log_probs, config.beam_size, most=2 * config.beam_size)
        for searched, candidates, rows in zip(active, best, rows_of(active), strict=True):
            step = _advance(searched, candidates, log_probs[rows], config, num_best, model.eos_id)
            if observer is not None:
                observer(step)
        for slot in reversed(range(len(active))):
            if not active[slot].is_open:
                leave_slot(slot, active)
                slots.leave(slot)
    if not all(searched.finished for searched in searches):
        raise ModelError(NO_NUMBERS)
    return [searched.best(num_best) for searched in searches]


def _advance(
    searched: SearchState,
    candidates: Candidates,
    log_probs: Float[np.ndarray, "K V"],
    config: DecodeConfig,
    num_best: int,
    eos_id: int,
) -> BeamStep:
    """Extend the hypotheses of a sentence by the best candidates, or none if its search ends; return the step."""
    size, max_length = config.beam_size, searched.sentence.max_length
    searched.length += 1
    considered: list[Considered] = []
    kept: list[Considered] = []
    for score, beam, token in candidates:
        if score == float("-inf"):  # so are all after it
            break
        becomes: int | None = None
        fate: Fate = "beam"
        if token == eos_id:
            fate = "finished" if len(considered) < size else "late end"
        elif len(kept) < size:
            becomes, fate = len(kept), "kept"
        candidate = Considered(beam, token, float(log_probs[beam, token]), score, fate, becomes)
        considered.append(candidate)
        if fate == "kept":
            kept.append(candidate)
        elif fate == "finished":
            searched.finish(beam, eos_id, score, rank_penalty(searched.length, config))
    to_beat = score_to_beat(searched.finished, num_best)
    goes_on = bool(kept) and can_win(kept[0].score, rank_penalty(max_length, config), to_beat)
    ending: Ending = "limit" if searched.length == max_length else "" if goes_on else "hopeless"
    still_open = [] if ending else kept
    searched.extend(
        [candidate.score for candidate in still_open],
        [candidate.beam for candidate in still_open],
        [candidate.token for candidate in still_open],
    )
    return BeamStep(searched.sentence.number, searched.length, tuple(considered), ending)

"""Grid beam search: translations that contain required terms (Hokamp and Liu 2017; Post and Vilar 2018).

A hypothesis that has begun a required term is less probable than one that has not, and would be dropped from a
common beam. So there is one beam for each number of required tokens still missing, and hypotheses compete only within
their beam. Each may be extended by the tokens that the model finds best, and by each token that begins or continues a
term. The model thus chooses where the term goes. `token_masks` prevents a hypothesis from ending before it has
all of them.

Shapes: R rows (the open hypotheses of all slots), V vocabulary, C candidates of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clearhead.decoding.beam_state import SearchState
from clearhead.decoding.best_tokens import best_tokens
from clearhead.decoding.constraints import ANOTHER_WORD, SAME_WORD, Progress, Required
from clearhead.decoding.engine import rows_of
from clearhead.decoding.rules import Hypothesis, SearchOptions, can_win, rank_penalty, score_to_beat
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

if TYPE_CHECKING:
    from jaxtyping import Float


class _Candidate(NamedTuple):
    """A candidate extension of a hypothesis; sorting puts the best first."""

    cost: float
    """Its negative log-probability, in nats."""
    beam: int
    token: int


@dataclass
class ConstrainedSentence(SearchState):
    """The search state of a sentence in flight with required terms."""

    longest_penalty: float
    required: Required
    progress: list[Progress]
    """The required terms found so far, for each open hypothesis."""

    def advance(self, candidates: Sequence[_Candidate], eos_id: int, options: SearchOptions) -> None:
        """Extend the hypotheses by the best candidates of each beam."""
        config, required = options.config, self.required
        self.length += 1
        to_beat = score_to_beat(self.finished, options.num_best)
        width = options.beam_width(required.num_tokens)
        counts: Counter[int] = Counter()
        num_open: Counter[int] = Counter()
        kept: list[_Candidate] = []
        for candidate in sorted(candidates):
            if not can_win(-candidate.cost, self.longest_penalty, to_beat):
                break
            now = self.progress[candidate.beam]
            if candidate.token == eos_id:
                if counts[now.remaining] < config.beam_size:
                    self.finish(candidate.beam, eos_id, -candidate.cost, rank_penalty(self.length, config))
                    to_beat = score_to_beat(self.finished, options.num_best)
                counts[now.remaining] += 1
                continue
            remaining = required.after(now, candidate.token).remaining
            counts[remaining] += 1
            if num_open[remaining] < (width if remaining else config.beam_size):
                num_open[remaining] += 1
                kept.append(candidate)
        is_last, is_given = self.length == self.sentence.max_length, self.length <= self.sentence.prefix.given
        kept = [entry for entry in kept if not is_last and can_win(-entry.cost, self.longest_penalty, to_beat)]
        self.progress = [
            self.progress[beam] if is_given else required.after(self.progress[beam], token) for _, beam, token in kept
        ]
        self.extend([-cost for cost, _, _ in kept], [beam for _, beam, _ in kept], [token for _, _, token in kept])

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first; incomplete ones come last."""

        def order(hypothesis: Hypothesis) -> tuple[int, float]:
            return self.required.progress(hypothesis.tokens[:-1]).remaining, -hypothesis.rank_score

        return sorted(self.finished, key=order)[:num_best]


def begin_constrained(
    sentence: Sentence, bos_id: int, allowed: AllowedTokens, options: SearchOptions
) -> ConstrainedSentence:
    """Return the search state of a sentence before its first target token."""
    longest_penalty, required = rank_penalty(sentence.max_length, options.config), sentence.required
    assert required is not None, "a sentence without terms is searched for as any other"
    own = longest_penalty, required, [required.beginning]
    return ConstrainedSentence.begin(sentence, bos_id, allowed, *own)


def advance_constrained(
    active: Sequence[ConstrainedSentence],
    log_probs: Float[np.ndarray, "R V"],
    options: SearchOptions,
    eos_id: int,
) -> None:
    """Extend every open hypothesis by a token.

    Args:
        active: The sentences in flight.
        log_probs: Log-probability of every token after each hypothesis; minus infinity if it is not allowed.
        options: Options of the search.
        eos_id: The end token.
    """
    for searched, rows in zip(active, rows_of(active), strict=True):
        searched.advance(list(_candidates(searched, log_probs[rows], options.config.beam_size)), eos_id, options)


def _candidates(
    searched: ConstrainedSentence, log_probs: Float[np.ndarray, "R V"], beam_size: int
) -> Iterator[_Candidate]:
    """Yield all candidates that can be among the best of their beams, and few others.

    Tokens in no term lead from a hypothesis to the same beam, so the best of them are enough. The exception is a
    term that is complete only if its word ends there: tokens that begin a word then lead to another beam.
    """
    required = searched.required
    totals = np.array(searched.scores, dtype=np.float32)[:, None] + log_probs
    count = beam_size + 1 + max(len(state.next_tokens) for state in searched.progress)
    best, tokens = best_tokens(totals, count)  # (R, C)
    for beam, (progress, scores, ids) in enumerate(zip(searched.progress, best.tolist(), tokens.tolist(), strict=True)):
        score_of = dict(zip(ids, scores, strict=True))
        needed = list(progress.next_tokens)
        score_of.update(zip(needed, totals[beam, needed].tolist(), strict=True))
        if required.after(progress, ANOTHER_WORD).remaining < required.after(progress, SAME_WORD).remaining:
            others = np.where(required.edges.continues, np.float32(-np.inf), totals[beam])
            (scores,), (ids,) = (x.tolist() for x in best_tokens(others[None], count))
            score_of.update(zip(ids, scores, strict=True))
        yield from (_Candidate(-score, beam, token) for token, score in score_of.items() if score > float("-inf"))

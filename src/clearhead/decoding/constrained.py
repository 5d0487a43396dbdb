"""Grid beam search: the best translations that contain what they must (Hokamp and Liu 2017; Post and Vilar 2018).

A hypothesis that has begun a form of a term is less probable than one that has not, and in one beam the latter would
drive it out. So there is a beam for each number of tokens of forms that are still to come, and hypotheses compete with
those alone that have come as far. Every one may go on with what the model finds best, and with each token that begins or
goes on with a form: where the form goes is the model's choice. `allowed` lets none end before it has all of them.

Shapes: R rows (the open hypotheses of all slots), V vocabulary, C candidates of a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.decoding.allowed import AllowedTokens
from clearhead.decoding.engine import Beams
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.required import ANOTHER_WORD, SAME_WORD, Required
from clearhead.decoding.rules import can_win, rank_penalty, score_to_beat
from clearhead.decoding.search import SearchOptions
from clearhead.decoding.sentence import Sentence

__all__ = ["ConstrainedSentence", "advance_constrained", "begin_constrained", "num_beams"]

MOST_HYPOTHESES = 32
"""Of a sentence in flight, in all of its beams, unless a single beam has more."""


class _Candidate(NamedTuple):
    """How a hypothesis may go on; the best is the first of several that are sorted."""

    cost: float
    """Its log-probability, with the other sign."""
    beam: int
    token: int
    remaining: int
    """Tokens of forms that are then still to come."""


@dataclass
class ConstrainedSentence(Beams):
    """A sentence in flight whose translation must contain something."""

    sentence: Sentence
    allowed: AllowedTokens
    longest_penalty: float
    written: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    """The tokens of each open hypothesis."""
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, candidates: Sequence[_Candidate], eos_id: int, options: SearchOptions) -> None:
        """Take the best candidates of each beam."""
        config = options.config
        self.length += 1
        most = 1 + _num_tokens(self.sentence)
        num_beams = min(options.num_beams, most)
        beams: defaultdict[int, list[_Candidate]] = defaultdict(list)
        for one in sorted(candidates):
            beams[one.remaining * num_beams // most].append(one)
        kept: list[_Candidate] = []
        for found in beams.values():
            open_ones = 0
            for rank, one in enumerate(found):
                if open_ones == config.beam_size:
                    break
                if one.token != eos_id:
                    kept.append(one)
                    open_ones += 1
                elif rank < config.beam_size:
                    tokens, was_ended = (*self.written[one.beam], eos_id), self.masks[one.beam] is self.allowed.end
                    rank_score = -one.cost / rank_penalty(self.length, config)
                    self.finished.append(Hypothesis(tokens, -one.cost, rank_score, was_ended))
        to_beat = score_to_beat(self.finished, options.num_best)
        is_last = self.length == self.sentence.max_length
        kept = [one for one in kept if not is_last and can_win(-one.cost, self.longest_penalty, to_beat)]
        is_given = self.length <= self.sentence.prefix.given
        self.scores = [0.0 if is_given else -one.cost for one in kept]
        self.parents, self.newest = [one.beam for one in kept], [one.token for one in kept]
        self.written = [(*self.written[one.beam], one.token) for one in kept]
        self.masks = [self.allowed.after(tokens, self.sentence) for tokens in self.written]

    def stop(self) -> None:
        """Have none go on."""
        self.scores = []

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best hypotheses that have ended, best first; those that lack something come last."""

        def order(one: Hypothesis) -> tuple[int, float]:
            return _remaining(self.sentence, one.tokens[:-1]), -one.rank_score

        return sorted(self.finished, key=order)[:num_best]


def num_beams(required: Sequence[Required], beam_size: int) -> int:
    """Return how many beams sentences need that must contain this, and may have; 1 if they need not contain anything.

    Args:
        required: Of the sentences.
        beam_size: Hypotheses of each beam.
    """
    most = max((one.num_tokens for one in required), default=0)
    return 1 if most == 0 else min(1 + most, max(2, MOST_HYPOTHESES // beam_size))


def begin_constrained(
    sentence: Sentence, bos_id: int, allowed: AllowedTokens, options: SearchOptions
) -> ConstrainedSentence:
    """Return a sentence whose translation is still empty."""
    masks, longest_penalty = [allowed.after((), sentence)], rank_penalty(sentence.max_length, options.config)
    return ConstrainedSentence([0.0], [bos_id], [0], masks, 0, sentence, allowed, longest_penalty)


def advance_constrained(
    active: Sequence[ConstrainedSentence],
    log_probs: Float[Tensor, "R V"],
    options: SearchOptions,
    eos_id: int,
) -> None:
    """Take every open hypothesis a token further.

    Args:
        active: The sentences in flight.
        log_probs: Of every token after each hypothesis; minus infinity of those that may not come.
        options: What to search for.
        eos_id: The token that ends.
    """
    if not log_probs.amax(dim=-1).isfinite().all():  # they are no numbers
        for searched in active:
            searched.stop()
        return
    first = 0
    for searched in active:
        last = first + len(searched.scores)
        rows = log_probs[first:last]
        searched.advance(list(_candidates(searched, rows, options.config.beam_size)), eos_id, options)
        first = last


def _candidates(
    searched: ConstrainedSentence, log_probs: Float[Tensor, "R V"], beam_size: int
) -> Iterator[_Candidate]:
    """Yield all candidates that can be among the best of their beams, and few others.

    The tokens that no form needs lead from a hypothesis to the same beam, so the best of them are enough; to two beams
    where a form is complete that counts only if its word ends there.
    """
    sentence, required = searched.sentence, searched.sentence.required
    totals = torch.tensor(searched.scores, device=log_probs.device)[:, None] + log_probs
    needed = [_next_tokens(sentence, written) for written in searched.written]
    count = min(beam_size + 1 + max(map(len, needed)), totals.size(1))
    best, tokens = totals.topk(count, dim=-1)  # (R, C)
    for beam, (scores, ids) in enumerate(zip(best.tolist(), tokens.tolist(), strict=True)):
        written = searched.written[beam]
        found = dict(zip(ids, scores, strict=True))
        found.update(zip(needed[beam], totals[beam, list(needed[beam])].tolist(), strict=True))
        otherwise = [_remaining(sentence, (*written, token)) for token in (ANOTHER_WORD, SAME_WORD)]
        if required is None:
            yield from (_Candidate(-score, beam, token, 0) for token, score in found.items() if score > float("-inf"))
            continue
        if otherwise[0] != otherwise[1]:
            goes_on = torch.from_numpy(required.edges.continues).to(totals.device)
            for half in (goes_on, ~goes_on):
                scores, ids = (x.tolist() for x in totals[beam].masked_fill(~half, float("-inf")).topk(count))
                found.update(zip(ids, scores, strict=True))
        for token, score in found.items():
            if score > float("-inf"):
                if token in required.tokens:
                    then = _remaining(sentence, (*written, token))
                else:
                    then = otherwise[int(required.edges.continues[token])]
                yield _Candidate(-score, beam, token, then)


def _num_tokens(sentence: Sentence) -> int:
    return 0 if sentence.required is None else sentence.required.num_tokens


def _remaining(sentence: Sentence, written: tuple[int, ...]) -> int:
    return 0 if sentence.required is None else sentence.required.progress(written).remaining


def _next_tokens(sentence: Sentence, written: tuple[int, ...]) -> tuple[int, ...]:
    return () if sentence.required is None else sentence.required.progress(written).next_tokens

"""The state of a sentence in flight, its open and finished hypotheses, which each kind of batched search extends.

Here is that of greedy and beam search. Its results equal those of `beam_search.beam_search` and
`sampling.greedy_search`, token for token. A hypothesis that can no longer win is dropped. Hypotheses ranked below it
cannot win either, so its place may stay empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

from clearhead.decoding.engine import Beams, Candidates
from clearhead.decoding.rules import Hypothesis, SearchOptions, can_win, rank_penalty, score_to_beat
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens


@dataclass
class SearchState(Beams):
    """The open and the finished hypotheses of a sentence in flight."""

    sentence: Sentence
    allowed: AllowedTokens
    written: list[tuple[int, ...]]
    """The tokens of each open hypothesis."""
    finished: list[Hypothesis] = field(default_factory=list, init=False)

    @classmethod
    def begin(cls, sentence: Sentence, bos_id: int, allowed: AllowedTokens, *own: Any, count: int = 1) -> Self:
        """Return the state before the first target token.

        Args:
            sentence: The sentence.
            bos_id: The first decoder input.
            allowed: The allowed tokens of the model.
            own: The fields that a subclass adds.
            count: Number of hypotheses.
        """
        masks = [allowed.after((), sentence)] * count
        return cls([0.0] * count, [bos_id] * count, [0] * count, masks, 0, sentence, allowed, [()] * count, *own)

    @property
    def is_open(self) -> bool:
        """Whether any hypothesis is open; if not, the search of the sentence is done."""
        return bool(self.scores)

    def finish(self, beam: int, eos_id: int, score: float, penalty: float) -> None:
        """Add the end token to an open hypothesis.

        Args:
            beam: Index of the hypothesis.
            eos_id: The end token.
            score: Log-probability with the end token, in nats.
            penalty: Divisor of the log-probability, for ranking.
        """
        was_ended = self.masks[beam] is self.allowed.end
        self.finished.append(Hypothesis((*self.written[beam], eos_id), score, score / penalty, was_ended))

    def extend(self, scores: list[float], parents: list[int], newest: list[int]) -> None:
        """Replace the open hypotheses by continuations of them, best first.

        Args:
            scores: Log-probability of each continuation, in nats; control tokens of the prefix cost nothing.
            parents: Index of the hypothesis that each continues.
            newest: The token that each adds.
        """
        self.scores = [0.0] * len(scores) if self.length <= self.sentence.prefix.given else scores
        self.parents, self.newest, before = parents, newest, self.written
        self.written = [(*before[parent], token) for parent, token in zip(parents, newest, strict=True)]
        self.masks = [self.allowed.after(tokens, self.sentence) for tokens in self.written]

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.rank_score)[:num_best]


@dataclass
class SearchedSentence(SearchState):
    """The beam search state of a sentence in flight."""

    longest_penalty: float

    def advance(self, candidates: Candidates, eos_id: int, options: SearchOptions) -> None:
        """Extend the hypotheses by the best candidates; finish the ended ones and drop the hopeless ones."""
        config = options.config
        self.length += 1
        scores: list[float] = []
        parents: list[int] = []
        newest: list[int] = []
        for rank, (score, beam, token) in enumerate(candidates):
            if not score > float("-inf") or len(scores) == config.beam_size:
                if math.isnan(score):  # of any hypothesis: PyTorch counts NaN as the best
                    self.finished.clear()
                break
            if token != eos_id:
                scores.append(score)
                parents.append(beam)
                newest.append(token)
            elif rank < config.beam_size:
                self.finish(beam, eos_id, score, rank_penalty(self.length, config))
        num_open = 0 if self.length == self.sentence.max_length else len(scores)
        if self.finished:  # otherwise there is no score to beat
            to_beat = score_to_beat(self.finished, options.num_best)
            num_open = min(num_open, sum(can_win(score, self.longest_penalty, to_beat) for score in scores))
        self.extend(scores[:num_open], parents[:num_open], newest[:num_open])

"""Open and finished hypotheses of a sentence in flight, the state that each kind of batched search extends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from clearhead.decoding.engine import Beams
from clearhead.decoding.rules import Hypothesis
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

"""Hypotheses of a sentence that do not compete: samples, and those of diverse search.

They share the sentence's slot, and so its encoder output; each has its own beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from clearhead.decoding.engine import Beams
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens


@dataclass
class SeparateHypotheses(Beams):
    """A sentence in flight whose hypotheses do not compete."""

    sentence: Sentence
    allowed: AllowedTokens
    numbers: list[int]
    """Number of each open hypothesis among those of the sentence."""
    written: list[tuple[int, ...]]
    """The tokens of each open hypothesis."""
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, scores: Sequence[float], tokens: Sequence[int], eos_id: int, penalty: float = 1.0) -> None:
        """Add a token to each hypothesis, and finish the ended ones.

        Args:
            scores: Log-probability of each hypothesis, its new token included.
            tokens: The new token of each.
            eos_id: The end token.
            penalty: Divisor of the log-probability of ended hypotheses, for ranking.
        """
        self.length += 1
        for score, token, before, mask in zip(scores, tokens, self.written, self.masks, strict=True):
            if token == eos_id:
                self.finished.append(Hypothesis((*before, eos_id), score, score / penalty, mask is self.allowed.end))
        stay = [place for place, token in enumerate(tokens) if token != eos_id]
        is_given = self.length <= self.sentence.prefix.given
        self.scores = [0.0 if is_given else scores[place] for place in stay]
        self.newest, self.parents = [tokens[place] for place in stay], stay
        self.numbers = [self.numbers[place] for place in stay]
        self.written = [(*self.written[place], tokens[place]) for place in stay]
        self.masks = [self.allowed.after(written, self.sentence) for written in self.written]

    def stop(self) -> None:
        """Drop all open hypotheses."""
        self.scores = []

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the best finished hypotheses, best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.rank_score)[:num_best]


def begin_separately(
    sentence: Sentence, bos_id: int, allowed: AllowedTokens, numbers: Sequence[int]
) -> SeparateHypotheses:
    """Return the search state of a sentence before its first token, with one hypothesis per number."""
    count = len(numbers)
    masks = [allowed.after((), sentence)] * count
    beams = ([0.0] * count, [bos_id] * count, [0] * count, masks, 0)
    return SeparateHypotheses(*beams, sentence, allowed, [*numbers], [()] * count)

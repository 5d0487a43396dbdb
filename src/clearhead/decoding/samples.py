"""Samples of sentences in flight, drawn from the engines' probabilities: what `sampling.sample` draws, token for token.

Samples of a sentence share its slot, a beam each, and so its memory; `TOGETHER` of them at most, for each has a past of
its own.

Shapes: R rows (the open samples of all slots), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config import Sampling
from clearhead.decoding.allowed import AllowedTokens
from clearhead.decoding.engine import Beams
from clearhead.decoding.hypothesis import Hypothesis
from clearhead.decoding.sampling import draw_tokens, seed_of
from clearhead.decoding.sentence import Sentence

__all__ = ["TOGETHER", "SampledSentence", "advance_samples", "begin_samples", "in_groups"]

TOGETHER = 16
"""Samples of a sentence that are drawn at once."""


@dataclass
class SampledSentence(Beams):
    """A sentence of which samples are drawn."""

    sentence: Sentence
    allowed: AllowedTokens
    generators: list[torch.Generator]
    """Of each open sample."""
    written: list[tuple[int, ...]]
    """The tokens of each open sample."""
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, scores: Sequence[float], tokens: Sequence[int], eos_id: int) -> None:
        """Add the tokens that were drawn, and leave out the samples that have ended."""
        self.length += 1
        for score, token, before, mask in zip(scores, tokens, self.written, self.masks, strict=True):
            if token == eos_id:
                self.finished.append(Hypothesis((*before, eos_id), score, score, mask is self.allowed.end))
        stay = [place for place, token in enumerate(tokens) if token != eos_id]
        self.scores, self.newest, self.parents = [scores[p] for p in stay], [tokens[p] for p in stay], stay
        self.generators = [self.generators[place] for place in stay]
        self.written = [(*self.written[place], tokens[place]) for place in stay]
        self.masks = [self.allowed.after(written, self.sentence) for written in self.written]

    def best(self, num_best: int) -> list[Hypothesis]:
        """Return the samples, the most probable first."""
        return sorted(self.finished, key=lambda sample: -sample.rank_score)[:num_best]


def in_groups(sentences: Sequence[Sentence], count: int) -> Iterator[Sentence]:
    """Yield every sentence as often as it takes to draw so many samples of it."""
    for sentence in sentences:
        for first in range(0, count, TOGETHER):
            yield replace(sentence, draws=range(first, min(first + TOGETHER, count)))


def begin_samples(sentence: Sentence, bos_id: int, allowed: AllowedTokens, seed: int) -> SampledSentence:
    """Return a sentence whose samples are still empty."""
    count = len(sentence.draws)
    return SampledSentence(
        scores=[0.0] * count,
        newest=[bos_id] * count,
        parents=[0] * count,
        masks=[allowed.after((), sentence)] * count,
        length=0,
        sentence=sentence,
        allowed=allowed,
        generators=[torch.Generator().manual_seed(seed_of(seed, n, sentence.source)) for n in sentence.draws],
        written=[()] * count,
    )


def advance_samples(
    active: Sequence[SampledSentence], log_probs: Float[Tensor, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    if not log_probs.amax(dim=-1).isfinite().all():  # no numbers: none goes on
        for searched in active:
            searched.scores = []
        return
    generators = [generator for searched in active for generator in searched.generators]
    drawn = draw_tokens(log_probs, generators, sampling)
    scores = torch.tensor([score for searched in active for score in searched.scores], device=drawn.device)
    # In float32, as the compiled core adds up what it scores.
    totals = (scores + log_probs.gather(1, drawn[:, None])[:, 0]).tolist()
    tokens, first = drawn.tolist(), 0
    for searched in active:
        last = first + len(searched.scores)
        searched.advance(totals[first:last], tokens[first:last], eos_id)
        first = last

"""Samples of sentences in flight, drawn from the engines' probabilities: what `sampling.sample` draws, token for token.

`TOGETHER` samples of a sentence at most share a slot, for each has a past of its own.

Shapes: R rows (the open samples of all slots), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config import Sampling
from clearhead.decoding.independent_hypotheses import SeparateHypotheses, begin_separately
from clearhead.decoding.sampling import draw_tokens, seed_of
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

__all__ = ["TOGETHER", "SampledSentence", "advance_samples", "begin_samples", "in_groups"]

TOGETHER = 16
"""Samples of a sentence that are drawn at once."""


@dataclass
class SampledSentence(SeparateHypotheses):
    """A sentence of which samples are drawn."""

    generators: dict[int, torch.Generator] = field(default_factory=dict)
    """Of each sample, by its number."""


def in_groups(sentences: Sequence[Sentence], count: int) -> Iterator[Sentence]:
    """Yield every sentence as often as it takes to draw so many samples of it."""
    for sentence in sentences:
        for first in range(0, count, TOGETHER):
            yield replace(sentence, draws=range(first, min(first + TOGETHER, count)))


def begin_samples(sentence: Sentence, bos_id: int, allowed: AllowedTokens, seed: int) -> SampledSentence:
    """Return a sentence whose samples are still empty."""
    begun = begin_separately(sentence, bos_id, allowed, sentence.draws)
    seeds = {number: seed_of(seed, number, sentence.source) for number in sentence.draws}
    return SampledSentence(**vars(begun), generators={n: torch.Generator().manual_seed(s) for n, s in seeds.items()})


def advance_samples(
    active: Sequence[SampledSentence], log_probs: Float[Tensor, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    if not log_probs.amax(dim=-1).isfinite().all():  # they are no numbers
        for sampled in active:
            sampled.stop()
        return
    generators = [sampled.generators[number] for sampled in active for number in sampled.numbers]
    drawn = draw_tokens(log_probs, generators, sampling)
    scores = torch.tensor([score for sampled in active for score in sampled.scores], device=drawn.device)
    # In float32, as the compiled core adds up what it scores.
    totals = (scores + log_probs.gather(1, drawn[:, None])[:, 0]).tolist()
    tokens, first = drawn.tolist(), 0
    for sampled in active:
        last = first + len(sampled.scores)
        sampled.advance(totals[first:last], tokens[first:last], eos_id)
        first = last

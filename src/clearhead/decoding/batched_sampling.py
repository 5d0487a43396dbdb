"""Batched sampling from the engines' log-probabilities; draws the same tokens as `sampling.sample`.

At most `TOGETHER` samples of a sentence share a slot, because each has its own decoder cache.

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

TOGETHER = 16
"""Samples of one sentence that are drawn at the same time."""


@dataclass
class SampledSentence(SeparateHypotheses):
    """A sentence in flight whose hypotheses are samples."""

    generators: dict[int, torch.Generator] = field(default_factory=dict)
    """The random generator of each sample, by sample number."""


def in_groups(sentences: Sequence[Sentence], count: int) -> Iterator[Sentence]:
    """Yield each sentence repeatedly, with the numbers of at most `TOGETHER` samples, until `count` are covered."""
    for sentence in sentences:
        for first in range(0, count, TOGETHER):
            yield replace(sentence, draws=range(first, min(first + TOGETHER, count)))


def begin_samples(sentence: Sentence, bos_id: int, allowed: AllowedTokens, seed: int) -> SampledSentence:
    """Return the search state of a sentence before its first sampled token."""
    begun = begin_separately(sentence, bos_id, allowed, sentence.draws)
    seeds = {number: seed_of(seed, number, sentence.source) for number in sentence.draws}
    return SampledSentence(**vars(begun), generators={n: torch.Generator().manual_seed(s) for n, s in seeds.items()})


def advance_samples(
    active: Sequence[SampledSentence], log_probs: Float[Tensor, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    if not log_probs.amax(dim=-1).isfinite().all():  # NaN or infinite
        for sampled in active:
            sampled.stop()
        return
    generators = [sampled.generators[number] for sampled in active for number in sampled.numbers]
    drawn = draw_tokens(log_probs, generators, sampling)
    scores = torch.tensor([score for sampled in active for score in sampled.scores], device=drawn.device)
    # Add in float32, as the compiled core does when it scores.
    totals = (scores + log_probs.gather(1, drawn[:, None])[:, 0]).tolist()
    tokens, first = drawn.tolist(), 0
    for sampled in active:
        last = first + len(sampled.scores)
        sampled.advance(totals[first:last], tokens[first:last], eos_id)
        first = last

"""Batched sampling from the engines' log-probabilities; a sample does not depend on the others of its batch.

At most `TOGETHER` samples of a sentence share a slot, because each has its own decoder cache.

Shapes: R rows (the open samples of all slots), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config import Sampling
from clearhead.decoding.independent_hypotheses import SeparateHypotheses
from clearhead.decoding.sampling import draw_tokens, seed_of
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

TOGETHER = 16
"""Samples of one sentence that are drawn at the same time."""


def in_groups(sentences: Sequence[Sentence], count: int) -> Iterator[Sentence]:
    """Yield each sentence repeatedly, with the numbers of at most `TOGETHER` samples, until `count` are covered."""
    for sentence in sentences:
        for first in range(0, count, TOGETHER):
            yield replace(sentence, draws=range(first, min(first + TOGETHER, count)))


def begin_samples(sentence: Sentence, bos_id: int, allowed: AllowedTokens, seed: int) -> SeparateHypotheses:
    """Return the search state of a sentence before its first sampled token."""
    seeds = [seed_of(seed, number, sentence.source) for number in sentence.draws]
    generators: list[torch.Generator | None] = [torch.Generator().manual_seed(one) for one in seeds]
    return SeparateHypotheses.begin(sentence, bos_id, allowed, generators, count=len(generators))


def advance_samples(
    active: Sequence[SeparateHypotheses], log_probs: Float[Tensor, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    generators = [generator for sampled in active for generator in sampled.generators if generator is not None]
    drawn = draw_tokens(log_probs, generators, sampling)
    scores = torch.tensor([score for sampled in active for score in sampled.scores], device=drawn.device)
    # Add in float32, as the compiled core does when it scores.
    totals = (scores + log_probs.gather(1, drawn[:, None])[:, 0]).tolist()
    tokens, first = drawn.tolist(), 0
    for sampled in active:
        last = first + len(sampled.scores)
        sampled.advance(totals[first:last], tokens[first:last], eos_id)
        first = last

"""Batched sampling from the engines' log-probabilities; a sample does not depend on the others of its batch.

At most `TOGETHER` samples of a sentence share a slot, because each has its own decoder cache. A sample has its own
random numbers, one for each token: those of PyTorch's generator with the seed of the sample (`seed_of`), so the plain
form (`sampling.draw_tokens`) draws the same tokens.

Shapes: R rows (the open samples of all slots), T maximum target tokens of a sentence, V vocabulary, C tokens to draw
from.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import Sampling
from clearhead.decoding.independent_hypotheses import SeparateHypotheses
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

if TYPE_CHECKING:
    from jaxtyping import Float, Int

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
    chances = uniform_numbers(seeds, sentence.max_length)
    return SeparateHypotheses.begin(sentence, bos_id, allowed, chances, count=len(chances))


def advance_samples(
    active: Sequence[SeparateHypotheses], log_probs: Float[np.ndarray, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    chances = [own[sampled.length] for sampled in active for own in sampled.chances if own is not None]
    drawn = [draw_token(row, float(chance), sampling) for row, chance in zip(log_probs, chances, strict=True)]
    scores = np.array([score for sampled in active for score in sampled.scores], dtype=np.float32)
    # Add in float32, as the compiled core does when it scores.
    totals, first = (scores + log_probs[np.arange(len(drawn)), drawn]).tolist(), 0
    for sampled in active:
        last = first + len(sampled.scores)
        sampled.advance(totals[first:last], drawn[first:last], eos_id)
        first = last


def seed_of(seed: int, number: int, ids: Sequence[int]) -> int:
    """Return the random seed of one sample of a source."""
    digest = hashlib.blake2b(repr((seed, number, list(ids))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # PyTorch takes signed 64-bit seeds


def uniform_numbers(seeds: Sequence[int], count: int) -> list[Float[np.ndarray, " T"]]:
    """Return for each seed the first numbers, at least 0 and below 1, that `torch.rand` draws with it on a CPU.

    Both generators are the Mersenne Twister. PyTorch takes 32 bits of a seed, and 24 bits of a number.
    """
    generator = np.random.RandomState(0)  # making one takes as long as drawing several hundred numbers
    numbers = []
    for seed in seeds:
        generator.seed(seed % 2**32)
        drawn = generator.randint(2**32, size=count, dtype=np.uint32)
        numbers.append((drawn % 2**24).astype(np.float32) / np.float32(2**24))
    return numbers


def draw_token(log_probs: Float[np.ndarray, " V"], chance: float, sampling: Sampling) -> int:
    """Return the token at which the cumulative probability, of those to draw from, exceeds a uniform number."""
    tokens, weights = likely_tokens(log_probs, sampling)
    cumulative = weights.cumsum()
    return int(tokens[cumulative.searchsorted(chance * cumulative[-1], side="right")])


def likely_tokens(
    log_probs: Float[np.ndarray, " V"], sampling: Sampling
) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, " C"]]:
    """Return the tokens to draw from, ascending, and weights in proportion to their probabilities.

    These are the tokens of at least epsilon, within the top k and the top p, at the temperature; see `Sampling`.
    """
    best = log_probs.max()
    # On the model's own probability, before the temperature. Usually this leaves few tokens, and the rest is fast.
    least = math.log(sampling.epsilon) if sampling.epsilon > 0.0 else np.finfo(log_probs.dtype).min
    tokens = np.flatnonzero(log_probs >= min(best, least))
    with np.errstate(over="ignore"):  # at the lowest temperatures, all but the best are at minus infinity
        scaled = (log_probs[tokens].astype(np.float64) - best) / sampling.temperature
    if 0 < sampling.top_k < len(tokens):
        is_among = scaled >= np.partition(scaled, -sampling.top_k)[-sampling.top_k]
        tokens, scaled = tokens[is_among], scaled[is_among]
    weights = np.exp(scaled)
    if sampling.top_p < 1.0:
        order = np.argsort(-weights, kind="stable")
        cumulative = weights[order].cumsum()
        # A token stays if those before it sum to less than top_p; so the first always stays.
        order = np.sort(order[cumulative - weights[order] < sampling.top_p * cumulative[-1]])
        tokens, weights = tokens[order], weights[order]
    return tokens, weights

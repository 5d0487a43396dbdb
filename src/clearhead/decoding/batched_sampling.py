"""Searches whose hypotheses do not compete: sampling, and diverse beam search; and the choice among samples.

**Sampling** draws from the engines' log-probabilities; a sample does not depend on the others of its batch. At most
`TOGETHER` samples of a sentence share a slot, because each has its own decoder cache. A sample has its own random
numbers, one for each token: those of PyTorch's generator with the seed of the sample (`seed_of`), so the plain form
(`sampling.draw_tokens`) draws the same tokens.

**Diverse beam search** finds n-best translations that differ in more than a comma (Vijayakumar et al. 2018). The paper
splits the beam into groups that choose one after the other at every step. A token is penalized for each earlier group
that has just written it (Hamming diversity). Here each group has one hypothesis, the setting that the paper found most
diverse. So the first hypothesis is that of greedy search. Each other one writes the token with the highest
log-probability minus `diversity` nats per earlier hypothesis that writes it at this step. Scores and ranks use the
model's log-probabilities without the penalty.

**Minimum Bayes risk** takes the sample most similar to all others, the best translation by the model's own distribution
(Kumar and Byrne 2004; with samples both as hypotheses and as references, Eikema and Aziz 2020). Similarity is chrF
(Popović 2015) with sacreBLEU's defaults: the F2 score of character n-grams up to six, without whitespace, averaged over
the orders that both texts have.

Shapes: R rows (the open hypotheses of all slots), T maximum target tokens of a sentence, V vocabulary, C tokens to draw
from, N sentences or texts.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding.beam_state import SearchState
from clearhead.decoding.engine import rows_of
from clearhead.decoding.rules import TOGETHER, rank_penalty
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass
class SeparateHypotheses(SearchState):
    """A sentence in flight whose hypotheses do not compete."""

    chances: list[Float[np.ndarray, " T"] | None]
    """The uniform random numbers of each open hypothesis, one for every token, if it is a sample."""

    def advance(self, scores: Sequence[float], tokens: Sequence[int], eos_id: int, penalty: float = 1.0) -> None:
        """Add a token to each hypothesis, and finish the ended ones.

        Args:
            scores: Log-probability of each hypothesis, its new token included.
            tokens: The new token of each.
            eos_id: The end token.
            penalty: Divisor of the log-probability of ended hypotheses, for ranking.
        """
        self.length += 1
        stay = []
        for place, (score, token) in enumerate(zip(scores, tokens, strict=True)):
            if token == eos_id:
                self.finish(place, eos_id, score, penalty)
            else:
                stay.append(place)
        self.chances = [self.chances[place] for place in stay]
        self.extend([scores[place] for place in stay], stay, [tokens[place] for place in stay])


def in_groups(sentences: Sequence[Sentence], count: int) -> Iterator[Sentence]:
    """Yield each sentence repeatedly, with the numbers of at most `TOGETHER` samples, until `count` are covered."""
    for sentence in sentences:
        for first in range(0, count, TOGETHER):
            yield replace(sentence, draws=range(first, min(first + TOGETHER, count)))


def begin_samples(sentence: Sentence, bos_id: int, allowed: AllowedTokens, seed: int) -> SeparateHypotheses:
    """Return the search state of a sentence before its first sampled token."""
    chances = chances_of(sentence, seed)
    return SeparateHypotheses.begin(sentence, bos_id, allowed, chances, count=len(chances))


def advance_samples(
    active: Sequence[SeparateHypotheses], log_probs: Float[np.ndarray, "R V"], sampling: Sampling, eos_id: int
) -> None:
    """Draw the next token of every open sample."""
    chances = [own[sampled.length] for sampled in active for own in sampled.chances if own is not None]
    drawn = [draw_token(row, float(chance), sampling) for row, chance in zip(log_probs, chances, strict=True)]
    scores = np.array([score for sampled in active for score in sampled.scores], dtype=np.float32)
    # Add in float32, as the compiled core does when it scores.
    totals = (scores + log_probs[np.arange(len(drawn)), drawn]).tolist()
    for sampled, rows in zip(active, rows_of(active), strict=True):
        sampled.advance(totals[rows], drawn[rows], eos_id)


def chances_of(sentence: Sentence, seed: int) -> list[Float[np.ndarray, " T"]]:
    """Return the random numbers of each sample of a sentence, one for every token."""
    return uniform_numbers([seed_of(seed, number, sentence.source) for number in sentence.draws], sentence.max_length)


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


ORDERS = range(1, 7)
RECALL_WEIGHT = 4
"""Beta squared, for the F2 score."""


def expected_chrf(samples: Sequence[str]) -> list[float]:
    """Return the mean chrF of each sample with all the others as its references, from 0 to 100.

    Args:
        samples: At least two; a text counts as often as it was drawn.

    >>> expected_chrf(["a dog", "a dog", "x"])
    [50.0, 50.0, 0.0]
    """
    counts = Counter(samples)  # distinct texts in order of first occurrence
    scores = chrf_of_pairs(list(counts))
    sums = scores @ np.array(list(counts.values())) - scores.diagonal()
    of_text = dict(zip(counts, (sums / (len(samples) - 1)).tolist(), strict=True))
    return [of_text[text] for text in samples]


def chrf_of_pairs(texts: Sequence[str]) -> Float[np.ndarray, "N N"]:
    """Return a matrix with the chrF of every text, one per row, against every text as its reference."""
    texts = ["".join(text.split()) for text in texts]
    lengths = np.array(list(map(len, texts)))
    precision, recall, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in ORDERS:
        totals = np.maximum(lengths - order + 1, 0)
        matches = _matches(texts, order)
        precision += matches / np.maximum(totals, 1)[:, None]
        recall += matches / np.maximum(totals, 1)
        orders += np.minimum(totals[:, None], totals) > 0
    precision, recall = precision / np.maximum(orders, 1), recall / np.maximum(orders, 1)
    weighted = RECALL_WEIGHT * precision + recall
    return 100 * (1 + RECALL_WEIGHT) * precision * recall / np.where(weighted > 0, weighted, 1)


def _matches(texts: Sequence[str], order: int) -> Float[np.ndarray, "N N"]:
    """Return how many n-grams each two texts share, each counted as often as in the text with fewer of it.

    The first, the second, ... occurrence of an n-gram in a text are separate features, so the counts are a matrix
    product. Features of only one text, the great majority, are left out of it.
    """
    columns: dict[Hashable, int] = {}
    features: list[list[int]] = []
    for text in texts:
        times: dict[str, int] = {}
        own = []
        for start in range(len(text) - order + 1):
            ngram = text[start : start + order]
            times[ngram] = seen = times.get(ngram, 0) + 1
            own.append(columns.setdefault(ngram if seen == 1 else (ngram, seen), len(columns)))
        features.append(own)
    lengths = list(map(len, features))
    rows, used = np.repeat(np.arange(len(texts)), lengths), np.array(list(chain.from_iterable(features)), dtype=int)
    is_shared = np.bincount(used, minlength=len(columns)) > 1
    rows, used = rows[is_shared[used]], used[is_shared[used]]
    has = np.zeros((len(texts), np.count_nonzero(is_shared)), dtype=np.float32)
    has[rows, (np.cumsum(is_shared) - 1)[used]] = 1.0
    matches = has @ has.T
    np.fill_diagonal(matches, lengths)
    return matches


def advance_diverse(
    active: Sequence[SeparateHypotheses],
    log_probs: Float[np.ndarray, "R V"],
    diversity: float,
    config: DecodeConfig,
    eos_id: int,
) -> None:
    """Choose the next token of every open hypothesis."""
    chosen = choose_diverse(log_probs, [len(searched.scores) for searched in active], diversity)
    gains, tokens = log_probs[np.arange(len(chosen)), chosen].tolist(), chosen.tolist()
    for searched, rows in zip(active, rows_of(active), strict=True):
        scores = [score + gain for score, gain in zip(searched.scores, gains[rows], strict=True)]
        searched.advance(scores, tokens[rows], eos_id, rank_penalty(searched.length + 1, config))


def choose_diverse(
    log_probs: Float[np.ndarray, "R V"], sizes: Sequence[int], diversity: float
) -> Int[np.ndarray, " R"]:
    """Return the next token of each row.

    Args:
        log_probs: Log-probabilities of all tokens after each row. Rows of a sentence are adjacent, in the order in
            which they choose.
        sizes: Number of rows of each sentence.
        diversity: Penalty in nats on a token for each earlier row of the sentence that has chosen it.
    """
    chosen = np.empty(len(log_probs), dtype=np.int64)
    firsts = np.cumsum([0, *sizes[:-1]])
    penalties = np.zeros((len(sizes), log_probs.shape[1]), dtype=np.float32)  # (N, V)
    for place in range(max(sizes)):
        sentences = np.flatnonzero(np.greater(sizes, place))
        rows = firsts[sentences] + place
        chosen[rows] = tokens = (log_probs[rows] - penalties[sentences]).argmax(axis=1)
        penalties[sentences, tokens] += diversity
    return chosen

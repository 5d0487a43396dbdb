"""Expected chrF of samples, the utility function of minimum Bayes risk decoding.

The sample most similar to all others is the best translation by the model's own distribution (Kumar and Byrne 2004;
with samples both as hypotheses and as references, Eikema and Aziz 2020). Similarity is chrF (Popović 2015) with
sacreBLEU's defaults: the F2 score of character n-grams up to six, without whitespace, averaged over the orders that
both texts have.

Shapes: N texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

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
    rows, found = np.repeat(np.arange(len(texts)), lengths), np.array(list(chain.from_iterable(features)), dtype=int)
    is_shared = np.bincount(found, minlength=len(columns)) > 1
    rows, found = rows[is_shared[found]], found[is_shared[found]]
    has = np.zeros((len(texts), np.count_nonzero(is_shared)), dtype=np.float32)
    has[rows, (np.cumsum(is_shared) - 1)[found]] = 1.0
    matches = has @ has.T
    np.fill_diagonal(matches, lengths)
    return matches

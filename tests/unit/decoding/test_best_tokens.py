from __future__ import annotations

import math

import numpy as np
import pytest

from clearhead.decoding.best_tokens import BLOCK, best_tokens


def best_by_hand(row, count):
    possible = [token for token, score in enumerate(row) if score > -math.inf]
    return sorted(possible, key=lambda token: (-row[token], token))[:count]


@pytest.mark.parametrize("vocab_size", [1, 31, BLOCK, BLOCK + 1, 307, 1_001])
def test_best_tokens_are_the_first_of_a_stable_sort(vocab_size):
    random = np.random.default_rng(vocab_size)
    scattered = random.standard_normal((5, vocab_size))
    together = np.arange(vocab_size)[None]  # the best all in one block
    alike = random.integers(0, 3, (4, vocab_size))
    impossible = np.where(random.random((4, vocab_size)) < 0.99, -np.inf, scattered[:4])
    rows = np.concatenate([scattered, together, together[:, ::-1], alike, impossible]).astype(np.float32)
    for count in (1, 2, 5, 33, 67):
        scores, ids = best_tokens(rows, count)
        assert scores.shape == ids.shape == (len(rows), count)
        assert scores.dtype == np.float32
        for row, values, tokens in zip(rows.tolist(), scores.tolist(), ids.tolist(), strict=True):
            expected = best_by_hand(row, count)
            num_missing = count - len(expected)
            assert tokens == [*expected, *[-1] * num_missing]
            assert values == [*(row[token] for token in expected), *[-math.inf] * num_missing]


def test_best_tokens_ignores_nan():
    row = np.full(5 * BLOCK, np.nan, dtype=np.float32)
    scores, ids = best_tokens(np.stack([row, np.zeros_like(row)]), 2)
    assert scores.tolist() == [[-math.inf, -math.inf], [0.0, 0.0]]
    assert ids.tolist() == [[-1, -1], [0, 1]]

"""One attention layer with Q = K = V = X, beside a function of the right shape with wrong numbers (equation 1).

Run it: python examples/one_attention_layer.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps

torch.manual_seed(0)
X = torch.rand(16, 32)  # 16 words, each of 32 numbers
numerator = X @ X.T  # computed outside of the function below


def attention_with_mistakes(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights as some notes compute them, with three mistakes."""
    matmul = q @ k.T  # noqa: F841  1. never used: q and k are ignored
    scale = numerator  # 2. computed outside, of other queries and keys
    weights = (scale / q.shape[1] ** -2).softmax(dim=-1)  # 3. multiplied by d ** 2 = 1,024, not divided by sqrt(d)
    return weights @ v, weights


def main() -> HeatMaps:
    """Compare shapes, weights and what a change of the queries does."""
    maps = []
    for attend in (attention_with_mistakes, ch.scaled_dot_product_attention):
        output, weights = attend(X, X, X)
        largest = weights.max(dim=-1).values.mean().item()
        entropy = torch.special.entr(weights).sum(dim=-1).mean().item()  # in nats; ln 16 = 2.773 if all are equal
        moved = (attend(torch.rand(16, 32), X, X)[0] - output).abs().max().item()
        print(attend.__name__)
        print(f"  shape {tuple(output.shape)}, each row sums to {weights.sum(dim=-1).mean():.3f}")
        print(f"  largest weight of a word, on average {largest:.3f}; entropy {entropy:.3f} of at most 2.773")
        print(f"  with other queries the output changes by {moved:.3f}")
        assert output.shape == (16, 32)  # true for both: a test of shapes sees none of the mistakes
        maps.append(HeatMap(attend.__name__, weights.tolist(), "key", "query", "weight", are_shares=True))
        right = attend is ch.scaled_dot_product_attention
        assert (largest < 0.11, moved > 0) == (right, right)

    by_hand = (X @ X.T / 32**0.5).softmax(dim=-1) @ X
    torch.testing.assert_close(ch.scaled_dot_product_attention(X, X, X)[0], by_hand)
    return HeatMaps("Weights of 16 words: with the mistakes, and right", maps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

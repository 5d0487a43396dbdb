"""Attention as a soft dictionary (paper section 3.2): an exact look-up is its limit at temperature 0.

A dictionary returns the value of the one key that equals the query. Attention returns a mixture of all values, each
with a weight that tells how well its key matches the query.

Run it: python examples/soft_dictionary.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

import clearhead as ch

# Each word is a key of three features: how much it is an animal, how well it flies, how much metal is in it.
FEATURES = {"cat": [1.0, 0.0, 0.0], "bird": [1.0, 1.0, 0.0], "plane": [0.0, 1.0, 1.0], "car": [0.0, 0.0, 1.0]}
LEGS = {"cat": 4.0, "bird": 2.0, "plane": 0.0, "car": 0.0}
WORDS = list(FEATURES)
# Of equal length, no key can win by being long: each matches itself best.
KEYS = normalize(torch.tensor([FEATURES[word] for word in WORDS]), dim=-1)  # (S, K)
VALUES = torch.tensor([[LEGS[word]] for word in WORDS])  # (S, 1)


def look_up(query: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the attended value [1] and the weights [S] of softmax(q K^T / temperature)."""
    # Equation 1 divides by sqrt(d_k); any other temperature is a matter of the query's length.
    scaled = query * math.sqrt(KEYS.size(-1)) / temperature
    output, weights = ch.scaled_dot_product_attention(scaled[None], KEYS, VALUES)
    return output[0], weights[0]


def main() -> None:
    """Ask for a word in the dictionary, then for one that is not, at falling temperatures."""
    questions = {"bird": KEYS[1], "bat": normalize(torch.tensor([1.0, 0.4, 0.0]), dim=-1)}
    for word, query in questions.items():
        print(f"how many legs has a {word}?")
        print(f"  temperature  {'  '.join(f'{key:>6}' for key in WORDS)}   answer")
        for temperature in (100.0, 1.0, 0.3, 0.1, 0.01, 0.001):
            output, weights = look_up(query, temperature)
            print(f"  {temperature:>11}  {'  '.join(f'{weight:6.3f}' for weight in weights)}   {output.item():.3f}")
            assert math.isclose(weights.sum().item(), 1.0, rel_tol=1e-6)  # shares of one whole, whatever the scores

    # Temperature to 0: the dictionary, to the last bit.
    for key, word in zip(KEYS, WORDS, strict=True):
        assert look_up(key, 1e-4)[0].item() == LEGS[word]
    # Temperature to infinity: the mean of all values, whatever is asked.
    assert math.isclose(look_up(KEYS[0], 1e6)[0].item(), sum(LEGS.values()) / len(LEGS), rel_tol=1e-4)

    # A dictionary knows no bat and has no slope; attention answers near the nearest keys, and learns by gradient.
    query = questions["bat"].clone().requires_grad_()
    output, _ = look_up(query, 0.3)
    output.backward()
    assert query.grad is not None
    assert query.grad.norm() > 0.1
    print(f"slope of the bat's answer by its features: {[round(slope, 2) for slope in query.grad.tolist()]}")


if __name__ == "__main__":
    main()

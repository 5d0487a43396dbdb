"""Several heads (section 3.2.2): one head's average cannot bring one thing from here and another from there.

Two words have a colour and a number each, -1 or 1. Wanted are the colour of word a and the number of word b. Run it:
python examples/several_heads.py
"""

from __future__ import annotations

from itertools import product

import torch

import clearhead as ch
from clearhead.inspection.plots import LinePlot, Panel, Series

ALL = torch.tensor(list(product((-1.0, 1.0), repeat=4))).view(16, 2, 2)  # all pairs of words: colour, number
WANTED = torch.stack([ALL[:, 0, 0], ALL[:, 1, 1]], dim=1)  # the colour of word a, the number of word b


def one_head(weight: float) -> list[float]:
    """Return the mean squared error of colour and number for a head that gives word a this weight, word b the rest."""
    average = weight * ALL[:, 0] + (1 - weight) * ALL[:, 1]
    best = torch.linalg.lstsq(average, WANTED).solution  # W^V W^O: no other matrix has a smaller error
    return (average @ best - WANTED).square().mean(dim=0).tolist()


def two_heads() -> torch.Tensor:
    """Return what two heads bring, whose weights are set by hand."""
    layer = ch.MultiHeadAttention(d_model=4, num_heads=2).requires_grad_(requires_grad=False)
    for weight in layer.parameters():
        weight.zero_()
    for head in range(2):  # a head is two numbers wide; its first does the work
        layer.q_proj.weight[2 * head, 2 + head] = layer.k_proj.weight[2 * head, 2 + head] = 12  # head 1: word a
        layer.v_proj.weight[2 * head, head] = 1  # head 1: the colour
        layer.out_proj.weight[head, 2 * head] = 1
    places = torch.eye(2).expand(16, 2, 2)  # the third and fourth number of a word: it is word a, it is word b
    asks_both = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(16, 1, 4)
    return layer(asks_both, torch.cat([ALL, places], dim=2))[:, 0, :2]


def main() -> LinePlot:
    """Find the best that one head can do, whatever its weights, and what two heads do."""
    weights = [i / 20 for i in range(21)]
    colour, number = zip(*map(one_head, weights), strict=True)
    both = [one + other for one, other in zip(colour, number, strict=True)]
    for i in range(0, 21, 5):
        print(f"one head, {weights[i]:.2f} word a: error {colour[i]:.2f} + {number[i]:.2f} = {both[i]:.2f}")
    assert all(abs(error - 1) < 1e-5 for error in both), "half of 2, whatever the weights"
    error = (two_heads() - WANTED).square().mean(dim=0)
    print(f"two heads: error {error[0]:.2f} + {error[1]:.2f} = {error.sum():.2f}")
    assert error.sum() < 1e-12
    lines = {"colour of a": colour, "number of b": number, "both": both, "both, two heads": [0.0] * 21}
    series = [Series(name, weights, values) for name, values in lines.items()]
    return LinePlot("What one head cannot bring", [Panel("", "its weight for word a", "mean squared error", series)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

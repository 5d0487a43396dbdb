"""Why not recurrent (sections 1 and 4): how much of the gradient arrives from a distance, and what must wait for what.

The task is to remember the first symbol; no layer is trained. Run it: python examples/why_not_recurrent.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import clearhead as ch
from clearhead.inspection.plots import LinePlot, Panel, Series
from clearhead.model.positions import sinusoidal_positions

WIDTH, SYMBOLS, DISTANCES = 32, 8, [1, 2, 5, 10, 20, 50, 100, 200]
KINDS = ("RNN", "GRU", "LSTM", "LSTM, open", "attention")


def build(kind: str) -> Callable[[Tensor], Tensor]:
    """Build a layer, and return a function from inputs [1, T, D] to the state of the last, [1, D]."""
    if kind == "attention":
        attention = ch.MultiHeadAttention(d_model=WIDTH, num_heads=4).double()
        return lambda x: attention(x[:, -1:], x)[:, 0]
    layer = getattr(nn, kind.removesuffix(", open"))(WIDTH, WIDTH, batch_first=True).double()
    if kind == "LSTM, open":
        layer.bias_ih_l0.data[WIDTH : 2 * WIDTH] = 5  # its forget gates begin open
    return lambda x: layer(x)[0][:, -1]


def gradient(kind: str, distance: int) -> float:
    """Return the length of the loss's gradient with respect to the first symbol, as the mean of fresh layers."""
    total = 0.0
    for seed in range(10):
        torch.manual_seed(seed)
        layer, output, embedding = build(kind), nn.Linear(WIDTH, SYMBOLS).double(), torch.randn(SYMBOLS, WIDTH)
        symbols = torch.randint(SYMBOLS, (distance + 1,))
        x = (embedding[symbols] + sinusoidal_positions(distance + 1, WIDTH)).double().requires_grad_()
        total += torch.autograd.grad(cross_entropy(output(layer(x[None])), symbols[:1]), x)[0][0].norm().item()
    return total / 10


def main() -> LinePlot:
    """Measure each kind of layer at each distance."""
    print("distance  " + "".join(f"{name:>12}" for name in KINDS) + "   steps one after the other")
    found = {kind: [gradient(kind, distance) for distance in DISTANCES] for kind in KINDS}
    for distance, *row in zip(DISTANCES, *found.values(), strict=True):
        print(f"{distance:>8}  {''.join(f'{length:12.0e}' for length in row)}   recurrent {distance + 1}, attention 1")
    assert max(found[kind][-1] for kind in KINDS[:3]) < 1e-6 * found["attention"][-1]
    series = [Series(name, DISTANCES, lengths) for name, lengths in found.items()]
    panel = Panel("", "distance", "length", series, x_scale="log", y_scale="log")
    return LinePlot("The gradient of the first symbol, from the last", [panel])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

"""Why not recurrent (sections 1 and 4): how much of the gradient arrives from a distance, and what must wait for what.

The task is to remember the first symbol; no layer is trained. Run it: python examples/why_not_recurrent.py
"""

from __future__ import annotations

import torch
from torch import nn

import clearhead as ch
from clearhead.inspection.plots import LinePlot, Panel, Series
from clearhead.model.positions import sinusoidal_positions
from clearhead.paper.path_length import layers_to_connect, steps_to_connect

WIDTH, SYMBOLS, DISTANCES = 32, 8, [1, 2, 5, 10, 20, 50, 100, 200]
KINDS = ("RNN", "GRU", "LSTM", "LSTM, open", "attention")


def build(kind: str) -> nn.Module:
    """Build a layer of a kind."""
    if kind == "attention":
        return ch.MultiHeadAttention(d_model=WIDTH, num_heads=4).double()
    layer = getattr(nn, kind.removesuffix(", open"))(WIDTH, WIDTH, batch_first=True).double()
    if kind == "LSTM, open":
        layer.bias_ih_l0.data[WIDTH : 2 * WIDTH] = 5  # its forget gates are open
    return layer


def gradient(kind: str, distance: int) -> float:
    """Return the length of the loss's gradient with respect to the first symbol, as the mean of fresh layers."""
    total = 0.0
    for seed in range(10):
        torch.manual_seed(seed)
        layer, output, embedding = build(kind), nn.Linear(WIDTH, SYMBOLS).double(), torch.randn(SYMBOLS, WIDTH)
        symbols = torch.randint(SYMBOLS, (distance + 1,))
        x = (embedding[symbols] + sinusoidal_positions(distance + 1, WIDTH)).double()[None].requires_grad_()
        last = layer(x[:, -1:], x)[:, 0] if kind == "attention" else layer(x)[0][:, -1]  # state of the last symbol
        total += torch.autograd.grad(nn.functional.cross_entropy(output(last), symbols[:1]), x)[0][0, 0].norm().item()
    return total / 10


def main() -> LinePlot:
    """Measure each kind of layer at each distance: the gradient, and the steps that wait for each other."""
    print("distance  " + "".join(f"{name:>12}" for name in KINDS) + "   steps one after the other")
    steps = {"recurrent": [steps_to_connect(nn.RNNCell(WIDTH, WIDTH).double(), d + 1, WIDTH) for d in DISTANCES]}
    steps["attention"] = [layers_to_connect(lambda _: build("attention"), d + 1, WIDTH, most=d) for d in DISTANCES]
    found = {kind: [gradient(kind, distance) for distance in DISTANCES] for kind in KINDS}
    for distance, step, direct, *row in zip(DISTANCES, *steps.values(), *found.values(), strict=True):
        print(f"{distance:>8}  {''.join(f'{one:12.0e}' for one in row)}   recurrent {step}, attention {direct}")
    assert max(found[kind][-1] for kind in KINDS[:3]) < 1e-6 * found["attention"][-1]
    lines = [[Series(name, DISTANCES, values) for name, values in group.items()] for group in (found, steps)]
    drawn = zip(("length of the gradient", "steps one after the other"), lines, strict=True)
    return LinePlot("From the last symbol to the first", [Panel("", "distance", *one, "log", "log") for one in drawn])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

"""Masks (sections 3.1, 3.2.3): padding, "up to and including that position", zeroed inputs, a target offset by one.

A mask is boolean here: True means "may attend". Hidden scores become minus infinity before the softmax.
Run it: python examples/masks.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps
from clearhead.model.masks import causal_mask, padding_mask

WORDS = ["le", "chat", "dort", "<pad>", "<pad>"]


def draw(title: str, weights: Tensor, columns: list[str], rows: list[str], row: str = "query") -> HeatMap:
    """Print weights [T, S] and return their picture."""
    print(f"{title}\n" + " " * 7 + "".join(f"{name:>7}" for name in columns))
    for name, values in zip(rows, weights.tolist(), strict=True):
        print(f"{name:>7}" + "".join(f"{value:7.2f}" for value in values))
    shown = weights.where(weights > 0, torch.nan).tolist()
    return HeatMap(title, shown, "key", row, "weight", are_shares=True, x_names=columns, y_names=rows)


def main() -> HeatMaps:
    """Show the weights of one layer under each mask."""
    torch.manual_seed(1)
    x = torch.randn(5, 8)
    _, padded = ch.scaled_dot_product_attention(x, x, x, padding_mask(torch.tensor([[4, 5, 6, 0, 0]]), pad_id=0))
    assert not padded[:, 3:].any()
    x, future = torch.randn(4, 8), ~causal_mask(4)
    _, causal = ch.scaled_dot_product_attention(x, x, x, causal_mask(4))
    assert not causal[future].any()
    assert causal.diagonal().all()  # "up to and including that position"
    # Zeroed inputs have the score 0, and e^0 = 1 is a share like another.
    zeroed = torch.stack([(x[t] @ (x * causal_mask(4)[t, :, None]).T / 8**0.5).softmax(dim=-1) for t in range(4)])
    total = causal[future].sum(), zeroed[future].sum()
    print(f"weights on later positions, summed: {total[0]:.2f} with the mask, {total[1]:.2f} with inputs set to zero")
    # Offset by one: the answer of position t is what is read at t + 1. Without the offset it would read its own answer.
    target, shifted = WORDS[:3], ["<s>", *WORDS[:2]]
    for t, answer in enumerate(target):
        print(f"position {t + 1} reads {' '.join(shifted[: t + 1]):<12} and must write {answer}")
    _, offset = ch.scaled_dot_product_attention(x[:3], x[:3], x[:3], causal_mask(3))
    places = list("1234")
    maps = [
        draw("Padding: no weight on <pad>", padded, WORDS, WORDS),
        draw("Causal: up to and including that position", causal, places, places),
        draw("Wrong: later inputs set to zero", zeroed, places, places),
        draw("Offset by one: reads (columns), writes (rows)", offset, shifted, target, "to write"),
    ]
    return HeatMaps("Masks", maps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

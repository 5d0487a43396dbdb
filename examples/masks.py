"""Padding and causal masks (paper sections 3.1 and 3.2.3), and what a wrong mask lets through.

A mask is boolean here: True means "may attend". Hidden scores become minus infinity *before* the softmax.

Run it: python examples/masks.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import clearhead as ch
from clearhead.model.masks import causal_mask, padding_mask

TOKENS = ["<s>", "the", "cat", "sat"]
D_MODEL = 8


def influence(mask: Tensor | None, *, zero_the_hidden: bool = False) -> Tensor:
    """Return whether output t (row) moves when input s (column) does: [T, T], by gradients."""
    torch.manual_seed(0)
    layer = ch.MultiHeadAttention(d_model=D_MODEL, num_heads=2)
    x = torch.randn(1, len(TOKENS), D_MODEL, requires_grad=True)
    rows = []
    for t in range(len(TOKENS)):
        seen = x * mask[t][None, :, None] if zero_the_hidden and mask is not None else x
        output = layer(x, seen, None if zero_the_hidden else mask)[0, t].sum()
        (grad,) = torch.autograd.grad(output, x)
        rows.append(grad[0].abs().sum(dim=-1) > 0)
    return torch.stack(rows)


def draw(title: str, moves: Tensor) -> None:
    """Print which inputs each position depends on; the answer to position t is the token at t + 1."""
    print(title)
    for t, row in enumerate(moves.tolist()):
        answer = f"  must predict {TOKENS[t + 1]!r}" if t + 1 < len(TOKENS) else ""
        leaks = "  LEAK: it can read it" if t + 1 < len(TOKENS) and row[t + 1] else ""
        print(f"   {TOKENS[t]:>4}  {' '.join('#' if moved else '.' for moved in row)}{answer}{leaks}")


def main() -> None:
    """Show the causal mask and two wrong ones, then the padding mask and its absence."""
    causal = causal_mask(len(TOKENS))
    draw("causal mask: each position sees itself and the past", influence(causal))
    assert torch.equal(influence(causal), causal)
    draw("no mask", influence(None))
    assert influence(None).all()
    draw("the past hidden instead of the future", influence(causal.T))
    assert torch.equal(influence(causal.T), causal.T)

    # Zeroing the inputs of the future, instead of its scores, hides their content; but a zero key has the score 0, not
    # minus infinity, and still takes its share of the weight.
    query, keys = torch.full((1, 2), 0.5), torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    _, zeroed = ch.scaled_dot_product_attention(query, keys, keys)
    _, hidden = ch.scaled_dot_product_attention(query, keys, keys, torch.tensor([[True, False, False]]))
    future, none = zeroed[0, 1:].sum().item(), hidden[0, 1:].sum().item()
    print(f"weight on two future tokens: {future:.2f} with their inputs zeroed, {none:.2f} with their scores at -inf")
    assert future > 0.3
    assert none == 0

    # Padding: a short sentence must mean the same beside a long one.
    torch.manual_seed(0)
    layer, table = ch.MultiHeadAttention(d_model=D_MODEL, num_heads=2), torch.randn(10, D_MODEL)
    ids = torch.tensor([[4, 5, 0, 0, 0], [6, 7, 8, 9, 4]])  # 0 is <pad>
    mask = padding_mask(ids, pad_id=0)[:, None, None, :]  # (B, 1, 1, S): hidden from every head and every query
    alone = layer(table[ids[:1, :2]], table[ids[:1, :2]])
    masked = layer(table[ids], table[ids], mask)[:1, :2]
    unmasked = layer(table[ids], table[ids])[:1, :2]
    print(f"padded beside a longer sentence: with mask it moves by {(masked - alone).abs().max():.1e}", end=", ")
    print(f"without by {(unmasked - alone).abs().max():.1e}")
    torch.testing.assert_close(masked, alone)
    assert (unmasked - alone).abs().max() > 1e-2


if __name__ == "__main__":
    main()

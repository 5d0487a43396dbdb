"""Self-attention of "The cat jumped over the fence" (section 3.2): A<1> to A<6> at once, with and without weights.

Run it: python examples/self_attention.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps
from clearhead.model.positions import sinusoidal_positions

WORDS, D = ["the", "cat", "jumped", "over", "the", "fence"], 4  # D numbers a word


def show(name: str, rows: Tensor) -> None:
    """Print a vector for each word."""
    print(name, list(rows.shape))
    for word, row in zip(WORDS, rows[0].tolist(), strict=True):
        print(f"  {word:<7}" + " ".join(f"{value:6.2f}" for value in row))


def main() -> HeatMaps:
    """Attend without parameters, then with W^Q, W^K and W^V; last with positions."""
    torch.manual_seed(2)
    x = torch.randn(5, D)[[0, 1, 2, 3, 0, 4]][None]  # (1, 6, D): a vector a word, the same for both "the"
    show("X, the embeddings", x)

    # "Self-attention needs no parameters": true only while queries, keys and values are the embeddings themselves.
    a, weights = ch.scaled_dot_product_attention(x, x, x)
    show("A<1> .. A<6> with Q = K = V = X, all at once", a)
    for t in range(6):  # one by one they are the same
        torch.testing.assert_close(a[:, t], ch.scaled_dot_product_attention(x[:, t : t + 1], x, x)[0][:, 0])
    print(f"q . k of cat for fence and of fence for cat: {x[0, 1] @ x[0, 5]:.2f} {x[0, 5] @ x[0, 1]:.2f}, always equal")
    # The paper's layer learns what a word asks for (q), what it offers (k) and what it hands over (v), in each head.
    layer = ch.MultiHeadAttention(d_model=D, num_heads=2)
    q, k, v = (x @ proj.weight.detach().T for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
    for name, rows in (("q = x W^Q", q), ("k = x W^K", k), ("v = x W^V", v)):
        show(name, rows)
    q, k = q[0, :, :2], k[0, :, :2]  # head 1 of two has the first half
    print(f"q . k of cat for fence and of fence for cat in head 1: {q[1] @ k[5]:.2f} {q[5] @ k[1]:.2f}")
    assert a[:, 0].equal(a[:, 4])  # both "the" are equal: nothing says where they are
    placed = x + sinusoidal_positions(6, D)
    a, placed_weights = ch.scaled_dot_product_attention(placed, placed, placed)
    print(f"A<1> and A<5>, both 'the', differ by 0, and with positions by {(a[:, 0] - a[:, 4]).abs().max():.2f}")
    named = {"x_label": "key", "y_label": "query", "value_label": "", "x_names": WORDS, "y_names": WORDS}
    layer(x, weights=(heads := list[Tensor]()))  # each head has its own W^Q and W^K, and so looks elsewhere
    titles = ["Q = K = V = X, without positions", "Q = K = V = X, with positions"]
    titles += [f"W^Q and W^K of head {head}, without positions" for head in (1, 2)]
    found = [weights[0], placed_weights[0], *heads[0][0].detach()]
    drawn = [HeatMap(title, m.tolist(), are_shares=True, **named) for title, m in zip(titles, found, strict=True)]
    return HeatMaps("Who looks at whom, without and with weights", drawn)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

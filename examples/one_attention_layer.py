"""One attention layer from X to its output, in numbers (paper section 3.2, equation 1 and figure 2).

Run it: python examples/one_attention_layer.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import clearhead as ch

WORDS = ["I", "saw", "a", "saw"]
D_MODEL, NUM_HEADS = 6, 2
D_K = D_MODEL // NUM_HEADS  # each head is d_model / h wide, so that h heads cost about what one of full width would


def show(name: str, matrix: Tensor, note: str = "") -> None:
    """Print a matrix under its name and shape."""
    print(f"{name}  {tuple(matrix.shape)}  {note}")
    for row in matrix.tolist():
        print("   " + " ".join(f"{value:6.2f}" for value in row))


def main() -> None:
    """Compute the layer by hand, head by head, and compare it with the library's."""
    torch.manual_seed(1)
    layer = ch.MultiHeadAttention(d_model=D_MODEL, num_heads=NUM_HEADS).eval()
    # PyTorch multiplies by the transpose: y = x W^T. The paper's W^Q, W^K, W^V and W^O are these.
    w_q, w_k, w_v, w_o = (proj.weight.detach().T for proj in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj))
    embedded = {word: torch.randn(D_MODEL) for word in dict.fromkeys(WORDS)}
    x = torch.stack([embedded[word] for word in WORDS])  # (T, D)
    show("X", x, "one row a word; both saws are equal, for there are no positions yet")

    heads = []
    for i in range(NUM_HEADS):
        print(f"\n--- head {i + 1} of {NUM_HEADS}")
        columns = slice(i * D_K, (i + 1) * D_K)  # W_i^Q is this block of columns of W^Q: d_model x d_k
        q, k, v = x @ w_q[:, columns], x @ w_k[:, columns], x @ w_v[:, columns]  # (T, K) each
        show("Q = X W^Q", q, "what each word asks for")
        show("K = X W^K", k, "what each word offers")
        show("V = X W^V", v, "what it hands over")
        scores = q @ k.T  # (T, T)
        show("Q K^T", scores, "row: who asks, column: who is asked")
        scaled = scores / math.sqrt(D_K)
        show(f"Q K^T / {math.sqrt(D_K):.3f}", scaled, "divided by sqrt(d_k), not by sqrt(d_model)")
        exps = scaled.exp()
        weights = exps / exps.sum(dim=-1, keepdim=True)  # softmax of each row
        show("softmax", weights, "no share is negative, each row sums to 1")
        z = weights @ v  # (T, K)
        show("Z = softmax V", z, "the values, mixed by these shares")
        heads.append(z)

        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(len(WORDS)))
        output, own_weights = ch.scaled_dot_product_attention(q, k, v)  # equation 1 in one call
        torch.testing.assert_close(output, z)
        torch.testing.assert_close(own_weights, weights)

    print("\n--- all heads")
    joined = torch.cat(heads, dim=-1)  # (T, h K)
    show("Concat(head_1, head_2)", joined)
    output = joined @ w_o  # (T, D)
    show("Concat W^O", output, "as wide as X again")

    expected = layer(x[None], x[None])[0]  # self-attention: queries, keys and values all come from X
    torch.testing.assert_close(output, expected.detach())
    assert torch.equal(output[1], output[3]), "equal words get equal outputs where positions are missing"
    print(f"\nequal to ch.MultiHeadAttention; largest difference {(output - expected).abs().max().item():.1e}")


if __name__ == "__main__":
    main()

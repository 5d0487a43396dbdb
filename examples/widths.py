"""Widths (sections 3.2.2 and 3.3): how wide a head is, what it sees, and the shapes of W_1 and W_2.

Run it: python examples/widths.py
"""

from __future__ import annotations

import torch

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps
from clearhead.model.feed_forward import FeedForward

MODELS = {"Transformer base": (512, 64, 2048), "BERT base": (768, 64, 3072), "BERT large": (1024, 64, 4096)}
WORDS = ["every", "head", "sees", "all"]


def main() -> HeatMaps:
    """Do the arithmetic, then look at the matrices of BERT base."""
    for name, (d_model, d_k, d_ff) in MODELS.items():
        heads = d_model // d_k
        print(f"{name:<17} h = d_model / d_k = {d_model} / {d_k} = {heads:>2}, d_ff = {d_ff} = 4 x {d_model}")
        assert (heads * d_k, d_ff) == (d_model, 4 * d_model)

    torch.manual_seed(1)
    d_model, heads, d_ff = 768, 12, 3072
    layer = ch.MultiHeadAttention(d_model=d_model, num_heads=heads)
    w_q = layer.q_proj.weight.detach().T  # PyTorch stores the transpose
    print(f"W^Q of all heads {list(w_q.shape)}, of head 1 {list(w_q[:, :64].shape)}")

    # "A head sees a part of the embedding": no. Its 64 numbers are made of all 768 of every word.
    x = torch.randn(1, len(WORDS), d_model, requires_grad=True)
    keys, values = layer.keys_and_values(x)
    given = {"head 1": (layer.queries(x)[:, 0], keys[:, 0], values[:, 0]), "the mistake": (x[:, :, :64],) * 3}
    maps = []
    for (name, parts), numbers in zip(given.items(), (d_model, 64), strict=True):
        output = ch.scaled_dot_product_attention(*parts)[0][0]  # (4, 64)
        felt = torch.stack([torch.autograd.grad(row.sum(), x, retain_graph=True)[0][0] != 0 for row in output])
        print(f"{name} has {output.size(-1)} numbers a word, which depend on {felt[0, 0].sum()} numbers of each word")
        assert (felt.sum(dim=-1) == numbers).all()  # for each of the four words, of each of the four words
        named = {"y_names": WORDS, "are_shares": True}
        maps.append(HeatMap(name, felt.all(dim=0).float().tolist(), "number of a word", "", "1: it is read", **named))

    # FFN(x) = max(0, x W_1 + b_1) W_2 + b_2
    ffn = FeedForward(d_model=d_model, d_ff=d_ff)
    w_1, w_2 = ffn.up_proj.weight.detach().T, ffn.down_proj.weight.detach().T
    print(f"x {list(x.shape)} W_1 {list(w_1.shape)} W_2 {list(w_2.shape)}")
    hidden = x @ w_1 + ffn.up_proj.bias
    torch.testing.assert_close(ffn(x), torch.relu(hidden) @ w_2 + ffn.down_proj.bias, atol=1e-5, rtol=1e-5)
    for name, function in {"ReLU (the paper)": torch.relu, "GELU (BERT)": torch.nn.functional.gelu}.items():
        print(f"{name}: {(function(hidden) == 0).float().mean():.0%} of the hidden numbers are 0")
    return HeatMaps("What a head of BERT base reads of each word", maps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

"""What attention maps show, and what not: what becomes of a text when heads are switched off and maps exchanged.

The weights are set by hand: it copies a word, and shouts. Run it: python examples/what_attention_shows.py
"""

from __future__ import annotations

import torch

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps

WORD, N, D_K = "teach!", 6, 8
LETTERS, PLACES, LOUD, EYE = slice(0, N), slice(N, 2 * N), 2 * N, torch.eye(N)  # numbers of a state


@torch.no_grad()
def build(*, off: int | None = None, uniform: int | None = None) -> ch.MultiHeadAttention:
    """Return the attention, with one head switched off, or with the map of one head exchanged for a uniform one."""
    layer = ch.MultiHeadAttention(d_model=3 * D_K, num_heads=3)
    [weight.zero_() for weight in layer.parameters()]
    q, k, v = (proj.weight.view(3, D_K, 3 * D_K) for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
    out = layer.out_proj.weight.view(3 * D_K, 3, D_K)
    q[0, :N, PLACES] = k[0, :N, PLACES] = 6 * EYE  # head 1 looks at the same place
    q[1, :N, PLACES], k[1, :N, PLACES] = 6 * EYE, 6 * EYE.roll(1, 0)  # head 2 at the place before
    v[0, :N, LETTERS] = v[1, :N, LETTERS] = EYE  # both take the letter
    v[2, 0, LOUD] = N  # head 3 looks everywhere, for what is loud
    out[LETTERS, 0, :N], out[LOUD, 2, 0] = EYE, 1  # the letter of head 1 is written, that of head 2 is not
    q[[] if uniform is None else uniform] = 0
    out[:, [] if off is None else off] = 0
    return layer


def main() -> HeatMaps:
    """Write the word with every change."""
    x, weights = torch.zeros(1, N, 3 * D_K), []
    x[0, :, LETTERS] = x[0, :, PLACES] = EYE
    x[0, -1, LOUD] = 1  # the exclamation mark

    def written(**change: int) -> str:
        state = build(**change)(x, weights=weights)[0].mT  # (D, T)
        letters = ["?" if one.max() == one.min() else WORD[one.argmax()] for one in state[LETTERS].T]
        return "".join(one.upper() if loud > 0.5 else one for one, loud in zip(letters, state[LOUD], strict=True))

    texts = {"nothing changed": written()}
    for head in range(3):
        texts |= {f"head {head + 1} off": written(off=head), f"map of head {head + 1} uniform": written(uniform=head)}
    print(*(f"{change:<24}{text}" for change, text in texts.items()), sep="\n")
    print("head 2 has a map as sharp as head 1's, and writes nothing; head 3 has the dullest, and makes the word loud")
    assert [*texts.values()] == ["TEACH!", "??????", "??????", "TEACH!", "TEACH!", "teach!", "TEACH!"]
    titles = [f"head {head}; without it: {texts[f'head {head} off']}" for head in (1, 2, 3)]
    maps = zip(titles, weights[0][0].tolist(), strict=True)
    named = {"x_names": WORD, "y_names": WORD, "are_shares": True}
    return HeatMaps("With all heads: TEACH!", [HeatMap(*one, "key", "query", "weight", **named) for one in maps])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

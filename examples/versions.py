"""Versions of the Transformer: the encoder alone (BERT), the decoder alone (GPT), both (T5, BertGeneration).

Each is built in three lines and run; they differ by what a word may see. Run it: python examples/versions.py
"""

from __future__ import annotations

import torch
from torch import Tensor

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps

SMALL = {"vocab_size": 20, "d_model": 32, "d_ff": 64, "num_heads": 4, "dropout": 0.0}
LEARNED = {"positions": "learned", "attention_bias": True, "embedding_scale": False}
BERT = {**LEARNED, "activation": "gelu", "embedding_norm": True}
GPT = {**LEARNED, "activation": "gelu_tanh", "norm": "pre", "tying": "decoder"}
T5 = {"positions": "relative", "norm": "pre", "norm_kind": "rms", "feed_forward_bias": False}
T5 |= {"attention_scale": False, "embedding_scale": False, "output_scale": True}
BERT_GENERATION = {**BERT, "output_bias": True, "tying": "decoder"}
IDS = torch.tensor([[4, 5, 6, 7, 8]])


def depends(states: Tensor, read: Tensor) -> list[list[float]]:
    """Return which word (column) moves the state at each place (row), by gradients: 1 or 0."""
    rows = [torch.autograd.grad(state[0], read, retain_graph=True)[0][0].abs().sum(dim=-1) for state in states[0]]
    return (torch.stack(rows) > 0).float().tolist()


def main() -> HeatMaps:
    """Build five models, and find out what the states of the first two depend on."""
    torch.manual_seed(1)
    config = ch.ModelConfig(**SMALL, **BERT, num_decoder_layers=0, num_segments=2)
    bert = ch.Transformer(config)  # reads both sides: to fill in a masked word, to judge a text
    print("encoder alone (BERT):", list(bert.encode(IDS)[0].shape), "a state for each word")

    config = ch.ModelConfig(**SMALL, **GPT, num_encoder_layers=0)
    gpt = ch.Transformer(config)  # reads the left side: to write the next word
    print("decoder alone (GPT-2):", list(gpt.decode(IDS)[0].shape), "scores of every next word")

    # Both read a text and write another: the Transformer of the paper, N = 6 equal layers a side, and two later ones.
    for name, settings in {"the paper": {}, "T5": T5, "BertGeneration": BERT_GENERATION}.items():
        config = ch.ModelConfig(**SMALL, **settings)
        both = ch.Transformer(config)
        print(f"both ({name}): {list(both(IDS, IDS[:, :3]).shape)} scores for 3 words, N = {len(both.decoder.layers)}")

    x, maps = torch.randn(1, 5, 32, requires_grad=True), []  # words, already embedded
    for name, states in (("encoder", bert.encoder(x, torch.ones(1, 5, dtype=torch.bool))), ("decoder", gpt.decoder(x))):
        found = depends(states, x)
        print(f"the {name}'s state at each place depends on", ["".join(".x"[int(one)] for one in row) for row in found])
        assert found == (torch.ones(5, 5) if name == "encoder" else torch.ones(5, 5).tril()).tolist()
        maps.append(HeatMap(f"{name} alone", found, "word read", "state", "1: depends on it", are_shares=True))
    return HeatMaps("What a state depends on", maps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

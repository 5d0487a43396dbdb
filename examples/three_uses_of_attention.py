"""The three uses of attention (section 3.2.3): who gives the query, and who the key and the value.

Run it: python examples/three_uses_of_attention.py
"""

from __future__ import annotations

import torch

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps

SOURCE, SHIFTED = ["der", "Hund", "rennt", "</s>"], ["<s>", "the", "dog"]
USES = {  # name: query from, key and value from
    "encoder self-attention": ("source", "source"),
    "decoder self-attention": ("target", "target"),
    "cross-attention": ("target", "source"),
}


def main() -> HeatMaps:
    """Run a small model, and see from how many words each attention got its queries, keys and values."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 9, "d_model": 16, "d_ff": 32, "num_heads": 1, "dropout": 0.0}
    model = ch.Transformer(ch.ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1)).eval()
    source, shifted, seen = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 7, 8]]), {}
    weights = model.attention_weights(source, shifted)
    layers = {
        "encoder self-attention": model.encoder.layers[0].self_attn,
        "decoder self-attention": model.decoder.layers[0].self_attn,
        "cross-attention": model.decoder.layers[0].cross_attn,
    }
    for use, layer in layers.items():
        for role, proj in (("query", layer.q_proj), ("key", layer.k_proj), ("value", layer.v_proj)):
            # `update` returns None, as this must: anything else would replace what the layer returns.
            proj.register_forward_hook(lambda _, given, __, at=(use, role): seen.update({at: given[0]}))
    torch.testing.assert_close(vars(model.attention_weights(source, shifted)), vars(weights))  # watched, but the same

    lengths, maps = {len(SOURCE): "source", len(SHIFTED): "target"}, []  # a row for each word tells whose words
    print(f"{'':<24}{'query from':<14}{'key from':<14}{'value from':<14}weights [T, S]")
    for use, found in zip(USES, (weights.encoder, weights.decoder, weights.cross), strict=True):
        query, key, value = (lengths[seen[use, role].size(1)] for role in ("query", "key", "value"))
        shape = list(found[0][0, 0].shape)
        print(f"{use:<24}{query:<14}{key:<14}{value:<14}{shape}")
        assert (query, key, value) == (USES[use][0], USES[use][1], USES[use][1])
        rows, columns = ({"source": SOURCE, "target": SHIFTED}[side] for side in (query, key))
        named = {"x_names": columns, "y_names": rows, "are_shares": True}
        maps.append(HeatMap(use, found[0][0, 0].tolist(), f"key ({key})", f"query ({query})", "weight", **named))
    # In cross-attention W^K and W^V both read the encoder's output, and never the decoder's input.
    assert torch.equal(seen["cross-attention", "key"], seen["cross-attention", "value"])
    torch.testing.assert_close(seen["cross-attention", "value"], model.encode(source)[0])
    assert not weights.decoder[0][0, 0].triu(1).any()  # only the decoder's self-attention hides what comes later
    print("in cross-attention W^K and W^V read the encoder's output, and W^Q reads the decoder's states")
    return HeatMaps("Three uses of attention", maps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

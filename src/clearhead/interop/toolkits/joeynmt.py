"""JoeyNMT's Transformer: post- or pre-norm, the paper's sinusoids, biases everywhere but before the softmax.

Settings and names of tensors after its public source (2.3 and, where a configuration says nothing of norms, 1.5:
model.py, transformer_layers.py), which cannot be installed beside this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.equivalent import resolved
from clearhead.interop.key_table import KeyTable, Row, embedding_rows, numbered, pair
from clearhead.interop.readers.their_config import TheirConfig
from clearhead.interop.toolkits.shared import section, stored_positions

__all__ = ["BOS", "EOS", "PAD", "SOURCE", "TARGET", "UNK", "config_from", "key_table"]

UNK, PAD, BOS, EOS = range(4)
"""Ids of every vocabulary."""
SOURCE, TARGET = "src_embed.lut.weight", "trg_embed.lut.weight"
"""Names of the embeddings."""
_OUTPUT = "decoder.output_layer.weight"

DEFAULTS: Mapping[str, Any] = {"activation": "relu", "alpha": 1.0, "dropout": 0.1, "layer_norm": None, "type": None}
"""What its layers take for settings that a configuration leaves out."""


def config_from(
    model: Mapping[str, Any], source_size: int, target_size: int, *, is_first_version: bool, origin: object
) -> ModelConfig:
    """Return our settings of a model.

    Args:
        model: The section `model` of its configuration.
        source_size: Words of the source's vocabulary.
        target_size: Words of the target's.
        is_first_version: Whether a model whose configuration says nothing of norms is one of JoeyNMT 1, which has them
            before every sub-layer and after the stacks; one of JoeyNMT 2 mixes both orders.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
    """
    problems: list[str] = []
    one, tied = bool(model.get("tied_embeddings")), bool(model.get("tied_softmax"))
    read = []
    for name in ("encoder", "decoder"):
        part = section(model, name, origin, within="model.")
        holder = "encoder" if one else name  # of one embedding the decoder's settings are not read
        embedding = section(
            section(model, holder, origin, within="model."), "embeddings", origin, within=f"model.{holder}."
        )
        values = {**part, "scale": bool(embedding.get("scale")), "embedding_dim": embedding.get("embedding_dim")}
        read.append(TheirConfig(values, DEFAULTS, within=f"model.{name}.", problems=problems, origin=origin))
    encoder, decoder = read
    for their in read:
        their.require("type", "transformer", "other networks are not supported")
        their.require("alpha", 1.0, "our residual connections have no other factor")
        their.same("embedding_dim", "hidden_size")
    encoder.agree(decoder, "hidden_size", "ff_size", "num_heads", "layer_norm", "activation", "scale")
    norm = encoder["layer_norm"] or ("pre" if is_first_version else None)
    if norm not in ("pre", "post"):
        problems.append(f"model.encoder.layer_norm is {norm!r}, but must be 'pre' or 'post'")
    return encoder.model_config(
        vocab_size=target_size,
        source_vocab_size=None if source_size == target_size else source_size,
        d_model=encoder["hidden_size"],
        d_ff=encoder["ff_size"],
        num_heads=encoder["num_heads"],
        num_encoder_layers=encoder.layers("num_layers"),
        num_decoder_layers=decoder.layers("num_layers"),
        dropout=encoder["dropout"],
        attention_dropout=encoder["dropout"],
        feed_forward_dropout=encoder["dropout"],
        norm=norm,
        norm_eps=1e-6,
        activation=encoder.activation("activation"),
        attention_bias=True,
        tying={(True, True): "three-way", (True, False): "embeddings", (False, True): "decoder"}.get(
            (one, tied), "none"
        ),
        embedding_scale=encoder["scale"],
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
    )


def _attention(ours: str, theirs: str) -> list[Row]:
    names = {"q_proj": "q_layer", "k_proj": "k_layer", "v_proj": "v_layer", "out_proj": "output_layer"}
    return [row for name, there in names.items() for row in pair(f"{ours}.{name}", f"{theirs}.{there}")]


_FEED_FORWARD = (
    *pair("feed_forward.up_proj", "feed_forward.pwff_layer.0"),
    *pair("feed_forward.down_proj", "feed_forward.pwff_layer.3"),
    *pair("feed_forward_residual.norm", "feed_forward.layer_norm"),
)
ENCODER_LAYER = (
    *_attention("self_attn", "src_src_att"),
    *pair("self_attn_residual.norm", "layer_norm"),
    *_FEED_FORWARD,
)
DECODER_LAYER = (
    *_attention("self_attn", "trg_trg_att"),
    *pair("self_attn_residual.norm", "x_layer_norm"),
    *_attention("cross_attn", "src_trg_att"),
    *pair("cross_attn_residual.norm", "dec_layer_norm"),
    *_FEED_FORWARD,
)


def key_table(config: ModelConfig) -> KeyTable:
    """Return the tensors of a model."""
    config = resolved(config)
    rows = embedding_rows(config.tying, SOURCE, TARGET, _OUTPUT)
    for side, layer, count in (
        ("encoder", ENCODER_LAYER, config.num_encoder_layers),
        ("decoder", DECODER_LAYER, config.num_decoder_layers),
    ):
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{side}.layers.{{i}}.")
        if config.final_norm:
            rows += pair(f"{side}.final_norm", f"{side}.layer_norm")
    return KeyTable(tuple(rows), tuple(stored_positions(config)))

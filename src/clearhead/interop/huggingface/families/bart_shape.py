"""Fields and tensor names that BART, mBART, Marian, M2M100 and Pegasus share in Hugging Face transformers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.key_table import (
    AFTER_TWO_ROWS,
    ONE_ROW,
    Computed,
    KeyRow,
    KeyTable,
    LeftOut,
    numbered,
    pair,
    target_rows,
)
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name
from clearhead.interop.rewrites import resolved
from clearhead.model.positions import sinusoidal_positions


def read_shape(their: TheirConfig) -> dict[str, Any]:
    """Return our settings from the fields that these families share."""
    return {
        "d_model": their["d_model"],
        "d_ff": their.same("encoder_ffn_dim", "decoder_ffn_dim"),
        "num_heads": their.same("encoder_attention_heads", "decoder_attention_heads"),
        "num_encoder_layers": their.layers("encoder_layers"),
        "num_decoder_layers": their.layers("decoder_layers"),
        "dropout": their["dropout"],
        "attention_dropout": their["attention_dropout"],
        "feed_forward_dropout": their["activation_dropout"],
        "activation": their.activation("activation_function"),
        "embedding_scale": their["scale_embedding"],
        "max_positions": their.positions("max_position_embeddings"),
        "attention_bias": True,
        "pad_id": their.token("pad_token_id"),
        "bos_id": their.token("decoder_start_token_id"),
        "eos_id": their.token("eos_token_id"),
    }


def write_shape(config: ModelConfig) -> dict[str, Any]:
    """Return the fields that these families share."""
    return {
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "activation_function": activation_name(config.activation),
        "scale_embedding": config.embedding_scale,
        "max_position_embeddings": config.max_positions,
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        # Otherwise transformers would add a free end token at the length limit; ours counts its log-probability.
        "forced_eos_token_id": None,
        "tie_word_embeddings": config.tying != "none",
    }


def _attention(ours: str, theirs: str) -> list[KeyRow]:
    return [
        row for name in ("q_proj", "k_proj", "v_proj", "out_proj") for row in pair(f"{ours}.{name}", f"{theirs}.{name}")
    ]


ENCODER_LAYER = (
    *_attention("self_attn", "self_attn"),
    *pair("self_attn_residual.norm", "self_attn_layer_norm"),
    *pair("feed_forward.up_proj", "fc1"),
    *pair("feed_forward.down_proj", "fc2"),
    *pair("feed_forward_residual.norm", "final_layer_norm"),
)

DECODER_LAYER = (
    *ENCODER_LAYER,
    *_attention("cross_attn", "encoder_attn"),
    *pair("cross_attn_residual.norm", "encoder_attn_layer_norm"),
)


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of an encoder-decoder in this shape; the settings decide which tensors it has."""
    config = resolved(config)
    rows = _embeddings(config) + stack_rows(config, "model.")
    if config.output_bias:
        rows.append(KeyRow(("output_proj.bias",), "final_logits_bias", ONE_ROW, zeros=(1, config.vocab_size)))
    return KeyTable(tuple(rows), tuple(computed_positions(config, "model.")), prefix="model.")


def stack_rows(config: ModelConfig, prefix: str) -> list[KeyRow]:
    """Return the rows of both stacks with their norms and learned positions, in fairseq's names.

    Args:
        config: Resolved settings.
        prefix: Prefix of their tensor names.
    """
    rows = []
    for ours, side, layer, count in (
        ("source", "encoder", ENCODER_LAYER, config.num_encoder_layers),
        ("target", "decoder", DECODER_LAYER, config.num_decoder_layers),
    ):
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{prefix}{side}.layers.{{i}}.")
        if config.final_norm:
            rows += pair(f"{side}.final_norm", f"{prefix}{side}.layer_norm")
        if config.embedding_norm:
            rows += pair(f"{ours}_embedding.norm", f"{prefix}{side}.layernorm_embedding")
        if config.positions == "learned":
            name = f"{prefix}{side}.embed_positions.weight"
            rows.append(KeyRow((f"{ours}_embedding.positions.weight",), name, AFTER_TWO_ROWS))
    return rows


def _embeddings(config: ModelConfig) -> list[KeyRow]:
    shared, source, target, output = (
        "model.shared.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    )
    if config.tying == "three-way":
        return [KeyRow(("source_embedding.weight",), shared, also=(source, target, output))]
    rows = target_rows(target, output, are_one=config.tying == "decoder")
    return [KeyRow(("source_embedding.weight",), source), *rows]


def computed_positions(config: ModelConfig, prefix: str) -> list[LeftOut]:
    """Return entries for the tables of sinusoids, which old files contain and our model computes.

    Args:
        config: Our settings.
        prefix: Prefix of their tensor names.
    """

    def table(rows: int) -> Tensor:
        found = sinusoidal_positions(rows, config.d_model, "sinusoidal_t2t" if is_t2t else "sinusoidal_halves")
        if is_t2t:
            found[config.pad_id : config.pad_id + 1] = 0.0  # transformers zeroes the padding token's row
        return found

    is_t2t = config.positions == "sinusoidal_t2t"
    if not is_t2t and config.positions != "sinusoidal_halves":
        return []
    name = "weights" if is_t2t else "weight"
    computed = Computed(table, config.max_positions + 2 * is_t2t)
    return [
        LeftOut(f"{prefix}{side}.embed_positions.{name}", "computed from the position", computed)
        for side in ("encoder", "decoder")
    ]

"""GPT-2 in Hugging Face transformers: settings and tensor names.

Its matrices are transposed (a "Conv1D" has the input axis first). Query, key and value share one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.key_table import (
    STACKED,
    STACKED_TRANSPOSED,
    TRANSPOSED,
    KeyRow,
    KeyTable,
    LeftOut,
    numbered,
    pair,
    target_rows,
)
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name
from clearhead.interop.rewrites import resolved

DEFAULTS: Mapping[str, Any] = {
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "n_inner": None,
    "resid_pdrop": 0.1,
    "tie_word_embeddings": True,
}
"""Defaults of GPT2Config for fields that files omit."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of GPT-2: a decoder alone, pre-norm, with learned positions.

    One token both starts and ends texts. GPT-2 has no padding token: `pad_id` is the smallest id that is no other
    special token's, and a decoder alone never reads it. The embedding dropout is set to that of the sub-layers.
    """
    their = TheirConfig(values, DEFAULTS)
    their.require("scale_attn_weights", True, "attention divides by sqrt(d_k)")
    their.require("scale_attn_by_inverse_layer_idx", False, "attention divides by sqrt(d_k) alone")
    their.require("add_cross_attention", False, "GPT-2 is supported as a decoder alone")
    bos_id, eos_id = their.token("bos_token_id"), their.token("eos_token_id")
    return their.model_config(
        vocab_size=their["vocab_size"],
        d_model=their["n_embd"],
        d_ff=their["n_inner"] or 4 * (their["n_embd"] or 0),
        num_heads=their["n_head"],
        num_encoder_layers=0,
        num_decoder_layers=their["n_layer"],
        dropout=their["resid_pdrop"],
        attention_dropout=their["attn_pdrop"],
        norm="pre",
        norm_eps=their["layer_norm_epsilon"],
        activation=their.activation("activation_function"),
        attention_bias=True,
        positions="learned",
        max_positions=their.positions("n_positions"),
        tying="decoder" if their["tie_word_embeddings"] else "none",
        embedding_scale=False,
        pad_id=their.token_or_free("pad_token_id", bos_id, eos_id),
        bos_id=bos_id,
        eos_id=eos_id,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a GPT2Config."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_inner": config.d_ff,
        "n_head": config.num_heads,
        "n_layer": config.num_decoder_layers,
        "n_positions": config.max_positions,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": activation_name(config.activation),
        "tie_word_embeddings": config.tying != "none",
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
    }


QUERY_KEY_VALUE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

LAYER = (
    KeyRow(tuple(f"{name}.weight" for name in QUERY_KEY_VALUE), "attn.c_attn.weight", STACKED_TRANSPOSED),
    KeyRow(tuple(f"{name}.bias" for name in QUERY_KEY_VALUE), "attn.c_attn.bias", STACKED),
    *pair("self_attn.out_proj", "attn.c_proj", TRANSPOSED),
    *pair("self_attn_residual.norm", "ln_1"),
    *pair("feed_forward.up_proj", "mlp.c_fc", TRANSPOSED),
    *pair("feed_forward.down_proj", "mlp.c_proj", TRANSPOSED),
    *pair("feed_forward_residual.norm", "ln_2"),
)


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of a GPT2LMHeadModel."""
    are_tied = resolved(config).tying == "decoder"
    return KeyTable(
        (
            *target_rows("transformer.wte.weight", "lm_head.weight", are_one=are_tied),
            KeyRow(("target_embedding.positions.weight",), "transformer.wpe.weight"),
            *numbered(LAYER, config.num_decoder_layers, ours="decoder.layers.{i}.", theirs="transformer.h.{i}."),
            *pair("decoder.final_norm", "transformer.ln_f"),
        ),
        (
            LeftOut("transformer.h.*.attn.bias", "the causal mask, in old files"),
            LeftOut("transformer.h.*.attn.masked_bias", "the score of what is hidden, in old files"),
        ),
        prefix="transformer.",
    )

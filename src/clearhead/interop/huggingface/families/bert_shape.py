"""Shared fields and tensor names of BERT and BertGeneration in Hugging Face transformers."""

from __future__ import annotations

from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.key_table import KeyRow, numbered, pair
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name

READ_ALIKE = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_heads": "num_attention_heads",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
"""Our settings to the fields with the same meaning."""


def read_shape(their: TheirConfig) -> dict[str, Any]:
    """Return our settings from the fields that encoder and decoder of this shape share."""
    their.require("position_embedding_type", "absolute", "positions relative to one another are not supported")
    return {
        **{ours: their[field] for ours, field in READ_ALIKE.items()},
        "max_positions": their.positions("max_position_embeddings"),
        "activation": their.activation("hidden_act"),
        "positions": "learned",
        "embedding_scale": False,
        "embedding_norm": True,
        "attention_bias": True,
    }


def write_shape(config: ModelConfig) -> dict[str, Any]:
    """Return the fields that encoder and decoder of this shape share."""
    return {
        **{field: getattr(config, ours) for ours, field in READ_ALIKE.items()},
        "max_position_embeddings": config.max_positions,
        "hidden_act": activation_name(config.activation),
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
    }


def embedding_rows(ours: str, theirs: str, *, segments: bool) -> list[KeyRow]:
    """Return the rows of the position and segment embeddings, and of the norm after them.

    Args:
        ours: Prefix of our names, such as "source_embedding.".
        theirs: Prefix of their names, such as "encoder.embeddings.".
        segments: Whether the model has segment embeddings.
    """
    kinds = [KeyRow((f"{ours}segments.weight",), f"{theirs}token_type_embeddings.weight")] if segments else []
    return [
        *kinds,
        KeyRow((f"{ours}positions.weight",), f"{theirs}position_embeddings.weight"),
        *pair(f"{ours}norm", f"{theirs}LayerNorm"),
    ]


def layer_rows(count: int, ours: str, theirs: str, *, cross_attention: bool) -> list[KeyRow]:
    """Return the rows of all layers of a stack.

    Args:
        count: Number of layers.
        ours: Prefix of our names, such as "encoder.".
        theirs: Prefix of their names, such as "encoder.encoder.".
        cross_attention: Whether the layers attend to a memory.
    """
    rows = [
        *_attention("self_attn", "attention"),
        *(_attention("cross_attn", "crossattention") if cross_attention else ()),
        *pair("feed_forward.up_proj", "intermediate.dense"),
        *pair("feed_forward.down_proj", "output.dense"),
        *pair("feed_forward_residual.norm", "output.LayerNorm"),
    ]
    return numbered(rows, count, ours=f"{ours}layers.{{i}}.", theirs=f"{theirs}layer.{{i}}.")


def _attention(ours: str, theirs: str) -> list[KeyRow]:
    return [
        *pair(f"{ours}.q_proj", f"{theirs}.self.query"),
        *pair(f"{ours}.k_proj", f"{theirs}.self.key"),
        *pair(f"{ours}.v_proj", f"{theirs}.self.value"),
        *pair(f"{ours}.out_proj", f"{theirs}.output.dense"),
        *pair(f"{ours}_residual.norm", f"{theirs}.output.LayerNorm"),
    ]

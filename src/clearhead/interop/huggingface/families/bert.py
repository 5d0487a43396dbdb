"""BERT in Hugging Face transformers: settings and tensor names.

The layers above the encoder (the pooler and the pre-training heads) are not imported. `encoder_decoder.py` has two of
these, or BertGenerations, which share fields and names with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.key_table import KeyRow, KeyTable, LeftOut, numbered, pair
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name

DEFAULTS: Mapping[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
}
"""Defaults of BertConfig for fields that files omit."""
READ_ALIKE = {
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "num_heads": "num_attention_heads",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
"""Our settings to the fields with the same meaning."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of BERT: an encoder alone, post-norm, with learned positions and segments.

    Its configuration names no start and end token ([CLS] and [SEP] belong to the tokenizer). They get the smallest
    ids that are no other special token's; `encode` never reads them.
    """
    their = TheirConfig(values, DEFAULTS)
    their.require("is_decoder", False, "only the encoder is supported; see encoder-decoder")
    their.require("add_cross_attention", False, "only the encoder is supported; see encoder-decoder")
    pad_id = their.token("pad_token_id")
    eos_id = their.token_or_free("eos_token_id", pad_id)
    return their.model_config(
        **read_shape(their),
        vocab_size=their["vocab_size"],
        num_encoder_layers=their["num_hidden_layers"],
        num_decoder_layers=0,
        num_segments=their["type_vocab_size"],
        pad_id=pad_id,
        bos_id=their.token_or_free("bos_token_id", pad_id, eos_id),
        eos_id=eos_id,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a BertConfig."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        **write_shape(config),
        "vocab_size": config.source_vocabulary,
        "num_hidden_layers": config.num_encoder_layers,
        "type_vocab_size": config.num_segments,
    }


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of a BertModel."""
    return KeyTable(
        (
            KeyRow(("source_embedding.weight",), "embeddings.word_embeddings.weight"),
            *embedding_rows("source_embedding.", "embeddings.", segments=True),
            *layer_rows(config.num_encoder_layers, "encoder.", "encoder.", cross_attention=False),
        ),
        (
            LeftOut("embeddings.position_ids", "the numbers from 0 on, in old files"),
            LeftOut("pooler.dense.*", "a layer above the encoder, over its first state"),
            LeftOut("cls.*", "heads of pre-training, above the encoder"),
        ),
        prefix="bert.",
    )


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

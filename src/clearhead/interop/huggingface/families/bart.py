"""BART in Hugging Face transformers: post-norm, learned positions, a norm over embedding plus position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families.bart_shape import read_shape, write_shape
from clearhead.interop.readers.foreign_config import TheirConfig

DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "attention_dropout": 0.0,
    "scale_embedding": False,
    "tie_word_embeddings": True,
}
"""Defaults of BartConfig for fields that files omit."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of a BartForConditionalGeneration.

    Its start token, usually the end token, becomes `bos_id`.
    """
    their = TheirConfig(values, DEFAULTS)
    their.require("tie_word_embeddings", True, "BART has one matrix for embeddings and output")
    their.require("normalize_before", False, "BART's norm is after the sub-layer")
    their.require("normalize_embedding", True, "BART has a norm over the embedding")
    their.require("add_final_layer_norm", False, "BART has no norm after the last layer")
    their.require("static_position_embeddings", False, "BART's positions are learned")
    their.require("extra_pos_embeddings", 2, "BART's positions follow two other rows")
    return their.model_config(
        **read_shape(their),
        vocab_size=their["vocab_size"],
        positions="learned",
        embedding_norm=True,
        output_bias=True,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a BartConfig."""
    return {"architectures": ["BartForConditionalGeneration"], "model_type": "bart", **write_shape(config)}

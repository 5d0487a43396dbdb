"""mBART in Hugging Face transformers: BART with norms before the sub-layers and one after the last layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families import bart
from clearhead.interop.huggingface.families.bart_shape import read_shape, write_shape
from clearhead.interop.readers.foreign_config import TheirConfig


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of an MBartForConditionalGeneration.

    Its start token becomes `bos_id`: the target-language token or, in mBART-50, the end token.
    """
    their = TheirConfig(values, bart.DEFAULTS)
    their.require("tie_word_embeddings", True, "mBART has one matrix for embeddings and output")
    their.require("normalize_before", True, "mBART's norm is before the sub-layer")
    their.require("normalize_embedding", True, "mBART has a norm over the embedding")
    their.require("add_final_layer_norm", True, "mBART has a norm after the last layer")
    their.require("static_position_embeddings", False, "mBART's positions are learned")
    return their.model_config(
        **read_shape(their),
        vocab_size=their["vocab_size"],
        norm="pre",
        positions="learned",
        embedding_norm=True,
        output_bias=True,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of an MBartConfig."""
    return {"architectures": ["MBartForConditionalGeneration"], "model_type": "mbart", **write_shape(config)}

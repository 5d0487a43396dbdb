"""Pegasus in Hugging Face transformers: Marian's form with norms before the sub-layers and after the stacks.

In transformers, only Pegasus has pre-norm and computed positions with the paper's wavelengths. So our own pre-norm
models can be written exactly in this form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families.bart_shape import read_shape, write_shape
from clearhead.interop.readers.foreign_config import TheirConfig

DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "attention_dropout": 0.0,
    "scale_embedding": False,
    "tie_word_embeddings": True,
}
"""Defaults of PegasusConfig for fields that files omit."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of a PegasusForConditionalGeneration."""
    their = TheirConfig(values, DEFAULTS)
    their.require("tie_word_embeddings", True, "Pegasus has one matrix for embeddings and output")
    their.require("normalize_before", True, "Pegasus' norm is before the sub-layer")
    their.require("normalize_embedding", False, "Pegasus has no norm over the embedding")
    their.require("add_final_layer_norm", True, "Pegasus has a norm after the last layer")
    their.require("static_position_embeddings", True, "Pegasus' positions are computed")
    return their.model_config(
        **read_shape(their),
        vocab_size=their["vocab_size"],
        norm="pre",
        positions="sinusoidal_halves",
        output_bias=True,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a PegasusConfig."""
    return {"architectures": ["PegasusForConditionalGeneration"], "model_type": "pegasus", **write_shape(config)}

"""Marian models in Hugging Face transformers: the paper's post-norm, with biases and sines before cosines.

The published opus-mt models are of this kind. Our own post-norm models can be written in it exactly: the interleaved
sinusoids of section 3.5 are Marian's with their columns in another order (`rewrites.with_sine_halves`).

CTranslate2 reads this form too, but sets the start token's embedding to zero, as in models trained with Marian. Our
models learn a vector for it, and need a converter that keeps it.
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
    "decoder_vocab_size": None,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
"""Defaults of MarianConfig for fields that files omit."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of a MarianMTModel; its start token, usually the padding token, becomes `bos_id`."""
    their = TheirConfig(values, DEFAULTS)
    their.require("normalize_before", False, "Marian's norm is after the sub-layer")
    their.require("normalize_embedding", False, "Marian has no norm over the embedding")
    their.require("add_final_layer_norm", False, "Marian has no norm after the last layer")
    their.require("static_position_embeddings", True, "Marian's positions are computed")
    shared = their["share_encoder_decoder_embeddings"]
    vocab_size = their["decoder_vocab_size"] or their["vocab_size"]
    if shared:
        their.require("tie_word_embeddings", True, "share_encoder_decoder_embeddings makes the output one with them")
        if their["decoder_vocab_size"] is not None:
            their.same("decoder_vocab_size", "vocab_size")
    tied = "three-way" if shared else "decoder" if their["tie_word_embeddings"] else "none"
    return their.model_config(
        **read_shape(their),
        vocab_size=vocab_size,
        source_vocab_size=None if vocab_size == their["vocab_size"] else their["vocab_size"],
        tying=tied,
        positions="sinusoidal_halves",
        output_bias=True,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a MarianConfig."""
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        **write_shape(config),
        "vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.tying == "three-way",
    }

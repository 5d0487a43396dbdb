"""M2M100 and NLLB in Hugging Face transformers: pre-norm with final norms, tensor2tensor's sinusoids.

They were trained with fairseq, which numbers positions from the padding id plus 1 and gives padding no position.
Therefore a target cannot start with the padding token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families.bart_shape import read_shape, write_shape
from clearhead.interop.readers.foreign_config import TheirConfig

DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "attention_dropout": 0.1,
    "scale_embedding": True,
    "tie_word_embeddings": True,
}
"""Defaults of M2M100Config for fields that files omit."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of an M2M100ForConditionalGeneration.

    Its start token, usually the end token, becomes `bos_id`.
    """
    their = TheirConfig(values, DEFAULTS)
    their.require("tie_word_embeddings", True, "M2M100 has one matrix for embeddings and output")
    their.require("normalize_before", True, "M2M100's norm is before the sub-layer")
    their.require("normalize_embedding", False, "M2M100 has no norm over the embedding")
    shape = read_shape(their)
    if shape["pad_id"] == shape["bos_id"]:
        their.problems.append("decoder_start_token_id is pad_token_id, which has no position in M2M100")
    if isinstance(shape["max_positions"], int) and shape["pad_id"] >= shape["max_positions"] + 2:
        their.problems.append(
            f"pad_token_id is {shape['pad_id']}, but has a row among M2M100's max_position_embeddings + 2 = "
            f"{shape['max_positions'] + 2} positions"
        )
    return their.model_config(
        **shape,
        vocab_size=their["vocab_size"],
        norm="pre",
        positions="sinusoidal_t2t",
        first_position=shape["pad_id"] + 1,
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of an M2M100Config."""
    return {"architectures": ["M2M100ForConditionalGeneration"], "model_type": "m2m_100", **write_shape(config)}

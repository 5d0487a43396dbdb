"""BERT in Hugging Face transformers: settings and tensor names.

The layers above the encoder (the pooler and the pre-training heads) are not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families.bert_shape import embedding_rows, layer_rows, read_shape, write_shape
from clearhead.interop.key_table import KeyRow, KeyTable, LeftOut
from clearhead.interop.readers.foreign_config import TheirConfig

DEFAULTS: Mapping[str, Any] = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
}
"""Defaults of BertConfig for fields that files omit."""


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

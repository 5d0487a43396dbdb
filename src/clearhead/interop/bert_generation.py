"""An encoder-decoder of two BERTs as Hugging Face transformers has it: BertGeneration in an EncoderDecoderModel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.bert_shape import embedding_rows, layer_rows, read_shape, write_shape
from clearhead.interop.equivalent import resolved
from clearhead.interop.key_table import KeyTable, LeftOut, Row, target_rows
from clearhead.interop.their_config import TheirConfig

__all__ = ["config_from", "config_to", "key_table"]

DEFAULTS: Mapping[str, Any] = {
    "add_cross_attention": False,
    "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "is_decoder": False,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
"""What BertGenerationConfig takes for fields that files leave out."""


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of an EncoderDecoderModel whose two parts are BertGeneration."""
    problems: list[str] = []
    whole = TheirConfig(values, {"decoder_start_token_id": None, "pad_token_id": None}, problems=problems)
    encoder, decoder = (
        TheirConfig(whole[part], DEFAULTS, within=f"{part}.", problems=problems) for part in ("encoder", "decoder")
    )
    for part in (encoder, decoder):
        part.require("model_type", "bert-generation", "other encoders and decoders are not supported")
    encoder.require("is_decoder", False, "an encoder sees both sides of a token")
    decoder.require("is_decoder", True, "a decoder must not see the future")
    decoder.require("add_cross_attention", True, "a decoder attends to the encoder's output")
    settings = read_shape(encoder)
    for field, value in read_shape(decoder).items():
        if value != settings[field]:
            problems.append(f"encoder and decoder must agree in {field} ({settings[field]!r} and {value!r})")
    pad_id = encoder.token("pad_token_id")
    decoder.require("pad_token_id", pad_id, "encoder and decoder must agree in it")
    if whole["pad_token_id"] is not None:
        whole.require("pad_token_id", pad_id, "encoder and decoder have this one")
    has_start = whole["decoder_start_token_id"] is not None
    source_vocab_size, vocab_size = encoder["vocab_size"], decoder["vocab_size"]
    return whole.model_config(
        **settings,
        vocab_size=vocab_size,
        source_vocab_size=None if source_vocab_size == vocab_size else source_vocab_size,
        num_encoder_layers=encoder.layers("num_hidden_layers"),
        num_decoder_layers=decoder.layers("num_hidden_layers"),
        tying="decoder" if decoder["tie_word_embeddings"] else "none",
        output_bias=True,
        pad_id=pad_id,
        bos_id=whole.token("decoder_start_token_id") if has_start else decoder.token("bos_token_id"),
        eos_id=decoder.token("eos_token_id"),
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of an EncoderDecoderConfig."""
    both = {"model_type": "bert-generation", **write_shape(config), "tie_word_embeddings": config.tying != "none"}
    return {
        "architectures": ["EncoderDecoderModel"],
        "model_type": "encoder-decoder",
        "is_encoder_decoder": True,
        "encoder": {**both, "vocab_size": config.source_vocabulary, "num_hidden_layers": config.num_encoder_layers},
        "decoder": {
            **both,
            "vocab_size": config.vocab_size,
            "num_hidden_layers": config.num_decoder_layers,
            "is_decoder": True,
            "add_cross_attention": True,
        },
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        "tie_word_embeddings": config.tying != "none",
    }


def key_table(config: ModelConfig) -> KeyTable:
    """Return the tensors of such a model."""
    words, output = "decoder.bert.embeddings.word_embeddings.weight", "decoder.lm_head.decoder.weight"
    return KeyTable(
        (
            Row(("source_embedding.weight",), "encoder.embeddings.word_embeddings.weight"),
            *embedding_rows("source_embedding.", "encoder.embeddings."),
            *layer_rows(config.num_encoder_layers, "encoder.", "encoder.encoder.", cross_attention=False),
            *target_rows(words, output, are_one=resolved(config).tying == "decoder"),
            *embedding_rows("target_embedding.", "decoder.bert.embeddings."),
            *layer_rows(config.num_decoder_layers, "decoder.", "decoder.bert.encoder.", cross_attention=True),
            Row(("output_proj.bias",), "decoder.lm_head.bias", also=("decoder.lm_head.decoder.bias",)),
        ),
        (LeftOut("*.embeddings.position_ids", "the numbers from 0 on, in old files"),),
    )

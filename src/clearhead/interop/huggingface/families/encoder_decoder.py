"""EncoderDecoderModel of two BERTs or BertGenerations in Hugging Face transformers: settings and tensor names.

BERT has segment embeddings, and a layer between the decoder states and the linear map before the softmax.
BertGeneration has neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.families.bert import embedding_rows, layer_rows, read_shape, write_shape
from clearhead.interop.key_table import KeyRow, KeyTable, LeftOut, pair, target_rows
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.interop.rewrites import resolved

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
    "type_vocab_size": 2,
}
"""Defaults of their classes for fields that files omit; BertConfig itself names no start and end token."""

KINDS = ("bert", "bert-generation")


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of two BERTs or BertGenerations, as encoder and decoder of an EncoderDecoderModel."""
    problems: list[str] = []
    nothing = {"decoder_start_token_id": None, "eos_token_id": None, "pad_token_id": None}
    whole = TheirConfig(values, nothing, problems=problems)
    encoder, decoder = (
        TheirConfig(whole[part], DEFAULTS, within=f"{part}.", problems=problems) for part in ("encoder", "decoder")
    )
    encoder_kind, decoder_kind = (part.one_of("model_type", KINDS) for part in (encoder, decoder))
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
    source_vocab_size, vocab_size = encoder["vocab_size"], decoder["vocab_size"]
    return whole.model_config(
        **settings,
        vocab_size=vocab_size,
        source_vocab_size=None if source_vocab_size == vocab_size else source_vocab_size,
        num_encoder_layers=encoder.layers("num_hidden_layers"),
        num_decoder_layers=decoder.layers("num_hidden_layers"),
        num_segments=encoder["type_vocab_size"] if encoder_kind == "bert" else 0,
        num_target_segments=decoder["type_vocab_size"] if decoder_kind == "bert" else 0,
        tying="decoder" if decoder["tie_word_embeddings"] else "none",
        output_bias=True,
        output_transform=decoder_kind == "bert",
        pad_id=pad_id,
        bos_id=_token(whole, "decoder_start_token_id", decoder, "bos_token_id"),
        eos_id=_token(whole, "eos_token_id", decoder, "eos_token_id"),
    )


def _token(whole: TheirConfig, field: str, decoder: TheirConfig, own: str) -> int:
    """Return a special token id from the whole model's configuration or, if it is missing there, from the decoder's."""
    return decoder.token(own) if whole[field] is None else whole.token(field)


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of an EncoderDecoderConfig."""
    both = {**write_shape(config), "tie_word_embeddings": config.tying != "none"}
    return {
        "architectures": ["EncoderDecoderModel"],
        "model_type": "encoder-decoder",
        "is_encoder_decoder": True,
        "encoder": {
            **both,
            **_kind(config.num_segments > 0, config.num_segments),
            "vocab_size": config.source_vocabulary,
            "num_hidden_layers": config.num_encoder_layers,
        },
        "decoder": {
            **both,
            **_kind(config.output_transform, config.num_target_segments),
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


def _kind(is_bert: bool, num_segments: int) -> dict[str, Any]:
    return {"model_type": "bert", "type_vocab_size": num_segments} if is_bert else {"model_type": "bert-generation"}


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of an EncoderDecoderModel."""
    is_bert = config.output_transform
    head = "decoder.cls.predictions." if is_bert else "decoder.lm_head."
    words, output = "decoder.bert.embeddings.word_embeddings.weight", f"{head}decoder.weight"
    return KeyTable(
        (
            KeyRow(("source_embedding.weight",), "encoder.embeddings.word_embeddings.weight"),
            *embedding_rows("source_embedding.", "encoder.embeddings.", segments=config.num_segments > 0),
            *layer_rows(config.num_encoder_layers, "encoder.", "encoder.encoder.", cross_attention=False),
            *target_rows(words, output, are_one=resolved(config).tying == "decoder"),
            *embedding_rows("target_embedding.", "decoder.bert.embeddings.", segments=config.num_target_segments > 0),
            *layer_rows(config.num_decoder_layers, "decoder.", "decoder.bert.encoder.", cross_attention=True),
            *(_transform_rows(f"{head}transform.") if is_bert else ()),
            KeyRow(("output_proj.bias",), f"{head}bias", also=(f"{head}decoder.bias",)),
        ),
        (
            LeftOut("*.embeddings.position_ids", "the numbers from 0 on, in old files"),
            LeftOut("encoder.pooler.dense.*", "a layer above the encoder, over its first state"),
        ),
    )


def _transform_rows(theirs: str) -> list[KeyRow]:
    return [*pair("output_transform.proj", f"{theirs}dense"), *pair("output_transform.norm", f"{theirs}LayerNorm")]

"""T5, Flan-T5 and mT5 in Hugging Face transformers: settings and tensor names.

Their attention does not divide by sqrt(d_k). The first T5 has one matrix for embeddings and output, and divides the
decoder states by sqrt(d_model) before it. T5 1.1, Flan-T5 and mT5 have a separate output matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.key_table import KeyRow, KeyTable, LeftOut, numbered
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name
from clearhead.interop.rewrites import resolved

DEFAULTS: Mapping[str, Any] = {
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-6,
    "num_decoder_layers": None,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": True,
}
"""Defaults of T5Config for fields that files omit; `decoder_start_token_id` is MT5Config's."""


def as_stored(values: Mapping[str, Any], state: Mapping[str, Tensor]) -> Mapping[str, Any]:
    """Return the fields of `config.json` with output settings that agree with the tensors, as transformers reads them.

    Since version 5, transformers writes `tie_word_embeddings` for every model. So the tensors decide whether there is
    one matrix or two. The field `scale_decoder_outputs` decides whether the decoder states are divided; in older files
    without it, `tie_word_embeddings` decides.
    """
    if not isinstance(values, Mapping):
        return values
    words = next((state[name] for name in SHARED if name in state), None)
    output = state.get("lm_head.weight")
    are_one = words is None or output is None or torch.equal(words, output)
    return {**values, "scale_decoder_outputs": _divides(values), "tie_word_embeddings": are_one}


def config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of T5 and Flan-T5: pre-norm with RMSNorm, relative positions, no biases.

    Its start token, usually the padding token, becomes `bos_id`.
    """
    their = TheirConfig(values, DEFAULTS)
    return _config_from(their, output_scale=_divides(values))


def mt5_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of mT5: T5, but it never divides the decoder states."""
    their = TheirConfig(values, {**DEFAULTS, "feed_forward_proj": "gated-gelu"})
    return _config_from(their, output_scale=False)


def _divides(values: Mapping[str, Any]) -> bool:
    return bool(values.get("scale_decoder_outputs", values.get("tie_word_embeddings", True)))


def _config_from(their: TheirConfig, *, output_scale: bool) -> ModelConfig:
    their.require("is_encoder_decoder", True, "T5 is supported with both of its sides")
    name = their["feed_forward_proj"]
    # "gated-gelu" means the tanh form of GELU, not GELU itself.
    activation = "gelu_new" if name == "gated-gelu" else str(name).removeprefix("gated-")
    has_own = their["num_decoder_layers"] is not None
    return their.model_config(
        vocab_size=their["vocab_size"],
        d_model=their["d_model"],
        d_ff=their["d_ff"],
        num_heads=their["num_heads"],
        d_k=their["d_kv"],
        d_v=their["d_kv"],
        num_encoder_layers=their.layers("num_layers"),
        num_decoder_layers=their.layers("num_decoder_layers" if has_own else "num_layers"),
        dropout=their["dropout_rate"],
        attention_dropout=their["dropout_rate"],
        feed_forward_dropout=their["dropout_rate"],
        norm="pre",
        norm_kind="rms",
        norm_eps=their["layer_norm_epsilon"],
        activation=their.activation("feed_forward_proj", activation),
        gated=str(name).startswith("gated-"),
        attention_scale=False,
        feed_forward_bias=False,
        output_scale=output_scale,
        positions="relative",
        relative_attention_num_buckets=their["relative_attention_num_buckets"],
        relative_attention_max_distance=their["relative_attention_max_distance"],
        tying="three-way" if their["tie_word_embeddings"] else "embeddings",
        embedding_scale=False,
        pad_id=their.token("pad_token_id"),
        bos_id=their.token("decoder_start_token_id"),
        eos_id=their.token("eos_token_id"),
    )


def config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a T5Config."""
    activation = "gelu" if config.gated and config.activation == "gelu_tanh" else activation_name(config.activation)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.key_dim,
        "d_ff": config.d_ff,
        "num_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "num_heads": config.num_heads,
        "relative_attention_num_buckets": config.relative_attention_num_buckets,
        "relative_attention_max_distance": config.relative_attention_max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm_eps,
        "feed_forward_proj": f"gated-{activation}" if config.gated else activation,
        "tie_word_embeddings": config.tying == "three-way",
        "scale_decoder_outputs": config.output_scale,
        "pad_token_id": config.pad_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
    }


def mt5_config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of an MT5Config."""
    return {**config_to(config), "architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5"}


SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Their names of the shared embedding matrix."""


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of a T5ForConditionalGeneration."""
    words, *copies = SHARED
    if resolved(config).tying == "three-way":
        rows = [KeyRow(("source_embedding.weight",), words, also=(*copies, "lm_head.weight"))]
    else:
        rows = [_weight("output_proj", "lm_head"), KeyRow(("source_embedding.weight",), words, also=tuple(copies))]
    for side, count in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        layer = _layer(is_gated=config.gated, is_decoder=side == "decoder")
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{side}.block.{{i}}.layer.")
        # All layers share one table, stored in the first layer.
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        rows.append(_weight(f"{side}.relative_positions", table))
        rows.append(_weight(f"{side}.final_norm", f"{side}.final_layer_norm"))
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    return KeyTable(tuple(rows), (LeftOut(unread, "in old files; cross-attention sees no positions"),))


def _layer(*, is_gated: bool, is_decoder: bool) -> list[KeyRow]:
    last = 2 if is_decoder else 1
    network = {"gate_proj": "wi_0", "up_proj": "wi_1"} if is_gated else {"up_proj": "wi"}
    return [
        *_attention("self_attn", "0", "SelfAttention"),
        *(_attention("cross_attn", "1", "EncDecAttention") if is_decoder else ()),
        *(
            _weight(f"feed_forward.{ours}", f"{last}.DenseReluDense.{theirs}")
            for ours, theirs in {**network, "down_proj": "wo"}.items()
        ),
        _weight("feed_forward_residual.norm", f"{last}.layer_norm"),
    ]


def _attention(ours: str, number: str, theirs: str) -> list[KeyRow]:
    return [
        *(_weight(f"{ours}.{part}_proj", f"{number}.{theirs}.{part[0]}") for part in ("q", "k", "v", "out")),
        _weight(f"{ours}_residual.norm", f"{number}.layer_norm"),
    ]


def _weight(ours: str, theirs: str) -> KeyRow:
    """Return the row of a module without a bias."""
    return KeyRow((f"{ours}.weight",), f"{theirs}.weight")

"""BART and its like in Hugging Face transformers: settings and key table of BART, mBART, Pegasus, Marian and M2M100.

They differ in where their norms are, in their positions, and in defaults of fields that files omit.

Marian is the paper's post-norm, with biases and sines before cosines; the published opus-mt models are of this kind.
Our own post-norm models can be written in it exactly: the interleaved sinusoids of section 3.5 are Marian's with their
columns in another order (`rewrites.with_sine_halves`). CTranslate2 reads this form too, but sets the start token's
embedding to zero, as in models trained with Marian. Our models learn a vector for it, and need a converter that keeps
it. Pegasus has Marian's form with norms before the sub-layers and after the stacks. In transformers, only Pegasus has
pre-norm and computed positions with the paper's wavelengths, so our own pre-norm models can be written exactly in it.

M2M100 and NLLB were trained with fairseq, which numbers positions from the padding id plus 1 and gives padding no
position. Therefore a target cannot start with the padding token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.interop.key_table import (
    AFTER_TWO_ROWS,
    ONE_ROW,
    Computed,
    KeyRow,
    KeyTable,
    LeftOut,
    numbered,
    pair,
    target_rows,
)
from clearhead.interop.readers.foreign_config import TheirConfig, activation_name
from clearhead.interop.rewrites import resolved
from clearhead.model.positions import sinusoidal_positions

_DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "attention_dropout": 0.0,
    "scale_embedding": False,
    "tie_word_embeddings": True,
}
"""Defaults of most configuration classes for fields that files omit."""


def bart_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of BART: post-norm, learned positions, a norm over embedding plus position.

    Its start token, usually the end token, becomes `bos_id`.
    """
    their = TheirConfig(values, {**_DEFAULTS, "activation_function": "gelu"})
    form = _form(their, "BART", positions="learned", embedding_norm=True)
    their.require("extra_pos_embeddings", 2, "BART's positions follow two other rows")
    return _config(their, **form, output_bias=True)


def mbart_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of mBART: BART with norms before the sub-layers and one after the last layer.

    Its start token becomes `bos_id`: the target-language token or, in mBART-50, the end token.
    """
    their = TheirConfig(values, {**_DEFAULTS, "activation_function": "gelu"})
    return _config(
        their, **_form(their, "mBART", norm="pre", positions="learned", embedding_norm=True), output_bias=True
    )


def pegasus_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of Pegasus: Marian's form with norms before the sub-layers and after the stacks."""
    their = TheirConfig(values, _DEFAULTS)
    return _config(their, **_form(their, "Pegasus", norm="pre", positions="sinusoidal_halves"), output_bias=True)


def m2m100_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of M2M100 and NLLB: pre-norm with final norms, tensor2tensor's sinusoids.

    Its start token, usually the end token, becomes `bos_id`.
    """
    own = {"activation_function": "relu", "attention_dropout": 0.1, "scale_embedding": True}
    their = TheirConfig(values, {**_DEFAULTS, **own})
    their.require("tie_word_embeddings", True, "M2M100 has one matrix for embeddings and output")
    their.require("normalize_before", True, "M2M100's norm is before the sub-layer")
    their.require("normalize_embedding", False, "M2M100 has no norm over the embedding")
    settings = _settings(their, norm="pre", positions="sinusoidal_t2t")
    pad_id, most = settings["pad_id"], settings["max_positions"]
    if pad_id == settings["bos_id"]:
        their.problems.append("decoder_start_token_id is pad_token_id, which has no position in M2M100")
    if isinstance(most, int) and pad_id >= most + 2:
        their.problems.append(
            f"pad_token_id is {pad_id}, but has a row among M2M100's max_position_embeddings + 2 = {most + 2} positions"
        )
    return their.model_config(**settings, first_position=pad_id + 1)


def marian_config_from(values: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of Marian models: the paper's post-norm, with biases and sines before cosines.

    Their start token, usually the padding token, becomes `bos_id`.
    """
    own = {"decoder_vocab_size": None, "share_encoder_decoder_embeddings": True}
    their = TheirConfig(values, {**_DEFAULTS, **own})
    form = _form(their, "Marian", positions="sinusoidal_halves", is_tied=False)
    shared = their["share_encoder_decoder_embeddings"]
    vocab_size = their["decoder_vocab_size"] or their["vocab_size"]
    if shared:
        their.require("tie_word_embeddings", True, "share_encoder_decoder_embeddings makes the output one with them")
        if their["decoder_vocab_size"] is not None:
            their.same("decoder_vocab_size", "vocab_size")
    return _config(
        their,
        **form,
        vocab_size=vocab_size,
        source_vocab_size=None if vocab_size == their["vocab_size"] else their["vocab_size"],
        tying="three-way" if shared else "decoder" if their["tie_word_embeddings"] else "none",
        output_bias=True,
    )


def marian_config_to(config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a MarianConfig."""
    return {
        **config_to("MarianMTModel", "marian", config),
        "vocab_size": config.source_vocabulary,
        "decoder_vocab_size": config.vocab_size,
        "share_encoder_decoder_embeddings": config.tying == "three-way",
    }


def _form(
    their: TheirConfig,
    name: str,
    *,
    positions: str,
    norm: str = "post",
    embedding_norm: bool = False,
    is_tied: bool = True,
) -> dict[str, Any]:
    """Require the form of a family, and return it as our settings."""
    is_pre, of = norm == "pre", f"{name}'" if name.endswith("s") else f"{name}'s"
    if is_tied:
        their.require("tie_word_embeddings", True, f"{name} has one matrix for embeddings and output")
    their.require("normalize_before", is_pre, f"{of} norm is {'before' if is_pre else 'after'} the sub-layer")
    over, behind = ("a" if has_norm else "no" for has_norm in (embedding_norm, is_pre))
    their.require("normalize_embedding", embedding_norm, f"{name} has {over} norm over the embedding")
    their.require("add_final_layer_norm", is_pre, f"{name} has {behind} norm after the last layer")
    how = "learned" if positions == "learned" else "computed"
    their.require("static_position_embeddings", how == "computed", f"{of} positions are {how}")
    return {"norm": norm, "positions": positions, "embedding_norm": embedding_norm}


def _config(their: TheirConfig, **settings: Any) -> ModelConfig:
    """Return our settings from the fields that these families share, and those of one family."""
    return their.model_config(**_settings(their, **settings))


def _settings(their: TheirConfig, **settings: Any) -> dict[str, Any]:
    return dict(
        d_model=their["d_model"],
        d_ff=their.same("encoder_ffn_dim", "decoder_ffn_dim"),
        num_heads=their.same("encoder_attention_heads", "decoder_attention_heads"),
        num_encoder_layers=their.layers("encoder_layers"),
        num_decoder_layers=their.layers("decoder_layers"),
        dropout=their["dropout"],
        attention_dropout=their["attention_dropout"],
        feed_forward_dropout=their["activation_dropout"],
        activation=their.activation("activation_function"),
        embedding_scale=their["scale_embedding"],
        max_positions=their.positions("max_position_embeddings"),
        attention_bias=True,
        pad_id=their.token("pad_token_id"),
        bos_id=their.token("decoder_start_token_id"),
        eos_id=their.token("eos_token_id"),
        **{"vocab_size": their["vocab_size"], **settings},
    )


def config_to(architecture: str, model_type: str, config: ModelConfig) -> dict[str, Any]:
    """Return the fields of a configuration class that these families share.

    Args:
        architecture: Name of the model class.
        model_type: Their name of the family.
        config: Our settings.
    """
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feed_forward_dropout,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "activation_function": activation_name(config.activation),
        "scale_embedding": config.embedding_scale,
        "max_position_embeddings": config.max_positions,
        "pad_token_id": config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "decoder_start_token_id": config.bos_id,
        # Otherwise transformers would add a free end token at the length limit; ours counts its log-probability.
        "forced_eos_token_id": None,
        "tie_word_embeddings": config.tying != "none",
    }


def _attention(ours: str, theirs: str) -> list[KeyRow]:
    return [
        row for name in ("q_proj", "k_proj", "v_proj", "out_proj") for row in pair(f"{ours}.{name}", f"{theirs}.{name}")
    ]


ENCODER_LAYER = (
    *_attention("self_attn", "self_attn"),
    *pair("self_attn_residual.norm", "self_attn_layer_norm"),
    *pair("feed_forward.up_proj", "fc1"),
    *pair("feed_forward.down_proj", "fc2"),
    *pair("feed_forward_residual.norm", "final_layer_norm"),
)

DECODER_LAYER = (
    *ENCODER_LAYER,
    *_attention("cross_attn", "encoder_attn"),
    *pair("cross_attn_residual.norm", "encoder_attn_layer_norm"),
)


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of an encoder-decoder in this shape; the settings decide which tensors it has."""
    config = resolved(config)
    rows = _embeddings(config) + stack_rows(config, "model.")
    if config.output_bias:
        rows.append(KeyRow(("output_proj.bias",), "final_logits_bias", ONE_ROW, zeros=(1, config.vocab_size)))
    return KeyTable(tuple(rows), tuple(computed_positions(config, "model.")), prefix="model.")


def stack_rows(config: ModelConfig, prefix: str) -> list[KeyRow]:
    """Return the rows of both stacks with their norms and learned positions, in fairseq's names.

    Args:
        config: Resolved settings.
        prefix: Prefix of their tensor names.
    """
    rows = []
    for ours, side, layer, count in (
        ("source", "encoder", ENCODER_LAYER, config.num_encoder_layers),
        ("target", "decoder", DECODER_LAYER, config.num_decoder_layers),
    ):
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{prefix}{side}.layers.{{i}}.")
        if config.final_norm:
            rows += pair(f"{side}.final_norm", f"{prefix}{side}.layer_norm")
        if config.embedding_norm:
            rows += pair(f"{ours}_embedding.norm", f"{prefix}{side}.layernorm_embedding")
        if config.positions == "learned":
            name = f"{prefix}{side}.embed_positions.weight"
            rows.append(KeyRow((f"{ours}_embedding.positions.weight",), name, AFTER_TWO_ROWS))
    return rows


def _embeddings(config: ModelConfig) -> list[KeyRow]:
    shared, source, target, output = (
        "model.shared.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
        "lm_head.weight",
    )
    if config.tying == "three-way":
        return [KeyRow(("source_embedding.weight",), shared, also=(source, target, output))]
    rows = target_rows(target, output, are_one=config.tying == "decoder")
    return [KeyRow(("source_embedding.weight",), source), *rows]


def computed_positions(config: ModelConfig, prefix: str) -> list[LeftOut]:
    """Return entries for the tables of sinusoids, which old files contain and our model computes.

    Args:
        config: Our settings.
        prefix: Prefix of their tensor names.
    """

    def table(rows: int) -> Tensor:
        positions = sinusoidal_positions(rows, config.d_model, "sinusoidal_t2t" if is_t2t else "sinusoidal_halves")
        if is_t2t:
            positions[config.pad_id : config.pad_id + 1] = 0.0  # transformers zeroes the padding token's row
        return positions

    is_t2t = config.positions == "sinusoidal_t2t"
    if not is_t2t and config.positions != "sinusoidal_halves":
        return []
    name = "weights" if is_t2t else "weight"
    computed = Computed(table, config.max_positions + 2 * is_t2t)
    return [
        LeftOut(f"{prefix}{side}.embed_positions.{name}", "computed from the position", computed)
        for side in ("encoder", "decoder")
    ]

"""Import of Transformers of OpenNMT-py 2 and 3: pre-norm, also gated or with RMSNorm.

A checkpoint includes its vocabularies: as lists in version 3, as torchtext objects before. Based on its public source
(2.3 and 3.5: model_builder.py, models/model_saver.py, inputters).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.files.tensors import read_weights
from clearhead.interop.imported import Imported
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.interop.readers.foreign_weights import float32, read_checkpoint, require_finite, settings_in, tensors_in
from clearhead.interop.readers.pickles import Record
from clearhead.interop.toolkits.opennmt_layout import (
    ACTIVATIONS,
    NORMS,
    OPENNMT_PY,
    POSITIONS,
    SEARCH,
    bias_settings,
    chosen,
    key_table,
    tying,
)
from clearhead.interop.toolkits.opennmt_vocabulary import Lists, transform_notes
from clearhead.interop.toolkits.shared import checkpoint_at, flat_positions, put_together
from clearhead.interop.vocabularies.word_vocabulary import word_vocabulary

_ACTIVATIONS = {**ACTIVATIONS, "silu": ("silu", True)}
_SINUSOIDS = {name: kind for name, kind in POSITIONS.items() if kind.startswith("sinusoidal")}

DEFAULTS: Mapping[str, Any] = {
    "attention_dropout": 0.0,
    "dropout": 0.0,
    "layer_norm": "standard",
    "norm_eps": 1e-6,
    "pos_ffn_activation_fn": "relu",
    "position_encoding": False,
    "position_encoding_type": "SinusoidalInterleaved",
    "self_attn_type": "scaled-dot",
}
"""Defaults of OpenNMT-py for options that old files omit."""

_ELSEWHERE: Mapping[str, Any] = {
    "copy_attn": False,
    "decoder_type": "transformer",
    "encoder_type": "transformer",
    "lora_embedding": False,
    "lora_layers": [],
    "max_relative_positions": 0,
    "model_task": "seq2seq",
    "model_type": "text",
    "multiquery": False,
    "num_experts": 0,
    "num_kv": 0,
    "parallel_residual": False,
    "quant_layers": [],
    "relative_positions_buckets": 0,
    "sliding_window": 0,
}
"""Options of features that our model lacks, and the value that disables each."""


def import_opennmt(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read an OpenNMT-py checkpoint.

    Args:
        path: The checkpoint, or a directory with only this checkpoint.
        kind: Ignored; OpenNMT-py has only one kind of model.
        source_lang: Source language; None for the one in the checkpoint.
        target_lang: Must be None: the model has no target-language tokens.

    Raises:
        ConfigError: Naming every option that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    file = checkpoint_at(path, ".pt", ())
    checkpoint = read_checkpoint(file)
    options = settings_in(checkpoint.get("opt"))
    if options is None:
        known = "; one of fairseq needs dict.<language>.txt beside it" if {"args", "cfg"} & checkpoint.keys() else ""
        raise ModelError(f"{file} is no checkpoint of OpenNMT-py: opt holds no settings by name{known}")
    state, files = _state(checkpoint, file)
    vocab = settings_in(checkpoint.get("vocab")) or {}
    lists = Lists(
        source=_pieces(vocab.get("src"), f"{file}: vocab.src"),
        target=_pieces(vocab.get("tgt"), f"{file}: vocab.tgt"),
        start=str(vocab.get("decoder_start_token", "<s>")),
        origin=f"{file}: vocab",
    )
    lists.require_rows(state, OPENNMT_PY, file)
    config = config_from(options, {**lists.model_settings(), **bias_settings(state, OPENNMT_PY)}, file)
    transforms = options.get("transforms")
    named = options.get("src_subword_model"), options.get("tgt_subword_model")
    source, target = lists.sides(file.parent, transforms, named)
    return put_together(
        "OpenNMT-py",
        "transformer",
        file,
        config,
        key_table(config, OPENNMT_PY).from_theirs(state, origin=str(file)),
        word_vocabulary(config, source, target, ("text",)),
        files=files,
        languages=(source_lang or options.get("src_lang"), target_lang),
        notes=transform_notes(transforms, source, target),
        **SEARCH,
    )


def config_from(options: Mapping[str, Any], settings: Mapping[str, Any], origin: object) -> ModelConfig:
    """Return our settings of a model.

    Args:
        options: Training options of the model.
        settings: Our settings that tensors and vocabulary determine.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every option that our model cannot express.
    """
    their = TheirConfig(options, DEFAULTS, origin=origin)
    their.nothing_else(_ELSEWHERE)
    chosen(their, "self_attn_type", {"scaled-dot": None, "scaled-dot-flash": None})
    width = next((name for name in ("enc_hid_size", "enc_rnn_size") if name in options), "enc_hid_size")
    for field in (width.replace("enc", "dec"), "src_word_vec_size", "tgt_word_vec_size"):
        their.same(field, width)
    positions = chosen(their, "position_encoding_type", _SINUSOIDS) if their["position_encoding"] else "none"
    activation, gated = chosen(their, "pos_ffn_activation_fn", _ACTIVATIONS) or ("relu", False)
    return their.model_config(
        **settings,
        d_model=their[width],
        d_ff=their["transformer_ff"],
        num_heads=their["heads"],
        num_encoder_layers=their.layers("enc_layers"),
        num_decoder_layers=their.layers("dec_layers"),
        dropout=_first(their["dropout"]),
        attention_dropout=_first(their["attention_dropout"]),
        feed_forward_dropout=_first(their["dropout"]),
        norm="pre",
        norm_kind=chosen(their, "layer_norm", NORMS),
        norm_eps=their["norm_eps"],
        activation=activation,
        gated=gated,
        positions=positions,
        embedding_scale=positions != "none",  # their sinusoid module scales the embeddings
        tying=tying(options),
    )


def _state(checkpoint: Mapping[str, Any], path: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """Return all tensors, including the generator's, and their files."""
    if "model" in checkpoint:
        generator = {name.split(".")[-1]: tensor for name, tensor in tensors_in(checkpoint, "generator", path).items()}
        state = tensors_in(checkpoint, "model", path)
        state |= {f"generator.{name}": tensor for name, tensor in generator.items()}
        return flat_positions(state), [path]
    weights = path.with_suffix(".safetensors")
    return flat_positions(require_finite(float32(read_weights(weights)[0]), weights)), [path, weights]


def _pieces(values: object, where: str) -> list[str]:
    """Return the word list of one side, which old files keep in torchtext objects.

    Raises:
        ModelError: If there is no word list.
    """
    for key in ("fields", "vocab", "itos"):
        if isinstance(values, Record):
            values = (settings_in(values) or {}).get(key)
        if key == "fields" and isinstance(values, list) and values and isinstance(values[0], tuple):
            values = values[0][-1]  # pairs of name and field; further pairs would be word features
    if not isinstance(values, list) or not all(isinstance(word, str) for word in values):
        raise ModelError(f"{where} holds no list of words")
    return values


def _first(value: object) -> object:
    """Return the dropout rate; of a list with one rate per training phase, the first."""
    return value[0] if isinstance(value, list) and value else value

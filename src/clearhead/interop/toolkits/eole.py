"""Import of eole's Transformers (OpenNMT-py's successor): pre-norm, also gated, with RMSNorm or learned positions.

Based on its public source (0.6: config/models.py, models/model_saver.py, inputters). A setting in the configuration
applies to the whole model or to one part; the part's value takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.files import read_json
from clearhead.files.tensors import read_weights
from clearhead.interop.imported import Imported
from clearhead.interop.readers.foreign_config import TheirConfig, file_json
from clearhead.interop.readers.foreign_weights import float32, require_finite
from clearhead.interop.toolkits.opennmt_layout import (
    ACTIVATIONS,
    EOLE,
    NORMS,
    POSITIONS,
    SEARCH,
    bias_settings,
    chosen,
    key_table,
    tying,
)
from clearhead.interop.toolkits.opennmt_vocabulary import Lists, transform_notes
from clearhead.interop.toolkits.shared import flat_positions, put_together, section
from clearhead.interop.vocabularies.word_vocabulary import word_vocabulary

DEFAULTS: Mapping[str, Any] = {
    "heads": 8,
    "hidden_size": 512,
    "layer_norm": "standard",
    "layers": 2,
    "mlp_activation_fn": "relu",
    "n_positions": None,
    "norm_eps": 1e-5,
    "position_encoding_type": "SinusoidalInterleaved",
    "src_word_vec_size": 512,
    "tgt_word_vec_size": 512,
    "transformer_ff": 2048,
}
"""Defaults of eole for settings that a configuration omits."""

_ELSEWHERE: Mapping[str, Any] = {
    "architecture": "transformer",
    "decoder_type": "transformer",
    "encoder_layer_style": "standard",
    "encoder_type": "transformer",
    "ffn_layernorm": False,
    "final_encoder_layer_norm": True,
    "normalize": False,
    "num_experts": 0,
    "num_mtp_heads": 0,
    "parallel_residual": False,
    "position_shift": 0,
    "q_gating": False,
    "query_norm": False,
    "sliding_window": 0,
}
"""Settings of features that our model lacks, and the value that disables each."""


def import_eole(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a directory of eole.

    Args:
        path: The directory.
        kind: Ignored; eole has only one kind of model.
        source_lang: Source language, or None if unknown.
        target_lang: Must be None: the model has no target-language tokens.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    origin = path / "config.json"
    values = read_json(origin, ModelError)
    state, files = _state(path)
    lists = _lists(path / "vocab.json")
    lists.require_rows(state, EOLE, path)
    config = config_from(
        section(values, "model", origin), {**lists.model_settings(), **bias_settings(state, EOLE)}, origin
    )
    transforms = values.get("transforms")
    configured = section(values, "transforms_configs", origin, optional=True)
    splits = section(configured, "sentencepiece", origin, optional=True) or section(
        configured, "bpe", origin, optional=True
    )
    source, target = lists.sides(path, transforms, (splits.get("src_subword_model"), splits.get("tgt_subword_model")))
    return put_together(
        "eole",
        "transformer",
        path,
        config,
        key_table(config, EOLE).from_theirs(state, origin=str(path)),
        word_vocabulary(config, source, target, ("text",)),
        files=files,
        languages=(source_lang, target_lang),
        notes=transform_notes(transforms, source, target),
        **SEARCH,
    )


def config_from(model: Mapping[str, Any], settings: Mapping[str, Any], origin: object) -> ModelConfig:
    """Return our settings of a model.

    Args:
        model: Section `model` of the configuration.
        settings: Our settings that tensors and vocabulary determine.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
    """
    problems: list[str] = []
    embeddings = section(model, "embeddings", origin, within="model.", optional=True)
    width = embeddings.get("word_vec_size", -1)
    widths = {f"{side}_word_vec_size": width for side in ("src", "tgt")} if width != -1 else {}
    encoder, decoder = (
        TheirConfig(
            {**model, **embeddings, **widths, **section(model, part, origin, within="model.", optional=True)},
            DEFAULTS,
            within=f"model.{part}.",
            problems=problems,
            origin=origin,
        )
        for part in ("encoder", "decoder")
    )
    for part, side in ((encoder, "src"), (decoder, "tgt")):
        part.nothing_else(_ELSEWHERE)
        for field in ("heads_kv", "head_dim", "attn_scaling"):
            part.require(field, None, "our attention has no other form")
        part.same(f"{side}_word_vec_size", "hidden_size")
    encoder.agree(decoder, "hidden_size", "transformer_ff", "heads", "layer_norm", "norm_eps", "mlp_activation_fn")
    encoder.agree(decoder, "n_positions", "position_encoding_type")
    positions = chosen(encoder, "position_encoding_type", POSITIONS)
    activation, gated = chosen(encoder, "mlp_activation_fn", ACTIVATIONS) or ("relu", False)
    return encoder.model_config(
        **settings,
        d_model=encoder["hidden_size"],
        d_ff=encoder["transformer_ff"],
        num_heads=encoder["heads"],
        num_encoder_layers=encoder.layers("layers"),
        num_decoder_layers=decoder.layers("layers"),
        norm="pre",
        norm_kind=chosen(encoder, "layer_norm", NORMS),
        norm_eps=encoder["norm_eps"],
        activation=activation,
        gated=gated,
        positions=positions,
        max_positions=encoder["n_positions"] if positions == "learned" else 1_024,
        embedding_scale=positions not in ("learned", "none"),  # their sinusoid module scales the embeddings
        tying=tying(model),
    )


def _state(directory: Path) -> tuple[dict[str, Tensor], list[Path]]:
    files = sorted(directory.glob("model.*.safetensors"))
    if not files:
        raise ModelError(f"{directory} holds no weights: no model.00.safetensors")
    state: dict[str, Tensor] = {}
    for file in files:
        state |= require_finite(float32(read_weights(file)[0]), file)
    return flat_positions(state), files


def _lists(path: Path) -> Lists:
    """Return the word lists of both sides."""
    vocab = file_json(path)
    sides = [vocab.get(side) for side in ("src", "tgt")] if isinstance(vocab, dict) else []
    lists = [words for words in sides if isinstance(words, list) and all(isinstance(word, str) for word in words)]
    if len(lists) != 2:
        raise ModelError(f"{path} is damaged: it must hold src and tgt as lists of words")
    specials = section(vocab, "specials", path, optional=True)
    names = {name: str(specials[f"{name}_token"]) for name in ("pad", "eos", "unk") if f"{name}_token" in specials}
    return Lists(lists[0], lists[1], start=str(vocab.get("decoder_start_token", "<s>")), origin=str(path), **names)

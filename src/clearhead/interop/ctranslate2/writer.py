"""Export of models to CTranslate2 directories, through CTranslate2's Transformer specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config import ModelConfig
from clearhead.config.choices import ForeignPrecision
from clearhead.config.known import unknown_settings
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import model_tensors
from clearhead.interop.ctranslate2.attention import attention_numbers, other_row
from clearhead.interop.ctranslate2.parity import search_arguments
from clearhead.interop.ctranslate2.pieces import SubwordPieces, listed_pieces, told_in_tokens
from clearhead.interop.ctranslate2.table import ACTIVATIONS, EXPRESSIBLE, key_table
from clearhead.interop.huggingface.state import FAMILIES, exportable_as
from clearhead.interop.huggingface.tokenizer import kind_and_tokenizer, onnx_instead
from clearhead.interop.rewrites import resolved
from clearhead.interop.round_trip import KEY, origin_values
from clearhead.interop.vocabularies.vocabulary_files import (
    tokenizer_text,
    tokens_beside_sentencepiece,
    vocabulary_files,
    write_files,
)
from clearhead.model.positions import sinusoidal_positions
from clearhead.runtime.installation import pip_install


def write_ctranslate2(bundle: Bundle, directory: Path, precision: ForeignPrecision) -> tuple[SubwordPieces, list[str]]:
    """Write a model and its vocabulary to a directory.

    Args:
        bundle: The model.
        directory: An existing, empty directory.
        precision: Precision of the written weights.

    Returns:
        The token lists, and notes on the tokens that a user must add to a text.

    Raises:
        ConfigError: Naming every setting that CTranslate2 does not support.
        ModelError: If CTranslate2 is not installed.
        OSError: If the files cannot be written.
    """
    vocabulary, config = bundle.tokenizer, resolved(bundle.config)
    spec = _specification(bundle, config)
    pieces, files = listed_pieces(vocabulary), vocabulary_files(vocabulary)
    if added := tokens_beside_sentencepiece(vocabulary):
        tokenizer = kind_and_tokenizer(bundle, exportable_as(bundle.config) or FAMILIES)[1]
        files = {**files, **tokenizer.files, "tokenizer_config.json": tokenizer_text(tokenizer.settings).encode()}
    spec.register_source_vocabulary(list(pieces.source))
    spec.register_target_vocabulary(list(pieces.target))
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = pieces.bos, pieces.eos, pieces.unk
    spec.config.decoder_start_token = pieces.start
    spec.config.add_source_bos, spec.config.add_source_eos = pieces.adds_bos, pieces.adds_eos
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.config.add_attribute(KEY, origin_values(bundle, files))
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(directory))
    write_files(directory, files)
    notes = told_in_tokens(vocabulary, pieces, bundle.decode)
    if added:
        notes.append(
            f"the added tokens ({', '.join(added):.100}) are not in sentencepiece's file: encode and decode with "
            f"transformers.AutoTokenizer.from_pretrained of this directory, which reads them"
        )
    if arguments := search_arguments(bundle.decode):
        said = ", ".join(f"{name}={value}" for name, value in arguments.items())
        notes.append(f"CTranslate2's models store no search settings: give translate_batch {said}")
    return pieces, notes


def _specification(bundle: Bundle, config: ModelConfig) -> Any:
    """Return CTranslate2's specification of a model, with its weights.

    Args:
        bundle: The model.
        config: Its configuration, resolved.

    Raises:
        ConfigError: Naming every setting that CTranslate2 does not support.
        ModelError: If CTranslate2 is not installed.
    """
    try:
        from ctranslate2.specs import TransformerSpec, common_spec
        from ctranslate2.specs.model_spec import index_spec
        from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
    except ImportError:
        raise ModelError(f"CTranslate2 is not installed: {pip_install('interop')}") from None
    _require_expressible(bundle, config)
    shape: dict[str, Any] = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm == "pre",
        "no_final_norm": not config.final_norm,
        "activation": getattr(common_spec.Activation, ACTIVATIONS[config.activation]),
        "layernorm_embedding": config.embedding_norm,
        "relative_attention_bias": config.positions == "relative",
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0 rotates all components
        "ffn_glu": config.gated,
        "rms_norm": config.norm_kind == "rms",
    }
    spec = TransformerSpec(
        TransformerEncoderSpec(config.num_encoder_layers, **shape),
        TransformerDecoderSpec(config.num_decoder_layers, **shape),
    )
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = config.embedding_scale
        if config.positions.startswith("sinusoidal"):
            stack.position_encodings.encodings = _sinusoids(config)
    if config.output_scale:
        spec.decoder.scale_outputs = np.float32(config.d_model**-0.5)
    table = key_table(config)
    tensors = table.to_theirs(model_tensors(bundle.model))
    variables: dict[str, Any] = {
        name: _numbers(tensors[row.theirs]) for row in table.rows for name in (row.theirs, *row.also)
    }
    for name, value in {**variables, **attention_numbers(config)}.items():
        scope, _, attribute = name.rpartition("/")
        setattr(index_spec(spec, scope), attribute, value)
    return spec


def _require_expressible(bundle: Bundle, config: ModelConfig) -> None:
    """Check that CTranslate2's Transformer supports these settings.

    Raises:
        ConfigError: Naming every setting that it does not support.
    """
    wanted = {
        "d_v": config.d_k,  # keys and values are halves of one matrix
        "final_norm": config.norm == "pre",
    }
    problems = [
        f"model.{name} is {getattr(config, name)!r} (CTranslate2 has {value!r})"
        for name, value in wanted.items()
        if getattr(config, name) != value
    ]
    problems += unknown_settings(config, EXPRESSIBLE)
    buckets, distance = config.relative_attention_num_buckets, config.relative_attention_max_distance
    if config.positions == "relative" and (where := other_row(buckets, distance)) is not None:
        said = f"of {buckets} rows distance {where} has another there"
        problems.append(f"model.relative_attention_max_distance is {distance} ({said})")
    if not config.num_encoder_layers or not config.num_decoder_layers:
        problems.append("the model has an encoder or a decoder alone")
    if problems:
        raise ConfigError(f"CTranslate2 cannot hold this model: {'; '.join(problems)}{onnx_instead(bundle)}")


def _sinusoids(config: ModelConfig) -> np.ndarray:
    layout: Any = config.positions
    return _numbers(sinusoidal_positions(config.max_positions, config.d_model, layout, first=config.first_position))


def _numbers(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.float().cpu().numpy())  # a copy: CTranslate2 rounds in place

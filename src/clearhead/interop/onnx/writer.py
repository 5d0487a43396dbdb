"""Export of models to ONNX directories in the layout of Hugging Face Optimum."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clearhead.bundle import Bundle
from clearhead.config.choices import ForeignPrecision
from clearhead.config.known import unknown_settings
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.huggingface.state import FAMILIES, exportable_as
from clearhead.interop.huggingface.tokenizer import TheirTokenizer, kind_and_tokenizer
from clearhead.interop.huggingface.writer import write_settings
from clearhead.interop.vocabularies.vocabulary_files import tokens_beside_sentencepiece, vocabulary_files
from clearhead.runtime.installation import pip_install


def write_onnx(bundle: Bundle, directory: Path, precision: ForeignPrecision) -> list[str]:
    """Write encoder, decoder, decoder with cache, vocabulary and search settings to a directory.

    Args:
        bundle: The model.
        directory: An existing, empty directory.
        precision: Precision of the weights, float32 or int8.

    Returns:
        Notes on what differs in the exported model.

    Raises:
        ConfigError: If the model has only an encoder or only a decoder, or is too large for an ONNX file.
        ModelError: If onnx or onnxruntime is not installed.
        OSError: If the files cannot be written.
    """
    if missing := [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]:
        raise ModelError(f"not installed: {', '.join(missing)}; {pip_install('interop')}")
    from clearhead.interop.onnx.model import ONNX, decoder_graph, encoder_graph

    model, config = bundle.model, bundle.config
    if unknown := unknown_settings(config, ONNX):
        raise ConfigError(f"this model cannot be written as ONNX: {', '.join(unknown)}")
    if not config.is_encoder_decoder:
        raise ConfigError("this model has an encoder or a decoder alone; what is written as ONNX has both")
    for make in (
        partial(encoder_graph, model),
        partial(decoder_graph, model, with_past=False),
        partial(decoder_graph, model, with_past=True),
    ):
        file = make(rounded=precision == "int8")
        (directory / f"{file.graph.name}.onnx").write_bytes(file.SerializeToString())
    kinds = exportable_as(config)
    kind, tokenizer, notes = _tokenizer(bundle, kinds)
    notes += write_settings(bundle, directory, FAMILIES[kind].config_to(config), tokenizer)
    if not kinds:
        notes.append(
            "transformers has no such model: config.json calls it marian so that Optimum reads ids and sizes from it, "
            "but only the ONNX files say what is computed"
        )
    if {config.key_dim, config.value_dim} != {config.d_model / config.num_heads}:
        notes.append("on a GPU, give Optimum use_io_binding=False, as it expects heads of width d_model / num_heads")
    return notes


def _tokenizer(bundle: Bundle, kinds: Sequence[str]) -> tuple[str, TheirTokenizer, list[str]]:
    """Return the `model_type` for `config.json`, the tokenizer, and a note if no transformers tokenizer fits."""
    try:
        kind, tokenizer = kind_and_tokenizer(bundle, kinds or FAMILIES)
    except ConfigError as error:
        if tokens_beside_sentencepiece(bundle.tokenizer):
            raise
        files = TheirTokenizer(vocabulary_files(bundle.tokenizer), {})
        return kinds[0] if kinds else "marian", files, [f"the tokenizer is copied beside it unchanged: {error}"]
    return kind if kinds else "marian", tokenizer, []

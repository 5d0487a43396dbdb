"""Export of models to Hugging Face transformers directories, which load without code of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.bundle import Bundle
from clearhead.decoding.rules import never_written
from clearhead.errors import ConfigError
from clearhead.files import write_json
from clearhead.files.tensors import model_tensors, write_weights
from clearhead.interop.huggingface.state import export_state, exportable_as, nearest_kind
from clearhead.interop.huggingface.tokenizer import (
    TheirTokenizer,
    forced_id,
    kind_and_tokenizer,
    onnx_instead,
    told_in_transformers,
)
from clearhead.interop.round_trip import KEY, origin_values
from clearhead.interop.vocabularies.vocabulary_files import write_files


def write_huggingface(bundle: Bundle, directory: Path) -> tuple[str, list[str]]:
    """Write model, vocabulary and search settings to a directory.

    Args:
        bundle: The model.
        directory: An existing, empty directory.

    Returns:
        Their `model_type`, and notes on what differs in transformers.

    Raises:
        ConfigError: If transformers has no such model.
        OSError: If the files cannot be written.
    """
    config = bundle.config
    kinds = exportable_as(config)
    if not kinds:
        nearest, differences = nearest_kind(config)
        raise ConfigError(
            f"no kind of model in Hugging Face transformers can hold this one; of the nearest, {nearest}, differs: "
            f"{'; '.join(differences)}{onnx_instead(bundle)}"
        )
    kind, tokenizer = kind_and_tokenizer(bundle, kinds)
    values, tensors = export_state(kind, config, model_tensors(bundle.model), computed=True)
    write_weights(directory / "model.safetensors", tensors, {"format": "pt"})
    return kind, write_settings(bundle, directory, values, tokenizer)


def write_settings(bundle: Bundle, directory: Path, values: Mapping[str, Any], tokenizer: TheirTokenizer) -> list[str]:
    """Write all files except the weights: `config.json`, the search settings and the vocabulary.

    Args:
        bundle: The model.
        directory: An existing directory.
        values: The fields of `config.json`.
        tokenizer: The vocabulary as a transformers tokenizer.

    Returns:
        Notes on what differs in transformers.

    Raises:
        OSError: If the files cannot be written.
    """
    notes: list[str] = []
    said = {**values, "dtype": "float32", KEY: origin_values(bundle, tokenizer.files)}
    write_json(directory / "config.json", said)
    if bundle.config.num_decoder_layers:
        generation, notes = _generation(bundle, values)
        write_json(directory / "generation_config.json", generation)
    write_json(directory / "tokenizer_config.json", tokenizer.settings)
    write_files(directory, tokenizer.files)
    return [*notes, *told_in_transformers(bundle.tokenizer, bundle.decode)]


def _generation(bundle: Bundle, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return transformers' generation settings for a search like ours, and notes on the differences."""
    decode, config = bundle.decode, bundle.config
    notes = ["transformers has one maximum length for all outputs, whatever the length of the source"]
    if decode.length_penalty_form == "gnmt" and decode.length_penalty and decode.beam_size > 1:
        alpha = f"{decode.length_penalty:g}"
        notes.append(
            f"transformers divides scores by length ** {alpha}, not by ((5 + length) / 6) ** {alpha}, and may choose "
            f"another translation where two have similar scores"
        )
    if decode.end_loops:
        notes.append("transformers does not end repetition loops")
    begin = forced_id(bundle)
    never = [token for token in never_written(config) if token != begin]
    generation = {
        "num_beams": decode.beam_size,
        "length_penalty": decode.length_penalty,
        "early_stopping": "never" if decode.beam_size > 1 else False,
        "max_length": min(config.max_positions, decode.max_input_tokens + decode.extra_length),
        "suppress_tokens": never or None,
        # A decoder alone never reads padding here, and its padding id may be a piece of text.
        # transformers writes the padding id after every end, so there it must be the end token.
        "pad_token_id": config.eos_id if config.is_decoder_alone else config.pad_id,
        "bos_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
    }
    if config.is_encoder_decoder:
        generation["decoder_start_token_id"] = values["decoder_start_token_id"]
    for name in ("min_length", "no_repeat_ngram_size"):
        if value := getattr(decode, name):
            generation[name] = value
    if begin is not None:
        generation["forced_bos_token_id"] = begin
    return generation, notes

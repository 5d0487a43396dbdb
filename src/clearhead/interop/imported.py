"""Imported models: assembling a bundle from converted parts, and its model card."""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.errors import ConfigError, ModelError, nearest_name
from clearhead.files import file_sha256
from clearhead.files.arrays import TensorHeader, require_fit
from clearhead.files.tensors import load_tensors
from clearhead.model.rounded_weights import stored_headers
from clearhead.model.transformer import Transformer
from clearhead.runtime.installation import pip_install
from clearhead.runtime.version import full_version
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile

TOLERANCE = 1e-3
"""Allowed score difference between libraries, in nats per token: both round in float32."""

MOST_ROUNDING = 0.5
"""Allowed score difference for quantized weights, in nats per token; beyond it the model is unusable."""

NO_SENTENCES = "not compared: the vocabulary has no words to make sentences of"
"""The proof of a model for which there are no sentences."""


@dataclass(frozen=True)
class Imported:
    """An imported model."""

    bundle: Bundle
    library: str
    """Library of the original, such as `Hugging Face transformers`."""
    kind: str
    """Kind of model in that library, such as the `model_type` of transformers."""
    notes: tuple[str, ...] = ()
    """Differences from the original, in words."""
    their_card: str = ""
    """Text of the original's README.md; empty without one."""
    prove: Callable[[Sequence[str]], str | None] | None = None
    """Compare translations of sentences with the original library, and return a summary if they are not all the same.

    None if that library is not installed.
    """
    why_unproven: str = field(default_factory=lambda: f"{pip_install('interop')}, and import again")
    """How to make the comparison possible, or why it is impossible."""


def as_model(config: ModelConfig, tensors: Mapping[str, Tensor], origin: Path) -> Transformer:
    """Return a model with these tensors; their shapes are checked before anything is allocated.

    Raises:
        ModelError: Listing every tensor that is missing, unknown or of another shape.
    """
    headers = {name: TensorHeader(tuple(tensor.shape), "F32") for name, tensor in tensors.items()}
    require_fit(stored_headers(config), headers, origin=str(origin))
    model = Transformer(config)
    load_tensors(model, tensors, origin=str(origin))
    return model.eval()


def as_vocabulary(file: VocabularyFile, origin: Path) -> ForeignVocabulary:
    """Return the vocabulary of a `VocabularyFile`.

    Raises:
        ModelError: If the vocabulary does not fit the model.
    """
    try:
        return ForeignVocabulary(json.dumps(file.model_dump(), ensure_ascii=False))
    except ValueError as error:
        raise ModelError(f"the tokenizer in {origin} does not fit the model: {error}") from None


def origin_info(library: str, kind: str, origin: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return the entries of `config.json` on the origin of an imported model.

    Args:
        library: The other library.
        kind: Kind of model in that library.
        origin: Directory or file of the original.
        files: Files of its weights, for their checksums.
    """
    return {
        "imported_from": {
            "library": library,
            "kind": kind,
            "name": origin.resolve().name,
            "weights_sha256": {path.name: file_sha256(path) for path in files},
        },
        "imported": {"date": date.today().isoformat(), "clearhead_version": full_version()},
        "golden": "words of its vocabulary",
    }


def stating(info: Mapping[str, Any], source: str | None, target: str | None) -> dict[str, Any]:
    """Return what `origin_info` returns, with the languages that the files name (`Bundle.languages`)."""
    return {**info, "imported_from": {**info["imported_from"], "languages": [source, target]}}


def read_settings(origin: Path, **settings: Any) -> DecodeConfig:
    """Return decoding settings from another library as a `DecodeConfig`.

    Raises:
        ConfigError: If a value is invalid here.
    """
    try:
        return DecodeConfig(**settings)
    except ConfigError as error:
        raise ConfigError(f"{origin}: its settings of decoding cannot be taken over: {error}") from None


def require_told(origin: Path, languages: Collection[str], source_lang: str | None, target_lang: str | None) -> None:
    """Check that a model has tokens for the requested languages.

    Args:
        origin: Directory or file of the model.
        languages: Languages with a token; empty if the model has no language tokens.
        source_lang: Requested source language, or None.
        target_lang: Requested target language, or None.

    Raises:
        ConfigError: If the model has no token for a language, or no target-language tokens at all.
    """
    if target_lang is not None and not languages:
        raise ConfigError(f"target_lang = {target_lang!r} has no meaning: the model in {origin} is told no language")
    for name, language in (("source", source_lang), ("target", target_lang)):
        if language is not None and languages and language not in languages:
            raise ConfigError(f"unknown {name} language {language!r}{nearest_name(language, languages)}")


def card(name: str, imported: Imported, proof: str) -> str:
    """Return the model card of an imported model, in Markdown; the original's card is appended.

    Args:
        name: Name of the model directory.
        imported: The model.
        proof: Result of the comparison with the original library.
    """
    shape, tokenizer, came = (
        imported.bundle.config,
        imported.bundle.tokenizer,
        imported.bundle.info["imported_from"],
    )
    languages = ", ".join(tokenizer.language_tags) or "none"
    kept = "exactly the original's: what that loses is lost" if not tokenizer.is_lossless else "as it was learned here"
    use = (
        f"clearhead translate {shlex.quote(name)} < input.txt > output.txt"
        if shape.num_decoder_layers
        else f'model = clearhead.Translator.load("{name}").bundle.model  # an encoder alone: see model.hidden_states'
    )
    notes = "".join(f"\n- {note}" for note in imported.notes)
    theirs = f"\n## The card it came with\n\n{imported.their_card}" if imported.their_card else ""
    return f"""# {name}

A model of {came["library"]}, of the kind {imported.kind} ({came["name"]}), imported by clearhead {full_version()}.

    {use}

| | |
| --- | --- |
| shape | {shape.num_encoder_layers}+{shape.num_decoder_layers} layers, d_model {shape.d_model}, d_ff {shape.d_ff}, \
{shape.num_heads} heads, {shape.norm}-norm |
| parameters | {imported.bundle.model.num_parameters():,} |
| vocabulary | {tokenizer.vocab_size:,} {tokenizer.kind} pieces, {kept} |
| languages | {languages} |
| beside its own library | {proof} |
{notes}
{theirs}"""


def proof_settings(bundle: Bundle) -> DecodeConfig:
    """Return the search settings of a comparison: the model's own, in float32, as the other library computes."""
    return bundle.decode.with_changes({"precision": "fp32"})


def can_prove(library: str = "transformers") -> bool:
    """Return whether a library for the comparison is installed."""
    return importlib.util.find_spec(library) is not None

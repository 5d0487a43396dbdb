"""What comes in from another library: the parts of a model, put together as one of ours, and its card."""

from __future__ import annotations

import importlib.util
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.errors import ConfigError, ModelError, nearest_name
from clearhead.files import file_sha256
from clearhead.files.tensors import TensorHeader, load_tensors, model_tensors, require_fit
from clearhead.model.transformer import Transformer
from clearhead.runtime.version import __version__
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile

__all__ = [
    "MOST_ROUNDING",
    "TOLERANCE",
    "Imported",
    "as_model",
    "as_vocabulary",
    "can_prove",
    "card",
    "origin_info",
    "read_settings",
    "require_told",
]


TOLERANCE = 1e-3
"""Nats that the score of a translation may differ by, for each of its tokens: both round in float32."""

MOST_ROUNDING = 0.5
"""The same for weights that were rounded; beyond it nothing is left of the model."""


@dataclass(frozen=True)
class Imported:
    """A model that came in."""

    bundle: Bundle
    library: str
    """Where it came from, such as `Hugging Face transformers`."""
    kind: str
    """What it is called there, such as their `model_type`."""
    notes: tuple[str, ...] = ()
    """What is otherwise here than there."""
    their_card: str = ""
    """The text of their README.md; empty if there is none."""
    prove: Callable[[Sequence[str]], str | None] | None = None
    """Compares translations of sentences with its own library, and says what was found if not all is the same; None
    where that is not installed."""
    why_unproven: str = "pip install 'clearhead[interop]' and import again"
    """What to do about it, or why nothing can be done."""


def as_model(config: ModelConfig, tensors: Mapping[str, Tensor], origin: Path) -> Transformer:
    """Return a model with tensors of ours, whose shapes are compared before anything is allocated.

    Raises:
        ModelError: Listing every tensor that is missing, unknown or of another shape.
    """
    # Positions that are computed have no weights, and PyTorch would load its compiler to compute none.
    shape = config if config.learns_positions else config.model_copy(update={"positions": "none"})
    with torch.device("meta"):  # shapes alone, whatever the settings ask for
        headers = {name: TensorHeader(tuple(tensor.shape), "F32") for name, tensor in tensors.items()}
        require_fit(model_tensors(Transformer(shape)), headers, origin=str(origin))
    model = Transformer(config)
    load_tensors(model, tensors, origin=str(origin))
    return model.eval()


def as_vocabulary(file: VocabularyFile, origin: Path) -> ForeignVocabulary:
    """Return the vocabulary that a file of ours describes.

    Raises:
        ModelError: If it does not fit the model.
    """
    try:
        return ForeignVocabulary(json.dumps(file.model_dump(), ensure_ascii=False))
    except ValueError as error:
        raise ModelError(f"the tokenizer in {origin} does not fit the model: {error}") from None


def origin_info(library: str, kind: str, origin: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return what `config.json` of the model directory says of where a model came from.

    Args:
        library: The other library.
        kind: What the model is called there.
        origin: Its directory or file.
        files: Those that hold its weights.
    """
    return {
        "imported_from": {
            "library": library,
            "kind": kind,
            "name": origin.resolve().name,
            "weights_sha256": {path.name: file_sha256(path) for path in files},
        },
        "imported": {"date": date.today().isoformat(), "clearhead_version": __version__},
        "golden": "words of its vocabulary",
    }


def read_settings(origin: Path, **settings: Any) -> DecodeConfig:
    """Return their settings of decoding as ours.

    Raises:
        ConfigError: If a value has no meaning here.
    """
    try:
        return DecodeConfig(**settings)
    except ConfigError as error:
        raise ConfigError(f"{origin}: its settings of decoding cannot be taken over: {error}") from None


def require_told(origin: Path, languages: Collection[str], source_lang: str | None, target_lang: str | None) -> None:
    """Make sure that a model is told the languages that were asked for.

    Args:
        origin: The model's directory or file.
        languages: Those that it is told; none, if it is told no language.
        source_lang: Language of the sources, or None.
        target_lang: Language to write, or None.

    Raises:
        ConfigError: If the model does not know one, or is told none.
    """
    if target_lang is not None and not languages:
        raise ConfigError(f"target_lang = {target_lang!r} has no meaning: the model in {origin} is told no language")
    for name, language in (("source", source_lang), ("target", target_lang)):
        if language is not None and languages and language not in languages:
            raise ConfigError(f"unknown {name} language {language!r}{nearest_name(language, languages)}")


def card(name: str, imported: Imported, proof: str) -> str:
    """Return the card of an imported model, in Markdown; the other library's own stands behind it.

    Args:
        name: What its directory is called.
        imported: The model.
        proof: What was found beside its own library.
    """
    shape, tokenizer, came = (
        imported.bundle.model.config,
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

A model of {came["library"]}, of the kind {imported.kind} ({came["name"]}), imported by clearhead {__version__}.

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


def can_prove(library: str = "transformers") -> bool:
    """Tell whether their library is installed."""
    return importlib.util.find_spec(library) is not None

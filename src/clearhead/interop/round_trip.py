"""Record of an exported model in the export, so that an import restores exactly that model.

The record is stored in their `config.json` under one key, which other libraries keep but do not read. The vocabulary
is stored beside it. A clearhead tokenizer is written as their `tokenizer.json`, with the end token and the tags' spaces
added. Another library's vocabulary is written as a file of ours beside the original files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.bundle import Bundle, require_same_vocabulary
from clearhead.bundle.model_directory import FORMAT_VERSION
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import file_sha256, read_text
from clearhead.interop.imported import as_model, as_vocabulary, require_told
from clearhead.interop.vocabularies.huggingface_files import their_vocabulary
from clearhead.interop.vocabularies.vocabulary_files import OWN_VOCABULARY, tokenizer_text
from clearhead.text.line_statistics import LineStatistics
from clearhead.tokenizers import Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, VocabularyFile
from clearhead.tokenizers.vocabulary import MOST_BYTES, read_vocabulary

KEY = "clearhead"
"""Name of the record in their `config.json`."""


@dataclass(frozen=True)
class Origin:
    """Settings of a model at the time of its export."""

    model: ModelConfig
    decode: DecodeConfig
    info: dict[str, Any] = field(default_factory=dict)
    """Training statistics that translation uses."""
    vocabulary_sha256: dict[str, str] | None = None
    """SHA-256 of each file of another library's vocabulary, by name; None for a vocabulary trained by clearhead."""


def origin_values(bundle: Bundle, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the record of an export.

    Args:
        bundle: The model.
        files: Content of the vocabulary files, by name.
    """
    lines = bundle.line_statistics
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return {
        "format_version": FORMAT_VERSION,
        "model": bundle.config.model_dump(mode="json"),
        "decode": bundle.decode.model_dump(mode="json", exclude={"shortlist"}),  # the shortlist's file is not exported
        "line_statistics": None if lines is None else lines.model_dump(mode="json"),
        **({"vocabulary_sha256": sha256} if OWN_VOCABULARY in files else {}),
    }


def read_origin(values: Mapping[str, Any], path: Path, config: ModelConfig) -> tuple[Origin | None, list[str]]:
    """Read the record in their `config.json`.

    Args:
        values: The fields of the file.
        path: Path of the file.
        config: Model settings from the other fields of the file.

    Returns:
        The record, or None without one; if it cannot be read, a default record and a note.
    """
    said = values.get(KEY)
    if said is None:
        return None, []
    try:
        version, lines = said["format_version"], said["line_statistics"]
        if type(version) is not int or version != FORMAT_VERSION:
            raise ValueError(f"its format is {version!r:.20}, and this clearhead reads format {FORMAT_VERSION}")
        data = {} if lines is None else {"line_statistics": LineStatistics.from_dict(lines).model_dump(mode="json")}
        info, files = {"data": data} if data else {}, said.get("vocabulary_sha256")
        if files is not None and not (isinstance(files, dict) and all(_is_file_name(name) for name in files)):
            raise ValueError("vocabulary_sha256 names no files")
        return Origin(ModelConfig(**said["model"]), DecodeConfig(**said["decode"]), info, files), []
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        note = f"{path}: {KEY!r} cannot be read ({type(error).__name__}: {error!s:.300}); what it says is not used"
        return Origin(config, DecodeConfig()), [note]


def _is_file_name(name: str) -> bool:
    return Path(name).name == name


def own_bundle(
    origin: Origin,
    directory: Path,
    parts: tuple[ModelConfig, Mapping[str, Tensor]],
    info: Mapping[str, Any],
    anew: Callable[[], VocabularyFile],
    *,
    source_lang: str | None,
    target_lang: str | None,
    **changes: Any,
) -> tuple[Bundle, list[str]]:
    """Assemble the bundle of a model that clearhead exported.

    Args:
        origin: Record of the export.
        directory: Directory of the model and its vocabulary.
        parts: Settings and tensors, as before the export but for later changes.
        info: Origin information for `config.json`.
        anew: Reads another library's vocabulary from its own files, ignoring the record.
        source_lang: Source language, for a model with source-language tokens; None for that of the export.
        target_lang: Default target language; None for that of the export.
        changes: Decoding settings changed since the export; None keeps the exported value.

    Returns:
        The bundle, and notes on what differs from the exported model.

    Raises:
        ConfigError: If the model has no token for a language, or a setting is invalid.
        ModelError: If the vocabulary is missing or damaged, or the parts do not fit.
    """
    config, tensors = parts
    if origin.vocabulary_sha256 is None:
        vocabulary, notes = _own_vocabulary(directory, config)
        require_told(directory, vocabulary.language_tags, None, target_lang)
    else:
        vocabulary, notes = _foreign_vocabulary(directory, config, origin.vocabulary_sha256, anew)
        require_told(directory, vocabulary.languages, source_lang, target_lang)
    config = config.model_copy(update={"num_placeholders": vocabulary.num_placeholders})  # other libraries lack it
    asked = {"source_lang": source_lang, "target_lang": target_lang, **changes}
    decode = origin.decode.with_changes({name: value for name, value in asked.items() if value is not None})
    return Bundle(as_model(config, tensors, directory), vocabulary, decode, {**info, **origin.info}), notes


def _foreign_vocabulary(
    directory: Path, config: ModelConfig, sha256: Mapping[str, str], anew: Callable[[], VocabularyFile]
) -> tuple[ForeignVocabulary, list[str]]:
    """Return another library's vocabulary as exported, or from its own files if one was changed since."""
    changed = [name for name in sha256 if not _has_sha256(directory / name, sha256[name])]
    if not changed and OWN_VOCABULARY in sha256:
        vocabulary = read_vocabulary(directory / OWN_VOCABULARY, ForeignVocabulary)
        if all(getattr(config, name) == value for name, value in vocabulary.model_settings.items()):
            return vocabulary, []
        changed = ["the model's embedding"]
    names = ", ".join(repr(name)[1:-1][:100] for name in changed or [OWN_VOCABULARY])
    return as_vocabulary(anew(), directory), [f"the vocabulary is read anew from their files; changed since: {names}"]


def _has_sha256(path: Path, sha256: str) -> bool:
    try:
        return path.is_file() and file_sha256(path) == sha256
    except OSError:  # such as an impossible file name
        return False


def _own_vocabulary(directory: Path, config: ModelConfig) -> tuple[Vocabulary, list[str]]:
    """Return the exported clearhead vocabulary; if it was changed, read it as another library's and add a note."""
    path = directory / "tokenizer.json"
    try:
        values = json.loads(read_text(path, most_bytes=MOST_BYTES))
        for token in values["added_tokens"]:
            token["rstrip"] = False
        tokenizer = Tokenizer(tokenizer_text({**values, "post_processor": None, "padding": None, "truncation": None}))
        config = config.model_copy(update={"num_placeholders": tokenizer.num_placeholders})
        require_same_vocabulary(config, tokenizer, origin=str(path))
    except OSError as error:
        raise ModelError(f"cannot read the tokenizer {path}: {error.strerror or error}") from None
    except (KeyError, TypeError, ValueError, RecursionError, ModelError) as error:
        theirs = as_vocabulary(their_vocabulary(directory, KEY, config), directory)
        return theirs, [f"the vocabulary is taken as another library's, for it is no longer the exported one: {error}"]
    return tokenizer, []

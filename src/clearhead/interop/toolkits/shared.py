"""Shared parts of the toolkit readers: finding the checkpoint, stored sinusoids, and assembling an `Imported`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.bundle import Bundle
from clearhead.config import ModelConfig
from clearhead.config.decode import is_language
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.imported import Imported, as_model, as_vocabulary, origin_info, read_settings, require_told
from clearhead.interop.key_table import Computed, LeftOut
from clearhead.model.positions import sinusoidal_positions
from clearhead.tokenizers.foreign import VocabularyFile, VocabularySide

_COMPARED_POSITIONS = 64
"""Number of positions compared; enough to distinguish the formulas."""


def checkpoint_at(path: Path, suffix: str, preferred: Sequence[str]) -> Path:
    """Return the checkpoint at a path: the file itself, or a checkpoint in the directory.

    Args:
        path: The checkpoint, or its directory.
        suffix: Suffix of checkpoint files, with the dot.
        preferred: File names in order of preference; if none exists, the directory must hold only one checkpoint.

    Raises:
        ModelError: If there is no checkpoint, or the choice is ambiguous.
    """
    if not path.is_dir():
        return path
    files = {file.name: file for file in sorted(path.iterdir()) if file.suffix == suffix}
    named = [files[name] for name in preferred if name in files]
    if not files:
        raise ModelError(f"{path} holds no checkpoint: no file ends in {suffix}")
    if not named and len(files) > 1:
        raise ModelError(f"{path} holds {len(files)} checkpoints: name one, such as {path / next(iter(files))}")
    return (named or list(files.values()))[0]


def section(
    values: Mapping[str, Any], name: str, origin: object, *, within: str = "", optional: bool = False
) -> dict[str, Any]:
    """Return a section of a configuration.

    Args:
        values: The configuration.
        name: Name of the section.
        origin: The file, for the message.
        within: Prefix of the name in the message.
        optional: Whether a missing section counts as an empty one.

    Raises:
        ConfigError: If the section does not hold settings by name.
    """
    value = values.get(name)
    if value is None and optional:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{origin}: {within}{name} must hold settings by name")
    return value


def flat_positions(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with the batch axis removed from tables of sinusoids."""
    return {
        name: tensor.flatten(0, -2) if name.endswith(".pe.pe") and tensor.dim() > 1 else tensor
        for name, tensor in state.items()
    }


def stored_positions(config: ModelConfig) -> list[LeftOut]:
    """Return entries for the sinusoids that OpenNMT-py, eole and JoeyNMT store, as `flat_positions` returns them."""
    if config.positions not in ("sinusoidal", "sinusoidal_t2t"):
        return []
    table = partial(sinusoidal_positions, d_model=config.d_model, layout=config.positions)
    return [LeftOut("*.pe.pe", "computed from the position", Computed(table, _COMPARED_POSITIONS))]


def put_together(
    library: str,
    kind: str,
    checkpoint: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    vocabulary: VocabularyFile,
    *,
    files: Sequence[Path],
    languages: tuple[object, str | None],
    notes: Sequence[str] = (),
    **decode: Any,
) -> Imported:
    """Assemble an imported toolkit model.

    Args:
        library: Name of the toolkit.
        kind: Kind of model in the toolkit.
        checkpoint: The file, for messages.
        config: Our settings.
        tensors: Our tensors.
        vocabulary: Vocabulary of the model.
        files: Files of the weights.
        languages: Source language, if it is known, and the requested target language or None.
        notes: Differences from the original, in words.
        decode: The toolkit's decoding settings, in our names.

    Raises:
        ConfigError: If a target language was requested, for which the model has no tokens, or `decode` is invalid.
        ModelError: If the tensors do not fit the settings, or the vocabulary does not fit the model.
    """
    source_lang, target_lang = languages
    require_told(checkpoint, (), None, target_lang)
    model, tokenizer = as_model(config, tensors, checkpoint), as_vocabulary(vocabulary, checkpoint)
    settings = read_settings(
        checkpoint,
        familiar=False,
        max_input_tokens=min(config.max_length or 1_024, 1_024),
        source_lang=source_lang if isinstance(source_lang, str) and is_language(source_lang) else None,
        **decode,
    )
    bundle = Bundle(model, tokenizer, settings, origin_info(library, kind, checkpoint, files))
    return Imported(bundle, library, kind, tuple(notes), why_unproven=f"clearhead does not run {library}")


def text_notes(*sides: VocabularySide) -> list[str]:
    """Return notes on how the input text must be prepared, as the files do not say."""
    notes = []
    if any(side.speller == "words" for side in sides):
        notes.append(
            "words stand between spaces: give it text as it was trained on, such as tokenized by Moses, and expect the "
            "same; its files do not say more"
        )
    if any(side.speller == "words" and not side.model for side in sides):
        notes.append(
            "there is no file of codes beside it: if it was trained on subwords, give it text that is split already"
        )
    return notes

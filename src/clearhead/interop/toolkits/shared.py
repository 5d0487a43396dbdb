"""What readers of toolkits share: the file that is meant, stored sinusoids, and a model of ours from its parts."""

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
from clearhead.interop.imported import Imported, as_model, as_vocabulary, origin_info, read_settings
from clearhead.interop.key_table import Computed, LeftOut
from clearhead.model.positions import sinusoidal_positions
from clearhead.tokenizers.foreign import Side, VocabularyFile

__all__ = ["checkpoint_at", "flat_positions", "put_together", "section", "stored_positions", "text_notes"]

_COMPARED_POSITIONS = 64
"""Enough to tell one formula from another."""


def checkpoint_at(path: Path, suffix: str, preferred: Sequence[str]) -> Path:
    """Return the checkpoint that a path means: itself, or one of a directory.

    Args:
        path: A file, or the directory of one.
        suffix: What the names of checkpoints end in.
        preferred: Names, of which the first that is there is meant; otherwise the only one.

    Raises:
        ModelError: If there is none, or any of several could be meant.
    """
    if not path.is_dir():
        return path
    found = {file.name: file for file in sorted(path.iterdir()) if file.suffix == suffix}
    named = [found[name] for name in preferred if name in found]
    if not found:
        raise ModelError(f"{path} holds no checkpoint: no file ends in {suffix}")
    if not named and len(found) > 1:
        raise ModelError(f"{path} holds {len(found)} checkpoints: name one, such as {path / next(iter(found))}")
    return (named or list(found.values()))[0]


def section(
    values: Mapping[str, Any], name: str, origin: object, *, within: str = "", optional: bool = False
) -> dict[str, Any]:
    """Return a group of a configuration's settings.

    Args:
        values: The settings.
        name: Of the group.
        origin: The file, for the message.
        within: What stands before the name there.
        optional: Whether no such group is an empty one.

    Raises:
        ConfigError: If it is no group of settings by name.
    """
    found = values.get(name)
    if found is None and optional:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{origin}: {within}{name} must hold settings by name")
    return found


def flat_positions(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors in which tables of sinusoids, stored with an axis for the batch, are rows alone."""
    return {
        name: tensor.flatten(0, -2) if name.endswith(".pe.pe") and tensor.dim() > 1 else tensor
        for name, tensor in state.items()
    }


def stored_positions(config: ModelConfig) -> list[LeftOut]:
    """Return the tables of sinusoids that OpenNMT-py, eole and JoeyNMT store, as `flat_positions` gives them."""
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
    """Return a model that came in from a toolkit, of which nothing says more than its files.

    Args:
        library: The toolkit.
        kind: What it calls the model.
        checkpoint: The file, for messages.
        config: Our settings.
        tensors: Ours.
        vocabulary: Of the model.
        files: Those that hold its weights.
        languages: Of the sources, where that is known, and the one that was asked for to write.
        notes: What is otherwise here than there.
        decode: The toolkit's settings of decoding, as ours.

    Raises:
        ConfigError: If a language to write was asked for, which the model cannot be told, or `decode` has no meaning.
        ModelError: If the tensors do not fit the settings, or the vocabulary the model.
    """
    source_lang, target_lang = languages
    if target_lang is not None:
        raise ConfigError(
            f"target_lang = {target_lang!r} has no meaning: the model in {checkpoint} is told no language"
        )
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


def text_notes(*sides: Side) -> list[str]:
    """Return what the user must know of text that was prepared in a way of which no file says anything."""
    notes = []
    if any(side.speller == "words" for side in sides):
        notes.append(
            "words stand between spaces: give it text as it was trained on, such as tokenized by Moses, and expect the "
            "same; its files do not say more"
        )
    if any(side.speller == "words" and not side.model for side in sides):
        notes.append(
            "no file of codes stands with it: if it was trained on subwords, give it text that is split already"
        )
    return notes

"""Transformers of fairseq: post- or pre-norm, computed or learned positions, a dictionary for each side.

After its public source (0.12.2: checkpoint_utils.py, data/dictionary.py, data/encoders).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import ModelError
from clearhead.interop.imported import Imported
from clearhead.interop.readers.checkpoint import read_checkpoint, settings_in, tensors_in
from clearhead.interop.toolkits.fairseq import (
    EOS,
    PAD,
    SOURCE,
    TARGET,
    config_from,
    ends_with_norm,
    key_table,
    upgraded,
)
from clearhead.interop.toolkits.shared import checkpoint_at, put_together, text_notes
from clearhead.interop.vocabularies.word_vocabulary import (
    find_subwords,
    read_lines,
    require_rows,
    word_side,
    word_vocabulary,
)

__all__ = ["import_fairseq"]

_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_BOS, _UNK = 0, 3
_MULTIPLE = 8


def import_fairseq(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a checkpoint of fairseq.

    Args:
        path: The checkpoint, or the directory where it stands.
        kind: `fairseq`, if it was asked for.
        source_lang: Language of the sources, which names their dictionary; if None, what the checkpoint says.
        target_lang: Language of the targets, likewise.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    file = checkpoint_at(path, ".pt", ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt"))
    checkpoint = read_checkpoint(file)
    values, state = _settings(checkpoint, file), upgraded(tensors_in(checkpoint, "model", file))
    languages = (source_lang or values.get("source_lang"), target_lang or values.get("target_lang"))
    if not all(isinstance(language, str) and re.fullmatch(r"[\w.-]+", language) for language in languages):
        raise ModelError(
            f"{file} does not say its languages, which name its dictionaries: say --source-lang and --target-lang"
        )
    dictionaries = [
        _dictionary(file.parent / f"dict.{language}.txt", state.get(name), file)
        for language, name in zip(languages, (SOURCE, TARGET), strict=True)
    ]
    config = config_from(values, *map(len, dictionaries), ends_with_norm=ends_with_norm(state), origin=file)
    tensors = key_table(config).from_theirs(state, origin=str(file))
    source, target = (
        word_side(pieces, special=(_BOS, PAD, EOS), unk_id=_UNK, subwords=find_subwords(file.parent, str(language)))
        for pieces, language in zip(dictionaries, languages, strict=True)
    )
    vocabulary = word_vocabulary(config, source, target, ("text", EOS))
    arch = str(values.get("arch", "transformer"))
    search = settings_in(values.get("generation")) or {}
    return put_together(
        "fairseq",
        arch if re.fullmatch(r"[\w.-]{1,100}", arch) else "transformer",
        file,
        config,
        tensors,
        vocabulary,
        files=[file],
        languages=(languages[0], None),
        notes=text_notes(source, target),
        beam_size=search.get("beam", 5),
        length_penalty=search.get("lenpen", 1.0),
        length_penalty_form="power",
    )


def _settings(checkpoint: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the arguments of a model: old files have them in `args`, later ones, in groups, in `cfg`."""
    if (args := settings_in(checkpoint.get("args"))) is not None:
        return args
    groups = settings_in(checkpoint.get("cfg")) or {}
    if (model := settings_in(groups.get("model"))) is None:
        raise ModelError(f"{path} says nothing of its model: neither args nor cfg.model holds settings by name")
    parts = {part: settings_in(model.pop(part, None)) or {} for part in ("encoder", "decoder")}
    task = settings_in(groups.get("task")) or {}
    return {
        "arch": model.get("_name", "transformer"),
        **{field: task.get(field) for field in ("source_lang", "target_lang")},
        **model,
        **{f"{part}_{field}": value for part, fields in parts.items() for field, value in fields.items()},
        "generation": groups.get("generation"),
    }


def _dictionary(path: Path, embedding: Tensor | None, checkpoint: Path) -> list[str]:
    """Return the words of a dictionary, which must be as many as the rows of its embedding, if that is there."""
    words = list(_SPECIAL)
    known = set(words)
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rstrip().rpartition(" ")
        overwrites = count == "#fairseq:overwrite"
        if overwrites:
            word, _, count = word.rpartition(" ")
        if not word or not count.isdecimal():
            raise ModelError(f"{path}, line {number}: {line!r:.60} is no word with its count")
        if word in known and not overwrites:
            raise ModelError(f"{path}, line {number}: the word {word!r:.60} stands in it twice")
        words.append(word)
        known.add(word)
    if embedding is not None:
        padding = -len(words) % _MULTIPLE
        if embedding.dim() and len(embedding) == len(words) + padding:
            words += [f"madeupword{number:04d}" for number in range(padding)]
        require_rows(words, embedding, words=path, weights=f"the embedding in {checkpoint}")
    return words

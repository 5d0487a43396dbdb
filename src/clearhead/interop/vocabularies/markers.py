"""Markers: special tokens of an imported model that a text may contain, such as `<hl>` and `<sep>`.

A special token in a text is text, because tokens around a sentence and tokens of languages must not be set by a text.
But some models were fine-tuned with tokens that their users write, and the files do not tell the two kinds apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from clearhead.errors import ConfigError, nearest_name
from clearhead.interop.vocabularies.huggingface_files import token_ids
from clearhead.interop.vocabularies.vocabulary_files import special_ids
from clearhead.tokenizers.foreign import VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import with_added_tokens

_NOT_WRITTEN = re.compile(
    r"</?s>|<pad>|<unk>|<blank>|\[(PAD|UNK|CLS|SEP|MASK)\]|<mask(_\d+)?>|<unk_\d+>|<extra_id_\d+>|madeupword\d+|<\|endoftext\|>"
    r"|<::::>"
)
"""Special tokens of the pre-trained models, which no user writes."""


def with_markers(file: VocabularyFile, markers: Sequence[str]) -> VocabularyFile:
    """Return a vocabulary that reads some special tokens as such where a text contains them.

    Args:
        file: The vocabulary.
        markers: The tokens.

    Raises:
        ConfigError: If a marker is no token of the source, or one that frames a text or names a language.
    """
    ids = token_ids(file.source)
    control = _control(file)
    for marker in markers:
        if marker not in ids:
            raise ConfigError(f"--markers: the model has no token {marker!r:.100}{nearest_name(marker, ids)}")
        if ids[marker] in control:
            raise ConfigError(f"--markers: {marker!r:.100} frames a text or names a language, and is set by the model")
    changes = {"source": _reading(file.source, markers)}
    if file.target is not None:
        changes["target"] = _reading(file.target, markers)
    return file.model_copy(update=changes)


def possible_markers(file: VocabularyFile) -> list[str]:
    """Return the special tokens of the source that are text where a text contains them, and may be markers."""
    special = special_ids(file.source) - {*_control(file), *file.source.added}
    names = {number: name for name, number in token_ids(file.source).items() if number in special}
    return [names[number] for number in sorted(names) if not _NOT_WRITTEN.fullmatch(names[number])]


def _control(file: VocabularyFile) -> set[int]:
    framed = (part for part in (*file.source_frame, *file.target_frame) if isinstance(part, int))
    return {file.pad_id, file.bos_id, file.eos_id, *file.languages.values(), *framed}


def _reading(side: VocabularySide, markers: Sequence[str]) -> VocabularySide:
    """Return a side that reads those of the markers that it has."""
    ids = token_ids(side)
    known = [marker for marker in markers if marker in ids]
    if side.speller != "tokenizers":
        return side.model_copy(update={"added": tuple(dict.fromkeys([*side.added, *(ids[name] for name in known)]))})
    listed = {token["content"] for token in json.loads(side.model).get("added_tokens", ())}
    new = [{"id": ids[name], "content": name, "normalized": False} for name in known if name not in listed]
    special = special_ids(side)
    read = [ids[name] for name in known if ids[name] in special]
    return side.model_copy(
        update={
            "model": with_added_tokens(side.model, new) if new else side.model,
            "added": tuple(dict.fromkeys([*side.added, *read])),
        }
    )

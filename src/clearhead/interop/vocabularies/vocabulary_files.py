"""Export of vocabularies as tokenizer files of other programs, and the names of their tokens.

A vocabulary trained by clearhead is one `tokenizer.json`. Another library's vocabulary is its original files, byte for
byte, and a file of ours beside them. The original files do not contain everything, such as the tokens around a
sentence, so an import restores the vocabulary from our file.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import DecodeConfig
from clearhead.interop.vocabularies.huggingface_files import token_ids
from clearhead.text.languages import language_tag
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, Frame, VocabularyFile, VocabularySide

OWN_VOCABULARY = "clearhead_vocabulary.json"
"""File name of another library's vocabulary, in the format of our model directories."""

_NAMES = {
    "sentencepiece": ("sentencepiece.model", "source.spm", "target.spm"),
    "tokenizers": ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"),
    "words": ("codes", "source.codes", "target.codes"),
}
"""Kind of tokenizer to its file names: shared by both sides, of the source, of the target."""
LANGUAGES = ("source_lang", "target_lang")
"""Parts of a frame that are replaced by a language token."""


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the tokenizer files and our own file, by name; words split only at spaces need no tokenizer file."""
    if not isinstance(vocabulary, ForeignVocabulary):
        assert isinstance(vocabulary, Tokenizer)
        return {"tokenizer.json": _their_tokenizer(vocabulary).encode()}
    file, own = vocabulary.file, {OWN_VOCABULARY: vocabulary.text.encode()}
    source, target = file.source, file.target or file.source
    if (source.speller, source.model) == (target.speller, target.model):
        contents = {_NAMES[source.speller][0]: side_bytes(file)}
    else:
        contents = {_NAMES[source.speller][1]: side_bytes(file), _NAMES[target.speller][2]: _content(target)}
    return {**{name: content for name, content in contents.items() if content}, **own}


def tokens_beside_sentencepiece(vocabulary: Vocabulary) -> list[str]:
    """Return the added tokens of a vocabulary that the files of its sentencepiece models do not contain."""
    if not isinstance(vocabulary, ForeignVocabulary):
        return []
    sides = (vocabulary.file.source, vocabulary.file.target or vocabulary.file.source)
    added = (side.pieces[number] for side in sides if side.speller == "sentencepiece" for number in side.added)
    return list(dict.fromkeys(piece for piece in added if piece is not None))


def _their_tokenizer(tokenizer: Tokenizer) -> str:
    """Return the `tokenizer.json` of a vocabulary for other programs, which adds the end token and reads tags."""
    values = json.loads(tokenizer.text)
    pad, bos, eos, unk = SPECIAL_TOKENS
    for token in values["added_tokens"]:
        token["rstrip"] = token["content"] not in (pad, bos, eos, unk)  # a tag includes the space after it
    piece = {"id": eos, "ids": [tokenizer.eos_id], "tokens": [eos]}
    text, end = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": eos, "type_id": 0}}
    other = {"Sequence": {"id": "B", "type_id": 0}}
    values["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [text, end],
        "pair": [text, other, end],
        "special_tokens": {eos: piece},
    }
    return tokenizer_text(values)


def tokenizer_text(values: Any) -> str:
    """Return a `tokenizer.json` as its library formats it, so that equal vocabularies have equal checksums."""
    return json.dumps(values, ensure_ascii=False, indent=2)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a directory, by name.

    Raises:
        OSError: If a file cannot be written.
    """
    for name, content in files.items():
        (directory / name).write_bytes(content)


def side_bytes(file: VocabularyFile) -> bytes:
    """Return the source's tokenizer file.

    A `tokenizer.json` also adds the ids of the source frame around a text, unless the frame has a language token.
    """
    if file.source.speller == "tokenizers" and not any(part in LANGUAGES for part in file.source_frame):
        return framed_tokenizer(file.source, file.source_frame).encode()
    return _content(file.source)


def _content(side: VocabularySide) -> bytes:
    return base64.b64decode(side.model) if side.speller == "sentencepiece" else side.model.encode()


def framed_tokenizer(side: VocabularySide, frame: Frame) -> str:
    """Return a `tokenizer.json` that adds the ids of a frame around a text.

    Args:
        side: The tokenizer, which must be a `tokenizer.json`.
        frame: Ids, and the place of the text.
    """
    names = {number: name for name, number in token_ids(side).items()}
    values = json.loads(side.model)
    text, other = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    around = [text if part == "text" else {"SpecialToken": {"id": names[int(part)], "type_id": 0}} for part in frame]
    at = around.index(text)
    special = {
        names[part]: {"id": names[part], "ids": [part], "tokens": [names[part]]}
        for part in frame
        if isinstance(part, int)
    }
    values["post_processor"] = {
        "type": "TemplateProcessing",
        "single": around,
        "pair": [*around[: at + 1], other, *around[at + 1 :]],
        "special_tokens": special,
    }
    return tokenizer_text(values)


def token_names(side: VocabularySide, size: int, pad_id: int) -> list[str]:
    """Return a unique name for every id: its piece or, without one, a name that no text is split into.

    Args:
        side: The tokenizer.
        size: Number of ids.
        pad_id: Id of the padding token, named `<pad>` if it has no name.
    """
    names = {number: name for name, number in token_ids(side).items()}
    taken = set(names.values())
    if "<pad>" not in taken:
        names.setdefault(pad_id, "<pad>")
    listed = []
    for number in range(size):
        name = names.get(number, f"<unused_{number}>")
        while number not in names and name in taken:
            name += "_"
        listed.append(name)
    return listed


def special_ids(side: VocabularySide) -> set[int]:
    """Return the ids of special tokens, which decoding omits from text."""
    if side.speller != "tokenizers":
        return set(side.special)
    return {token["id"] for token in json.loads(side.model).get("added_tokens", ()) if token.get("special")}


def unknown_name(side: VocabularySide, names: Sequence[str]) -> str | None:
    """Return the name of the unknown token; None if there is none.

    Args:
        side: The tokenizer.
        names: Names of its ids.
    """
    if side.speller != "tokenizers":
        return names[side.unk_id]
    model = json.loads(side.model)["model"]
    if isinstance(number := model.get("unk_id"), int) and number < len(names):
        return names[number]
    named = model.get("unk_token") or "<unk>"
    return named if named in names else None


def told_by_tag(vocabulary: Vocabulary, decode: DecodeConfig) -> list[str]:
    """Return notes on how other programs select the target language of a model trained by clearhead.

    Args:
        vocabulary: Vocabulary of the model, trained by clearhead.
        decode: Decoding settings, with the default target language.
    """
    if not vocabulary.language_tags:
        return []
    tag = language_tag(decode.target_lang or min(vocabulary.language_tags))
    default = f"; without one, only clearhead translates into {decode.target_lang}" * bool(decode.target_lang)
    return [f"begin each text with the tag of its target language, such as '{tag} '{default}"]

"""A vocabulary as the files that other programs spell text with.

One that was learned here is a `tokenizer.json`. One of another library is what it came from, byte for byte, and beside
it stands a file of ours, from which an import makes the same vocabulary again: their files do not say everything, such
as what stands around a sentence.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import DecodeConfig
from clearhead.interop.vocabularies.huggingface_files import token_ids
from clearhead.text.language_tags import language_tag
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, Frame, Side, VocabularyFile

__all__ = [
    "LANGUAGES",
    "OWN_VOCABULARY",
    "framed_tokenizer",
    "side_bytes",
    "special_ids",
    "token_names",
    "tokenizer_text",
    "told_by_tag",
    "unknown_name",
    "vocabulary_files",
    "write_files",
]

OWN_VOCABULARY = "clearhead_vocabulary.json"
"""A vocabulary of another library as our model directories hold it."""

_NAMES = {
    "sentencepiece": ("sentencepiece.model", "source.spm", "target.spm"),
    "tokenizers": ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"),
    "words": ("codes", "source.codes", "target.codes"),
}
"""What spells text to the name of its file: where both sides have the same, of the source, of the target."""
LANGUAGES = ("source_lang", "target_lang")
"""Parts of a frame that stand for the token of a language."""


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the files that spell text, and ours, by their names; words that are split at spaces alone need none."""
    if not isinstance(vocabulary, ForeignVocabulary):
        assert isinstance(vocabulary, Tokenizer)
        return {"tokenizer.json": _their_tokenizer(vocabulary).encode()}
    file, own = vocabulary.file, {OWN_VOCABULARY: vocabulary.text.encode()}
    source, target = file.source, file.target or file.source
    if (source.speller, source.model) == (target.speller, target.model):
        found = {_NAMES[source.speller][0]: side_bytes(file)}
    else:
        found = {_NAMES[source.speller][1]: side_bytes(file), _NAMES[target.speller][2]: _content(target)}
    return {**{name: content for name, content in found.items() if content}, **own}


def _their_tokenizer(tokenizer: Tokenizer) -> str:
    """Return the `tokenizer.json` of a vocabulary as other programs read it: it adds the end token, and reads tags."""
    values = json.loads(tokenizer.text)
    pad, bos, eos, unk = SPECIAL_TOKENS
    for token in values["added_tokens"]:
        token["rstrip"] = token["content"] not in (pad, bos, eos, unk)  # a tag takes the space behind it
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
    """Return a `tokenizer.json` as its library writes it, so that the same vocabulary has the same checksum."""
    return json.dumps(values, ensure_ascii=False, indent=2)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their names.

    Raises:
        OSError: If one cannot be written.
    """
    for name, content in files.items():
        (directory / name).write_bytes(content)


def side_bytes(file: VocabularyFile) -> bytes:
    """Return the file that spells a source; a `tokenizer.json` puts around a text what stands around every source."""
    if file.source.speller == "tokenizers" and not any(part in LANGUAGES for part in file.source_frame):
        return framed_tokenizer(file.source, file.source_frame).encode()
    return _content(file.source)


def _content(side: Side) -> bytes:
    return base64.b64decode(side.model) if side.speller == "sentencepiece" else side.model.encode()


def framed_tokenizer(side: Side, frame: Frame) -> str:
    """Return a `tokenizer.json` that puts the ids of a frame around a text.

    Args:
        side: What spells text, a `tokenizer.json` itself.
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


def token_names(side: Side, size: int, pad_id: int) -> list[str]:
    """Return a name for every id, no two alike: its piece or, where it has none, one that no text is spelled in.

    Args:
        side: How text is spelled.
        size: How many ids there are.
        pad_id: Id of padding, which is `<pad>` if it has no name.
    """
    names = {number: name for name, number in token_ids(side).items()}
    taken = set(names.values())
    if "<pad>" not in taken:
        names.setdefault(pad_id, "<pad>")
    found = []
    for number in range(size):
        name = names.get(number, f"<unused_{number}>")
        while number not in names and name in taken:
            name += "_"
        found.append(name)
    return found


def special_ids(side: Side) -> set[int]:
    """Return the ids of special tokens, which are left out of every text."""
    if side.speller != "tokenizers":
        return set(side.special)
    return {token["id"] for token in json.loads(side.model).get("added_tokens", ()) if token.get("special")}


def unknown_name(side: Side, names: Sequence[str]) -> str | None:
    """Return the name of the token that stands for what has none; None if there is no such token.

    Args:
        side: How text is spelled.
        names: Of its ids.
    """
    if side.speller != "tokenizers":
        return names[side.unk_id]
    model = json.loads(side.model)["model"]
    if isinstance(number := model.get("unk_id"), int) and number < len(names):
        return names[number]
    named = model.get("unk_token") or "<unk>"
    return named if named in names else None


def told_by_tag(vocabulary: Vocabulary, decode: DecodeConfig) -> list[str]:
    """Return in words how a model that was made here is told elsewhere which language to write.

    Args:
        vocabulary: Of the model, learned here.
        decode: Names the language that is written here if nothing else is asked for.
    """
    if not vocabulary.language_tags:
        return []
    tag = language_tag(decode.target_lang or min(vocabulary.language_tags))
    default = f": that {decode.target_lang} is written if nothing is said is not known there" * bool(decode.target_lang)
    return [f"a text begins with the tag of the language to write, such as {tag!r} and a space{default}"]

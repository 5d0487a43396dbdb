"""Vocabulary of a CTranslate2 directory, built from its tokenizer and token lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.interop.ctranslate2.pieces import PADDING, SubwordPieces
from clearhead.interop.readers.foreign_config import optional_json
from clearhead.interop.vocabularies.added_tokens import added_tokens, with_rows_of_added
from clearhead.interop.vocabularies.huggingface_files import (
    checked_json,
    own_pieces,
    sentencepiece_side,
    token_ids,
    vocabulary_of,
)
from clearhead.tokenizers.foreign import Frame, VocabularyFile, VocabularySide

_ONE_MODEL = ("sentencepiece.bpe.model", "sentencepiece.model", "spiece.model")
"""File names of a sentencepiece model that serves both sides, as various libraries name it."""
_TOLD = re.compile(r"__(\w+)__|([a-z]{3}_[A-Z][a-z]{3})|([a-z]{2}_[A-Z]{2})")
"""Language tokens of M2M100, NLLB and mBART; one begins the source, and another the translation."""
_HEADS_SOURCE = re.compile(r">>(\S+)<<|<2(\S+)>")
"""Target-language tokens that begin the source, as in Marian and clearhead."""
_SENTINEL = re.compile(r"<extra_id_\d+>")
"""Mask tokens of T5's training; its converter also gives these names to rows without a token."""


def ctranslate2_vocabulary(directory: Path, pieces: SubwordPieces, config: ModelConfig) -> VocabularyFile:
    """Return the vocabulary of a model from the tokenizer in its directory.

    Args:
        directory: Directory of the files.
        pieces: Token lists of the model.
        config: Our model settings, with the special token ids and the vocabulary sizes.

    Raises:
        ModelError: If the tokenizer is missing or damaged, or has other tokens than the lists.
    """
    source, target, special = _sides(directory, pieces, config.pad_id)
    told = _languages(_TOLD, special, pieces.source)
    asked = {} if told else _languages(_HEADS_SOURCE, special, pieces.source)
    source_frame = _source_frame(directory, source, pieces, told, is_asked=bool(asked))
    target_frame: Frame = ("target_lang", "text", config.eos_id) if told else ("text", config.eos_id)
    return vocabulary_of(config, (source, target), source_frame, target_frame, {**told, **asked})


def _sides(
    directory: Path, pieces: SubwordPieces, pad_id: int
) -> tuple[VocabularySide, VocabularySide | None, set[str]]:
    """Return the source tokenizer, the target tokenizer if it differs, and the special tokens."""
    if (path := directory / "tokenizer.json").is_file():
        side = tokenizer_side(path, pieces)
        return side, None, {token["content"] for token in json.loads(side.model).get("added_tokens", ())}
    paths = [directory / "source.spm", directory / "target.spm"]
    if not any(path.is_file() for path in paths):
        paths = [directory / name for name in _ONE_MODEL if (directory / name).is_file()][:1] * 2
    if not paths:
        raise ModelError(
            f"{directory} has no tokenizer, so no text can be encoded in the model's tokens: put beside model.bin "
            f"what it was made with, tokenizer.json, source.spm and target.spm, or {' or '.join(_ONE_MODEL)}"
        )
    asked = optional_json(directory / "tokenizer_config.json") or {}
    name = "MarianTokenizer" if paths[0] != paths[1] else str(asked.get("tokenizer_class"))
    file, added = added_tokens(directory, asked)
    sides, special = [], set()
    for path, tokens in zip(paths, (pieces.source, pieces.target), strict=True):
        own = set(own_pieces(path))
        named = {pieces.bos, pieces.eos, pieces.unk, pieces.start, *PADDING}
        others = {token for token in tokens if token in named or _HEADS_SOURCE.fullmatch(token)}
        others |= {
            token for token in tokens if token not in own and (_TOLD.fullmatch(token) or _SENTINEL.fullmatch(token))
        }
        new = [token for token in added if token["content"] in set(tokens) - own - others]
        others |= {token["content"] for token in new if token["special"]}
        if pieces.unk not in tokens:
            raise ModelError(f"{directory}: the list of tokens has no {pieces.unk} for what {path.name} does not know")
        # An added padding row has no name in the list.
        whole = [*tokens, *[None] * (pad_id - len(tokens)), "<pad>"] if pad_id >= len(tokens) else tokens
        ids = [number for number, token in enumerate(whole) if token in others or number == pad_id]
        side = sentencepiece_side(path, whole, ids, tokens.index(pieces.unk))
        rows = [{**token, "id": tokens.index(token["content"])} for token in new]
        sides.append(with_rows_of_added(side, file, rows, name) if rows else side)
        special |= others
    return sides[0], None if sides[0] == sides[1] else sides[1], special


def tokenizer_side(path: Path, pieces: SubwordPieces) -> VocabularySide:
    """Return the tokenizer of a `tokenizer.json`, if its ids agree with the token lists.

    Raises:
        ModelError: If the file is damaged, or naming the first token with another id.
    """
    side = VocabularySide(speller="tokenizers", model=checked_json(path))
    for tokens in (pieces.source, pieces.target):
        _require_same_ids(path, token_ids(side), tokens)
    return side


def _require_same_ids(path: Path, ids: Mapping[str, int], tokens: Sequence[str]) -> None:
    for token, number in ids.items():
        if number >= len(tokens) or tokens[number] != token:
            there = repr(tokens[number])[:50] if number < len(tokens) else f"the end of {len(tokens):,} tokens"
            raise ModelError(f"{path} is not the model's: {token!r:.50} is token {number} there, where it has {there}")


def _languages(pattern: re.Pattern[str], special: set[str], tokens: Sequence[str]) -> dict[str, int]:
    tags = {token: match for token in special if (match := pattern.fullmatch(token)) is not None}
    return {next(filter(None, tags[token].groups())): number for number, token in enumerate(tokens) if token in tags}


def _source_frame(
    directory: Path, side: VocabularySide, pieces: SubwordPieces, told: Mapping[str, int], *, is_asked: bool
) -> Frame:
    """Return the source frame from the tokenizer or, if it has none, from `config.json`."""
    names = _template(side)
    if names is None:
        # Even without add_source_eos, Hugging Face tokenizers add an end token to a source; OpenNMT's do not.
        ends = pieces.adds_eos or "<blank>" not in pieces.source
        names = [*([pieces.bos] if pieces.adds_bos else []), None, *([pieces.eos] if ends else [])]
    if unknown := [name for name in names if name is not None and name not in pieces.source]:
        raise ModelError(f"{directory}: next to a text there is {unknown[0]!r:.50}, which is no token of the model")
    ids = [None if name is None else pieces.source.index(name) for name in names]
    frame: Frame = tuple(
        "text" if number is None else "source_lang" if number in told.values() else number for number in ids
    )
    if told and "source_lang" not in frame:
        return ("source_lang", *frame)
    return ("target_lang", *frame) if is_asked else frame


def _template(side: VocabularySide) -> list[str | None] | None:
    """Return the template of a `tokenizer.json`: special tokens, with None for the text; None without a template."""
    made = json.loads(side.model).get("post_processor") if side.speller == "tokenizers" else None
    match made:
        case {"type": "TemplateProcessing", "single": [*parts]}:
            names = [_special_token(part) for part in parts]
            return names if names.count(None) == 1 else None
        case {"type": "RobertaProcessing" | "BertProcessing", "cls": [str(cls), _], "sep": [str(sep), _]}:
            return [cls, None, sep]
        case _:
            return None


def _special_token(part: Any) -> str | None:
    match part:
        case {"SpecialToken": {"id": str(name)}}:
            return name
        case _:
            return None

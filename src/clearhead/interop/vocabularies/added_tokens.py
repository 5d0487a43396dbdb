"""Tokens added to the vocabulary of a Hugging Face transformers directory: read from its files, put into its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.errors import ModelError
from clearhead.interop.readers.foreign_config import optional_json
from clearhead.tokenizers.foreign import VocabularySide

_BETWEEN_SPACES = ("MarianTokenizer", "M2M100Tokenizer", "BertGenerationTokenizer")
"""Classes for which a word ends at a space alone, where an added token must be one: those written in Python."""
_SPACE_BEFORE_ADDED = ("PegasusTokenizer", "MBart50Tokenizer", "NllbTokenizer")
"""Classes whose tokenizer, made from a sentencepiece model, keeps the space before an added token."""

ADDED_FLAGS = ("lstrip", "rstrip", "single_word")
"""Settings of an added token in transformers, by their names there and in `VocabularySide`."""

MOST_PIECES = 10_000_000
"""Bound of the ids that the files of a vocabulary may name."""


def added_tokens(directory: Path, asked: Mapping[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    """Return the file of the added tokens and these, in the form of `tokenizer.json`, ordered by id.

    Like transformers, this reads `added_tokens.json` only if `tokenizer_config.json` has no `added_tokens_decoder`.

    Args:
        directory: Directory of the files.
        asked: The fields of `tokenizer_config.json`.

    Raises:
        ModelError: If a file is damaged.
    """
    path, tokens = directory / "tokenizer_config.json", asked.get("added_tokens_decoder")
    if tokens is None:
        path = directory / "added_tokens.json"
        special = {
            *_special_tokens(asked),
            *_special_tokens(optional_json(directory / "special_tokens_map.json") or {}),
        }
        tokens = {
            str(number): {"content": content, "special": content in special, "normalized": content not in special}
            for content, number in (optional_json(path) or {}).items()
        }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
    entries = []
    for number, token in tokens.items() if isinstance(tokens, dict) else [("", {})]:
        content = token.get("content") if isinstance(token, dict) else None
        is_row = number.isdecimal() and len(number) < 10 and int(number) < MOST_PIECES
        if not (isinstance(content, str) and content and is_row):
            raise ModelError(f"{path} is damaged: it must give every added token its text and the number of its row")
        known = {name: token[name] for name in flags if isinstance(token.get(name), bool)}
        entries.append({**flags, **known, "content": content, "id": int(number)})
    return path, sorted(entries, key=lambda token: token["id"])


def with_rows_of_added(
    side: VocabularySide, path: Path, added: Sequence[Mapping[str, Any]], tokenizer_class: str
) -> VocabularySide:
    """Return a side of sentencepiece with added tokens; a special one is text where a text contains it.

    Args:
        side: The side.
        path: File of the added tokens, for messages.
        added: Tokens from `added_tokens`, with the ids of this side.
        tokenizer_class: Their class, which reads the text around such tokens in its own way.

    Raises:
        ModelError: If a token has the id of another piece.
    """
    pieces, special, numbers = [*side.pieces], {*side.special}, []
    for token in added:
        number, content = token["id"], token["content"]
        pieces += [None] * (number + 1 - len(pieces))
        if pieces[number] not in (None, content):
            if token["special"]:  # another name of a special piece
                continue
            raise ModelError(
                f"{path}: the added token {content!r:.100} has the id of the piece {pieces[number]!r:.100}"
            )
        is_new, pieces[number] = pieces[number] is None, content
        if token["special"]:
            special |= {number} if is_new else set()
        elif number not in special:
            numbers.append(number)
    changed = {"pieces": tuple(pieces), "special": tuple(sorted(special)), "added": tuple(numbers)}
    flags = {
        name: tuple(token["id"] for token in added if token[name] and pieces[token["id"]] == token["content"])
        for name in ADDED_FLAGS
    }
    name = tokenizer_class.removesuffix("Fast")
    read = {"space_before_added": name in _SPACE_BEFORE_ADDED, "between_spaces": name in _BETWEEN_SPACES}
    return side.model_copy(update={**changed, **flags, **read})


def _special_tokens(values: Mapping[str, Any]) -> list[str]:
    """Return all special tokens that a file names."""
    named = [value for name, value in values.items() if name.endswith(("_token", "_special_tokens"))]
    tokens = [token for value in named for token in (value if isinstance(value, list) else [value])]
    return [text for token in tokens if (text := token_text(token))]


def token_text(token: object) -> str | None:
    """Return the text of a token in a settings file, a string or an object with `content`; None for other values."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None

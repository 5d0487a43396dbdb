"""The lists of tokens of a directory of CTranslate2, and what its `config.json` says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.errors import ConfigError, ModelError
from clearhead.files import parse_json, read_text
from clearhead.tokenizers.vocabulary import MOST_BYTES

__all__ = ["PADDING", "Pieces", "read_pieces"]

PADDING = ("<pad>", "<blank>", "[PAD]")
"""What libraries call it."""


@dataclass(frozen=True)
class Pieces:
    """The tokens of both sides, by id, and what CTranslate2 puts around a source by itself."""

    source: Sequence[str]
    target: Sequence[str]
    bos: str = "<s>"
    eos: str = "</s>"
    unk: str = "<unk>"
    start: str = "<s>"
    """From which a translation starts."""
    adds_bos: bool = False
    adds_eos: bool = False

    @property
    def padding(self) -> int | None:
        """Id of padding, if it is one on both sides: their library knows lengths and needs none."""
        for token in PADDING:
            if token in self.source and token in self.target and token != self.eos:
                number = self.source.index(token)
                return number if self.target.index(token) == number else None
        return None


def read_pieces(directory: Path, values: Mapping[str, Any], *, starts_from_zeros: bool) -> Pieces:
    """Read the lists of tokens, and what `config.json` says of them.

    Args:
        directory: Where they stand.
        values: The fields of `config.json`.
        starts_from_zeros: A translation starts from no token; the one that is named may then be any.

    Raises:
        ConfigError: If `config.json` names no end or no start token of the vocabulary.
        ModelError: If a file is missing or damaged.
    """
    is_shared = any((directory / f"shared_vocabulary.{kind}").exists() for kind in ("json", "txt"))
    source, target = (_tokens(directory, "shared" if is_shared else side) for side in ("source", "target"))
    problems = [
        f"{key} is {values.get(key)!r:.50}, but must be a token of the vocabulary"
        for key in ("eos_token", *(() if starts_from_zeros else ("decoder_start_token",)))
        if values.get(key) not in target
    ]
    for key in ("add_source_bos", "add_source_eos"):
        if not isinstance(values.get(key, False), bool):
            problems.append(f"{key} is {values[key]!r:.50}, but must be true or false")
    if problems:
        raise ConfigError(f"{directory / 'config.json'}: " + "; ".join(problems))
    return Pieces(
        source,
        target,
        bos=str(values.get("bos_token")),
        eos=values["eos_token"],
        unk=str(values.get("unk_token")),
        start=str(values.get("decoder_start_token")),
        adds_bos=values.get("add_source_bos", False),
        adds_eos=values.get("add_source_eos", False),
    )


def _tokens(directory: Path, side: str) -> list[str]:
    """Read a list of tokens, as JSON or, of old, as lines."""
    old = directory / f"{side}_vocabulary.txt"
    path = old if old.exists() else old.with_suffix(".json")
    try:
        text = read_text(path, most_bytes=MOST_BYTES)
        tokens = text.removesuffix("\n").split("\n") if path == old else parse_json(text)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ModelError(f"{path} is damaged: {error}") from None
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{path} is damaged: it must be a list of tokens")
    return tokens

"""Token lists of CTranslate2 directories, read from their files or made from our vocabulary, and notes for users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.config import DecodeConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.interop.readers.foreign_config import file_json, file_text
from clearhead.interop.vocabularies.vocabulary_files import LANGUAGES, token_names, told_by_tag, unknown_name
from clearhead.tokenizers import SPECIAL_TOKENS, Tokenizer, Vocabulary
from clearhead.tokenizers.foreign import ForeignVocabulary, Frame, VocabularyFile

PADDING = ("<pad>", "<blank>", "[PAD]")
"""Names of the padding token in various libraries."""


@dataclass(frozen=True)
class SubwordPieces:
    """The tokens of source and target by id, and the tokens that CTranslate2 adds to a source."""

    source: Sequence[str]
    target: Sequence[str]
    bos: str = "<s>"
    eos: str = "</s>"
    unk: str = "<unk>"
    start: str = "<s>"
    """First input of the decoder."""
    adds_bos: bool = False
    adds_eos: bool = False

    @property
    def padding(self) -> int | None:
        """Id of the padding token if both sides have it at the same id; else None, as CTranslate2 needs no padding."""
        for token in PADDING:
            if token in self.source and token in self.target and token != self.eos:
                number = self.source.index(token)
                return number if self.target.index(token) == number else None
        return None


def read_pieces(directory: Path, values: Mapping[str, Any], *, starts_from_zeros: bool) -> SubwordPieces:
    """Read the token lists and their settings in `config.json`.

    Args:
        directory: Directory of the files.
        values: The fields of `config.json`.
        starts_from_zeros: Whether decoding starts from a zero embedding; `decoder_start_token` is then not checked.

    Raises:
        ConfigError: If the end or start token in `config.json` is not in the vocabulary.
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
    return SubwordPieces(
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
    """Read a token list from JSON or, in old models, from text lines."""
    old = directory / f"{side}_vocabulary.txt"
    path = old if old.exists() else old.with_suffix(".json")
    tokens = file_text(path).removesuffix("\n").split("\n") if path == old else file_json(path)
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelError(f"{path} is damaged: it must be a list of tokens")
    return tokens


def listed_pieces(vocabulary: Vocabulary) -> SubwordPieces:
    """Return the token lists of a model for CTranslate2, and which tokens CTranslate2 adds to a source."""
    if not isinstance(vocabulary, ForeignVocabulary):
        assert isinstance(vocabulary, Tokenizer)
        tokens = vocabulary.tokens()
        _, bos, eos, unk = SPECIAL_TOKENS
        return SubwordPieces(tokens, tokens, bos=bos, eos=eos, unk=unk, start=bos)
    file = vocabulary.file
    source = token_names(file.source, file.source_vocab_size or file.vocab_size, file.pad_id)
    target = token_names(file.target or file.source, file.vocab_size, file.pad_id)
    start, eos = target[file.bos_id], target[file.eos_id]
    # A tokenizer.json adds the special tokens around a text itself; other tokenizers add none.
    begin, end = (None, None) if file.source.speller == "tokenizers" else _ends(file.source_frame)
    return SubwordPieces(
        source,
        target,
        bos=start if begin is None else source[begin],
        eos=eos,
        unk=unknown_name(file.source, source) or target[file.pad_id],
        start=start,
        adds_bos=begin is not None,
        adds_eos=end is not None and source[end] == eos,
    )


def told_in_tokens(vocabulary: Vocabulary, pieces: SubwordPieces, decode: DecodeConfig) -> list[str]:
    """Return notes on the tokens that a CTranslate2 user must add to the pieces of a text.

    Args:
        vocabulary: Vocabulary of the model.
        pieces: Token lists from `listed_pieces`.
        decode: Decoding settings; their languages serve as examples.
    """
    if not isinstance(vocabulary, ForeignVocabulary):
        return told_by_tag(vocabulary, decode)
    file, notes = vocabulary.file, []
    source, target = file.source, file.target or file.source
    given = file.source_frame[pieces.adds_bos : len(file.source_frame) - pieces.adds_eos]
    if given != ("text",) and (source.speller != "tokenizers" or any(part in LANGUAGES for part in given)):
        notes.append(f"give CTranslate2 each source as {_in_words(given, file, pieces.source, decode)}")
    if begin := file.target_frame[: file.target_frame.index("text")]:
        said = _in_words(begin, file, pieces.target, decode)
        notes.append(f"give CTranslate2 {said} as target_prefix: every translation begins with it")
    if "words" in (source.speller, target.speller):
        notes.append("split each text at its spaces into words, and these by the BPE codes, if there are any")
    if source.lowercase or target.lowercase:
        notes.append("lowercase each text before it is encoded")
    return notes


def _ends(frame: Frame) -> tuple[int | None, int | None]:
    """Return the first and last id of a frame; None where the frame has no fixed id."""
    begin, end = (part if isinstance(part, int) else None for part in (frame[0], frame[-1]))
    return begin, end


def _in_words(frame: Frame, file: VocabularyFile, names: Sequence[str], decode: DecodeConfig) -> str:
    said = {
        "text": "its pieces",
        "source_lang": "the token of the source language",
        "target_lang": "the token of the target language",
    }
    example = {"source_lang": decode.source_lang, "target_lang": decode.target_lang}
    words = []
    for part in frame:
        if isinstance(part, int):
            words.append(repr(names[part]))
            continue
        number = file.languages.get(example.get(part) or "", next(iter(file.languages.values()), None))
        words.append(said[part] + ("" if part == "text" or number is None else f" (such as {names[number]!r})"))
    return ", ".join(words)

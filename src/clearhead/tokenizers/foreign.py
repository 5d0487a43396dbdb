"""Vocabularies of other libraries, exactly: their own spelling, their ids, and what they put around a sentence.

`tokenizer.json` of such a model holds everything in one object, the files of the other library among it; `interop`
makes it. What the original loses (characters it does not know, letter case, runs of spaces) is lost here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

from clearhead.config.settings import Settings
from clearhead.errors import ConfigError, nearest_name
from clearhead.tokenizers.spellers import SentencePieceSpeller, Speller, TokenizersSpeller
from clearhead.tokenizers.vocabulary import Vocabulary
from clearhead.tokenizers.word_speller import WordSpeller

__all__ = ["ForeignVocabulary", "Frame", "Side", "VocabularyFile", "is_foreign"]

Frame = tuple[int | Literal["text", "source_lang", "target_lang"], ...]
"""What a sentence is made of: ids, and the places of its text and of the ids of languages."""


class Side(Settings):
    """How one side is spelled."""

    speller: Literal["sentencepiece", "tokenizers", "words"]
    """The library; `words` is a list of words, or of the parts that the codes of subword-nmt make of them."""
    model: str
    """Its file: the text of a `tokenizer.json` or of codes, or the bytes of a sentencepiece model in base 64; empty for
    words that are split at spaces alone."""
    pieces: tuple[str | None, ...] = ()
    """With sentencepiece and words, the piece of every id; None where an id has none."""
    special: tuple[int, ...] = ()
    """With sentencepiece and words, the ids of special tokens."""
    unk_id: int = 0
    """With sentencepiece and words, the id of pieces that have none."""
    within_pieces: bool = False
    """With words, whether a part that has no piece is split into what has."""
    lowercase: bool = False
    """Whether text is put in small letters before it is spelled."""


class VocabularyFile(Settings):
    """What `tokenizer.json` holds."""

    clearhead_vocabulary: Literal[1] = 1
    """Tells it from a `tokenizer.json` of Hugging Face."""
    source: Side
    target: Side | None = None
    """None if both sides are spelled alike."""
    source_frame: Frame
    target_frame: Frame
    """Behind the start token, which is no part of it."""
    languages: dict[str, int]
    """Language to the id of its token."""
    pad_id: int
    bos_id: int
    eos_id: int
    vocab_size: int
    """Rows of the model's embedding, of which the last may have no piece."""
    source_vocab_size: int | None = None


class ForeignVocabulary(Vocabulary):
    """A vocabulary of another library."""

    is_lossless = False
    tells_languages = True

    def __init__(self, text: str) -> None:
        """Take the text of a `tokenizer.json`.

        Raises:
            ModelError: If a library that it needs is missing.
            ValueError: If the text is no such vocabulary, or an id in it is not in the vocabulary.
        """
        try:
            file = VocabularyFile(**json.loads(text))
        except (ConfigError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        self.text = text
        self.file = file
        """What the text says."""
        _require_pieces(file)
        _require_frames(file)
        self._source = _speller(file.source)
        self._target = self._source if file.target is None else _speller(file.target)
        self.vocab_size, self.source_vocab_size = file.vocab_size, file.source_vocab_size
        self.pad_id, self.bos_id, self.eos_id = file.pad_id, file.bos_id, file.eos_id
        self.languages = dict(sorted(file.languages.items(), key=lambda item: item[1]))
        """Language to the id of its token, on whichever side."""
        is_fixed = "target_lang" not in (*file.source_frame, *file.target_frame)  # by the start token
        self.language_tags = {
            language: token_id
            for language, token_id in self.languages.items()
            if not is_fixed or token_id == self.bos_id
        }
        _require_ids_within(file, self._source, self._target)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `[tokenizer]` that a run with this vocabulary has."""
        return {"kind": "imported", "vocab_size": self.vocab_size, "language_tags": tuple(self.language_tags)}

    @property
    def kind(self) -> str:
        """The subword algorithm of the target side, such as `bpe`; `sentencepiece` has several."""
        return self._target.kind

    def encode_parts(self, parts: Sequence[tuple[str | None, str]], source_lang: str | None = None) -> list[list[int]]:
        """Spell source lines that `split_sources` has split; see `encode_sources`."""
        if "source_lang" in self.file.source_frame and source_lang not in self.languages:
            known = nearest_name(source_lang or "", self.languages)
            asked = (
                "which language is the source?" if source_lang is None else f"unknown source language {source_lang}."
            )
            raise ConfigError(f"{asked} This model is told so: say --source-lang (in Python source_lang=){known}")
        spelled = self.encode_batch([text for _, text in parts])
        return [
            self._filled(self.file.source_frame, ids, language, source_lang)
            for ids, (language, _) in zip(spelled, parts, strict=True)
        ]

    def encode_targets(self, texts: Sequence[str], languages: Sequence[str | None] = ()) -> list[list[int]]:
        """Spell target lines: what they are given (`given`), the pieces, the end token."""
        spelled = self._target.encode(texts)
        return [
            self._filled(self.file.target_frame, ids, language)
            for ids, language in zip(spelled, languages or [None] * len(spelled), strict=True)
        ]

    def given(self, language: str | None) -> tuple[int, ...]:
        """Return the ids that every translation into a language begins with, such as that of the language."""
        before = takewhile(lambda part: part != "text", self.file.target_frame)
        return tuple(self._filled(tuple(before), [], language))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell several source texts, without special tokens."""
        return self._source.encode(texts)

    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell the beginnings of target texts, without special tokens."""
        return self._target.encode(texts)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of several sequences of target ids; special tokens are left out."""
        return self._target.decode(batch)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each target id as readable text, special tokens by name; one without a piece is empty."""
        return [self._target.readable(token_id) for token_id in ids]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each source id as readable text, special tokens by name; one without a piece is empty."""
        return [self._source.readable(token_id) for token_id in ids]

    def _no_text(self) -> set[int]:
        framed = (part for part in (*self.file.source_frame, *self.file.target_frame) if isinstance(part, int))
        return {*super()._no_text(), *self.languages.values(), *framed}

    def _text_pieces(self) -> Iterator[tuple[str, int]]:
        special = {self.pad_id, self.bos_id, self.eos_id, *self.languages.values()}
        for token_id in range(self._target.num_ids):
            if token_id not in special and (piece := self._target.token(token_id)):
                yield piece, token_id

    def _filled(
        self, frame: Frame, ids: list[int], target_lang: str | None, source_lang: str | None = None
    ) -> list[int]:
        """Return the ids of a sentence; a language that is not known is left out."""
        found: list[int] = []
        for part in frame:
            match part:
                case "text":
                    found += ids
                case "source_lang" | "target_lang":
                    language = source_lang if part == "source_lang" else target_lang
                    found += [self.languages[language]] if language in self.languages else []
                case _:
                    found.append(part)
        return found


def is_foreign(values: object) -> bool:
    """Tell whether the JSON of a `tokenizer.json` is such a vocabulary."""
    return isinstance(values, dict) and "clearhead_vocabulary" in values


def _speller(side: Side) -> Speller:
    speller: Speller
    match side.speller:
        case "sentencepiece":
            speller = SentencePieceSpeller(side.model, side.pieces, side.special, side.unk_id)
        case "tokenizers":
            speller = TokenizersSpeller(side.model)
        case "words":
            speller = WordSpeller(side.model, side.pieces, side.special, side.unk_id, within_pieces=side.within_pieces)
    speller.lowercase = side.lowercase
    return speller


def _require_ids_within(file: VocabularyFile, source: Speller, target: Speller) -> None:
    """Make sure that every id is a row of the embedding that it is looked up in.

    Raises:
        ValueError: Naming the first that is not.
    """
    of_source = [part for part in file.source_frame if isinstance(part, int)]
    of_target = [part for part in file.target_frame if isinstance(part, int)]
    of_both = [file.pad_id, file.eos_id, *file.languages.values()]
    source_size = file.source_vocab_size or file.vocab_size
    for ids, last, size in (
        ([*of_source, *of_both], source.num_ids - 1, source_size),
        ([*of_target, *of_both, file.bos_id], target.num_ids - 1, file.vocab_size),
    ):
        if outside := [token_id for token_id in (*ids, last) if not 0 <= token_id < size]:
            raise ValueError(f"it has the id {outside[0]}, and the model has {size} rows")


def _require_frames(file: VocabularyFile) -> None:
    """Make sure that a text has one place among what stands around it, and that nothing there is padding.

    Raises:
        ValueError: If it is otherwise.
    """
    for frame in (file.source_frame, file.target_frame):
        if frame.count("text") != 1:
            raise ValueError(f"it has {frame.count('text')} places for the text of a sentence, not 1")
        if not file.languages and {"source_lang", "target_lang"} & set(frame):
            raise ValueError("it has a place for a language, and no languages")
    if file.pad_id in file.source_frame and file.pad_id != file.eos_id:
        raise ValueError("it has padding around the text of a sentence")


def _require_pieces(file: VocabularyFile) -> None:
    """Make sure that every special token of a side has a place among its pieces.

    Raises:
        ValueError: Naming the first that has none.
    """
    for side in (file.source, file.target or file.source):
        if outside := [token_id for token_id in (*side.special, side.unk_id) if token_id >= max(len(side.pieces), 1)]:
            raise ValueError(f"it has the id {outside[0]}, and {len(side.pieces)} pieces")

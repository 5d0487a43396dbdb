"""Imported vocabularies of other libraries, with exactly their pieces, ids and special tokens.

The `tokenizer.json` of such a model is one object that includes the other library's files; `interop` creates it. What
the original tokenizer loses (unknown characters, letter case, runs of spaces) is lost here too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Literal

from clearhead.config.settings import Settings
from clearhead.errors import ConfigError, nearest_name
from clearhead.tokenizers.subword_encoders import AddedToken, SentencePieceEncoder, SubwordEncoder, TokenizersEncoder
from clearhead.tokenizers.vocabulary import Vocabulary, byte_level_bytes
from clearhead.tokenizers.word_encoder import WordEncoder

Frame = tuple[int | Literal["text", "source_lang", "target_lang"], ...]
"""Template of a sentence: token ids, and placeholders for its text and its language ids."""


class VocabularySide(Settings):
    """Tokenization of one side, source or target."""

    speller: Literal["sentencepiece", "tokenizers", "words"]
    """The library; `words` is a word list, or a list of subwords produced by subword-nmt codes."""
    model: str
    """The library's file: the text of a `tokenizer.json` or of codes, or a sentencepiece model in base64; empty for
    words that are split at spaces only."""
    pieces: tuple[str | None, ...] = ()
    """With sentencepiece and words, the piece of each id; None for ids without a piece."""
    special: tuple[int, ...] = ()
    """With sentencepiece and words, the ids of special tokens."""
    unk_id: int = 0
    """With sentencepiece and words, the id used for unknown pieces."""
    added: tuple[int, ...] = ()
    """Ids of tokens that are found in a text before the rest is tokenized: with sentencepiece, those added in
    fine-tuning; and the special tokens that a text may contain (`clearhead import --markers`)."""
    space_before_added: bool = False
    """With sentencepiece, whether a space before an added token is a piece of its own."""
    lstrip: tuple[int, ...] = ()
    """With sentencepiece, the ids of tokens that take the white space before them, if they are added ones."""
    rstrip: tuple[int, ...] = ()
    """With sentencepiece, the ids of tokens that take the white space behind them."""
    single_word: tuple[int, ...] = ()
    """With sentencepiece, the ids of tokens that are text within a word."""
    between_spaces: bool = False
    """With sentencepiece, whether a word of `single_word` ends at a space alone, and not at a punctuation mark."""
    within_pieces: bool = False
    """With words, whether an unknown subword is split further into known ones."""
    lowercase: bool = False
    """Whether text is lowercased before tokenization."""


class VocabularyFile(Settings):
    """Contents of an imported `tokenizer.json`."""

    clearhead_vocabulary: Literal[1] = 1
    """Format version; also distinguishes the file from a `tokenizer.json` of Hugging Face."""
    source: VocabularySide
    target: VocabularySide | None = None
    """Tokenization of the target side; None if it is the same as the source's."""
    source_frame: Frame
    target_frame: Frame
    """Template of a target sentence, without the start token."""
    languages: dict[str, int]
    """The token id of each language."""
    pad_id: int
    bos_id: int
    eos_id: int
    vocab_size: int
    """Rows of the model's embedding; the last ones may have no piece."""
    source_vocab_size: int | None = None


class ForeignVocabulary(Vocabulary):
    """A vocabulary imported from another library."""

    is_lossless = False
    tells_languages = True

    def __init__(self, text: str) -> None:
        """Parse the text of a `tokenizer.json`.

        Raises:
            ModelError: If a required library is missing.
            ValueError: If the text is not such a vocabulary, or contains an id outside the vocabulary.
        """
        try:
            file = VocabularyFile(**json.loads(text))
        except (ConfigError, TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        self.text = text
        self.file = file
        """The parsed contents of the text."""
        _require_pieces(file)
        _require_frames(file)
        of_source, of_target = (
            {*file.languages.values(), *(part for part in frame if isinstance(part, int))}
            for frame in (file.source_frame, file.target_frame)
        )
        self._source = _subword_encoder(file.source, of_source)
        self._target = self._source if file.target is None else _subword_encoder(file.target, of_target)
        self.vocab_size, self.source_vocab_size = file.vocab_size, file.source_vocab_size
        self.pad_id, self.bos_id, self.eos_id = file.pad_id, file.bos_id, file.eos_id
        self.languages = dict(sorted(file.languages.items(), key=lambda item: item[1]))
        """The token id of each language, source or target."""
        is_fixed = "target_lang" not in (*file.source_frame, *file.target_frame)  # the start token sets the language
        self.language_tags = {
            language: token_id
            for language, token_id in self.languages.items()
            if not is_fixed or token_id == self.bos_id
        }
        _require_ids_within(file, self._source, self._target)

    @property
    def settings(self) -> dict[str, Any]:
        """The `[tokenizer]` settings of a run with this vocabulary."""
        return {"kind": "imported", "vocab_size": self.vocab_size, "language_tags": tuple(self.language_tags)}

    @property
    def kind(self) -> str:
        """The subword algorithm of the target side, such as `bpe`; `sentencepiece` includes several."""
        return self._target.kind

    def encode_parts(self, parts: Sequence[tuple[str | None, str]], source_lang: str | None = None) -> list[list[int]]:
        """Tokenize source lines that `split_sources` has split; see `encode_sources`."""
        if "source_lang" in self.file.source_frame and source_lang not in self.languages:
            known = nearest_name(source_lang or "", self.languages)
            asked = (
                "which language is the source?" if source_lang is None else f"unknown source language {source_lang}."
            )
            raise ConfigError(f"{asked} This model is told so: say --source-lang (in Python source_lang=){known}")
        encoded = self.encode_batch([text for _, text in parts])
        return [
            self._filled(self.file.source_frame, ids, language, source_lang)
            for ids, (language, _) in zip(encoded, parts, strict=True)
        ]

    def encode_targets(self, texts: Sequence[str], languages: Sequence[str | None] = ()) -> list[list[int]]:
        """Tokenize target lines: control tokens (`given`), pieces, end token."""
        encoded = self._target.encode(texts)
        return [
            self._filled(self.file.target_frame, ids, language)
            for ids, language in zip(encoded, languages or [None] * len(encoded), strict=True)
        ]

    def given(self, language: str | None) -> tuple[int, ...]:
        """Return the control tokens at the start of every translation into a language, such as its language token."""
        before = takewhile(lambda part: part != "text", self.file.target_frame)
        return tuple(self._filled(tuple(before), [], language))

    @property
    def added_tokens(self) -> Mapping[str, int]:
        """The tokens that are found in a source text before the rest is tokenized, and their ids."""
        return self._source.added

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize several source texts, without special tokens."""
        return self._source.encode(texts)

    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize the beginnings of target texts, without special tokens."""
        return self._target.encode(texts)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Detokenize several sequences of target ids, without special tokens."""
        return self._target.decode(batch)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each target id, names for special tokens, "" for ids without a piece."""
        return [self._target.readable(token_id) for token_id in ids]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each source id, names for special tokens, "" for ids without a piece."""
        return [self._source.readable(token_id) for token_id in ids]

    def _no_text(self) -> set[int]:
        framed = (part for part in (*self.file.source_frame, *self.file.target_frame) if isinstance(part, int))
        return {*super()._no_text(), *self.languages.values(), *framed}

    def _bytes_of(self, name: str) -> bytes | None:
        return byte_level_bytes(name) if self._target.is_byte_level else super()._bytes_of(name)

    def _text_pieces(self) -> Iterator[tuple[str, int]]:
        special = {self.pad_id, self.bos_id, self.eos_id, *self.languages.values(), *self._target.special}
        for token_id in range(self._target.num_ids):
            if token_id not in special and (piece := self._target.token(token_id)):
                yield piece, token_id

    def _filled(
        self, frame: Frame, ids: list[int], target_lang: str | None, source_lang: str | None = None
    ) -> list[int]:
        """Return the ids of a sentence according to a template; unknown languages are left out."""
        filled: list[int] = []
        for part in frame:
            match part:
                case "text":
                    filled += ids
                case "source_lang" | "target_lang":
                    language = source_lang if part == "source_lang" else target_lang
                    filled += [self.languages[language]] if language in self.languages else []
                case _:
                    filled.append(part)
        return filled


def _subword_encoder(side: VocabularySide, control: Collection[int]) -> SubwordEncoder:
    """Return the encoder of a side, which never tokenizes a text as one of the control tokens."""
    encoder: SubwordEncoder
    special = {*side.special, *(token_id for token_id in control if 0 <= token_id < len(side.pieces))}
    match side.speller:
        case "sentencepiece":
            added = {
                token_id: AddedToken(*(token_id in ids for ids in (side.lstrip, side.rstrip, side.single_word)))
                for token_id in side.added
            }
            encoder = SentencePieceEncoder(
                side.model,
                side.pieces,
                special,
                side.unk_id,
                added,
                space_before_added=side.space_before_added,
                between_spaces=side.between_spaces,
            )
        case "tokenizers":
            encoder = TokenizersEncoder(side.model, control, side.added)
        case "words":
            encoder = WordEncoder(side.model, side.pieces, special, side.unk_id, within_pieces=side.within_pieces)
    encoder.lowercase = side.lowercase
    return encoder


def _require_ids_within(file: VocabularyFile, source: SubwordEncoder, target: SubwordEncoder) -> None:
    """Check that every id is a row of its side's embedding.

    Raises:
        ValueError: With the first id that is not.
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
    """Check that templates have exactly one place for the text, languages for their placeholders, and no padding.

    Raises:
        ValueError: If a template is invalid.
    """
    for frame in (file.source_frame, file.target_frame):
        if frame.count("text") != 1:
            raise ValueError(f"it has {frame.count('text')} places for the text of a sentence, not 1")
        if not file.languages and {"source_lang", "target_lang"} & set(frame):
            raise ValueError("it has a place for a language, and no languages")
    if file.pad_id in file.source_frame and file.pad_id != file.eos_id:
        raise ValueError("it has padding around the text of a sentence")


def _require_pieces(file: VocabularyFile) -> None:
    """Check that the ids of each side's special tokens are within its pieces.

    Raises:
        ValueError: With the first id that is not.
    """
    for side in (file.source, file.target or file.source):
        listed = (*side.special, side.unk_id, *(side.added if side.speller == "sentencepiece" else ()))
        if outside := [token_id for token_id in listed if not 0 <= token_id < max(len(side.pieces), 1)]:
            raise ValueError(f"it has the id {outside[0]}, and {len(side.pieces)} pieces")

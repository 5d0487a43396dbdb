"""Subword tokenizers that lose nothing: BPE, Unigram and WordPiece over the bytes of the text (paper section 5.1).

Text is taken as UTF-8 bytes, each byte a symbol of the alphabet, so every string has a spelling and
`decode(encode(x)) == x`. No normalisation changes a character. One space is put before the text and taken off again
when decoding, so that a word is the same piece at the start of a line as within it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.errors import ConfigError, DataError, ModelError, nearest_name

__all__ = ["SPECIAL_TOKENS", "Tokenizer", "language_tag", "split_tag"]

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""Padding, start of target, end of sentence, unknown: ids 0 to 3 in every vocabulary."""

Kind = Literal["bpe", "unigram", "wordpiece"]
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_TAG = re.compile(r"<2([^\s<>]+)> ?")


def language_tag(language: str) -> str:
    """Return the tag that asks for a translation into `language`.

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def split_tag(text: str, languages: Collection[str]) -> tuple[str | None, str]:
    """Split a leading language tag, and the space after it, off a source line.

    What looks like a tag is one, also where its language is unknown: `<2`, a name that begins with a letter, `>`. Where
    there are no languages there are no tags, and everything is text.

    >>> split_tag("<2de> Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", ["de", "fr"])
    ('xx', 'Good morning')
    >>> split_tag("<2xx> Good morning", [])
    (None, '<2xx> Good morning')
    """
    match = _TAG.match(text) if languages else None
    if match is None or not (match[1] in languages or match[1][0].isalpha()):
        return None, text
    return match[1], text[match.end() :]


class Tokenizer:
    """A trained vocabulary: text to ids and back.

    The ids of `pad_id`, `bos_id`, `eos_id` and `unk_id` are 0, 1, 2 and 3, language tags follow. Text is never read
    as a special token: a literal `</s>` in a sentence is spelled in ordinary pieces.
    """

    pad_id, bos_id, eos_id, unk_id = range(4)

    def __init__(self, text: str) -> None:
        """Take the text of a `tokenizer.json`.

        Raises:
            ValueError: If the text is not a tokenizer, or its special tokens are not ours.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception for any malformed file
            raise ValueError(str(error)) from None
        if [backend.id_to_token(i) for i in range(len(SPECIAL_TOKENS))] != list(SPECIAL_TOKENS):
            raise ValueError(f"ids 0 to 3 are not {' '.join(SPECIAL_TOKENS)}")
        backend.encode_special_tokens = True  # a "</s>" in the text is text
        self._backend = backend
        self.text = text
        self.language_tags = {
            token.content[2:-1]: token_id
            for token_id, token in sorted(backend.get_added_tokens_decoder().items())
            if token_id >= len(SPECIAL_TOKENS)
        }

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Kind = "bpe",
        vocab_size: int = 8_000,
        split_digits: bool = True,
        language_tags: Sequence[str] = (),
    ) -> Self:
        """Learn a joint vocabulary from the text of both languages.

        Args:
            texts: Segments, without language tags.
            kind: Subword algorithm.
            vocab_size: Most pieces to learn, special tokens and the 256 bytes included; a small corpus yields fewer.
            split_digits: Keep every digit a piece of its own.
            language_tags: Languages that get a tag token.

        Raises:
            ConfigError: If `vocab_size` has no room for the bytes and the special tokens.
        """
        special = [*SPECIAL_TOKENS, *map(language_tag, language_tags)]
        if vocab_size < (least := len(special) + len(_BYTES) + 1):
            raise ConfigError(
                f"tokenizer.vocab_size ({vocab_size}) must be at least {least}: 256 bytes, "
                f"{len(special)} special tokens and one learned piece"
            )
        backend = tokenizers.Tokenizer(_untrained(kind))
        backend.normalizer = normalizers.Prepend(" ")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *([pre_tokenizers.Digits(individual_digits=True)] if split_digits else []),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                # WordPiece searches each word in quadratic time; no word gets longer than this.
                pre_tokenizers.Split(Regex(r"[\s\S]{1,64}"), behavior="isolated"),
            ]
        )
        backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        backend.train_from_iterator(texts, _trainer(kind, vocab_size, special))
        return cls(backend.to_str(pretty=True))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelError: If the file is missing or is not a tokenizer of ours.
        """
        try:
            return cls(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"cannot read the tokenizer {path}: {error.strerror}") from None
        except (ValueError, UnicodeDecodeError) as error:
            raise ModelError(f"{path} is not a clearhead tokenizer: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, whole or not at all."""
        partial = Path(path).with_suffix(".partial")
        partial.write_text(self.text, encoding="utf-8")
        os.replace(partial, path)

    @property
    def sha256(self) -> str:
        """Hash of `tokenizer.json`, which decides how text becomes ids."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        """Pieces and special tokens."""
        return self._backend.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Spell a text in ids, without special tokens.

        Raises:
            DataError: If the text holds an unpaired surrogate, which no encoding can write.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell several texts, in parallel."""
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            _refuse_surrogates(texts)
            raise
        return [encoding.ids for encoding in encodings]

    def split_sources(self, lines: Sequence[str], *, name: str = "", first: int = 1) -> list[tuple[str | None, str]]:
        """Split every source line into its language tag, None if it has none, and its text.

        Args:
            lines: Source lines.
            name: File the lines come from, for the message.
            first: Number of the first line in it.

        Raises:
            DataError: If a line starts with the tag of a language that this tokenizer does not know.
        """
        parts = [split_tag(line, self.language_tags) for line in lines]
        for number, (tag, _) in enumerate(parts, start=first):
            if tag is not None and tag not in self.language_tags:
                known = ", ".join(map(language_tag, self.language_tags))
                raise DataError(
                    f"{name}{', ' if name else ''}line {number}: unknown language tag {language_tag(tag)}; the model's "
                    f"tags are {known}"
                )
        return parts

    def encode_sources(self, texts: Sequence[str], target_lang: str | None = None) -> list[list[int]]:
        """Spell source lines: the language tag if any, the pieces, the end token.

        Args:
            texts: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of the lines that bring no tag.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer.
            DataError: If a line starts with an unknown language tag, or holds an unpaired surrogate.
        """
        if target_lang is not None and target_lang not in self.language_tags:
            known = nearest_name(target_lang, self.language_tags) if self.language_tags else "; the model has no tags"
            raise ConfigError(f"unknown target language {target_lang!r}{known}")
        parts = self.split_sources(texts)
        spelled = self.encode_batch([text for _, text in parts])
        tags = [self.language_tags.get(tag or target_lang or "") for tag, _ in parts]
        return [[*([] if tag is None else [tag]), *ids, self.eos_id] for tag, ids in zip(tags, spelled, strict=True)]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell target lines: the pieces, the end token."""
        return [[*ids, self.eos_id] for ids in self.encode_batch(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens are left out.

        Ids that a model wrote may break off within a character; its bytes then read as U+FFFD.
        """
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of several id sequences, in parallel."""
        return self._backend.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id as readable text, special tokens by name; a piece of half a character shows U+FFFD."""
        special = {*range(len(SPECIAL_TOKENS)), *self.language_tags.values()}
        byte_level = decoders.ByteLevel()
        tokens = [self._backend.id_to_token(token_id) or SPECIAL_TOKENS[self.unk_id] for token_id in ids]
        return [
            token if token_id in special else byte_level.decode([token])
            for token_id, token in zip(ids, tokens, strict=True)
        ]


def _untrained(kind: Kind) -> models.Model:
    match kind:
        case "bpe":
            return models.BPE(unk_token="<unk>")
        case "unigram":
            return models.Unigram()
        case "wordpiece":
            return models.WordPiece(unk_token="<unk>", continuing_subword_prefix="")


def _trainer(kind: Kind, vocab_size: int, special: list[str]) -> trainers.Trainer:
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": special,
        "initial_alphabet": _BYTES,
        "show_progress": False,
    }
    match kind:
        case "bpe":
            return trainers.BpeTrainer(min_frequency=2, **common)
        case "unigram":
            return trainers.UnigramTrainer(unk_token="<unk>", **common)
        case "wordpiece":
            return trainers.WordPieceTrainer(min_frequency=2, continuing_subword_prefix="", **common)


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number} holds an unpaired surrogate (U+{ord(text[error.start]):04X}) at character "
                f"{error.start + 1}; it is half of a character and cannot be written as UTF-8"
            ) from None

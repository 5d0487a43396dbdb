"""Subword tokenizers that lose nothing: BPE, Unigram and WordPiece over the bytes of the text (paper section 5.1).

Text is taken as UTF-8 bytes, each byte a symbol of the alphabet, so every string has a spelling and
`decode(encode(x)) == x`. No normalisation changes a character. One space is put before the text and taken off again
when decoding, so that a word is the same piece at the start of a line as within it.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.choices import TokenizerKind
from clearhead.errors import ConfigError, DataError, ModelError, nearest_name
from clearhead.files import read_text, write_text
from clearhead.language_tags import language_tag, split_tag, tagged_language

__all__ = ["SPECIAL_TOKENS", "START_TOKEN", "Tokenizer", "require_texts"]

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""Padding, start of target, end of sentence, unknown. A vocabulary that we train begins with them; one that comes from
elsewhere may have them anywhere."""

START_TOKEN = SPECIAL_TOKENS[1]

MOST_BYTES = 256 * 2**20
"""Largest `tokenizer.json` that is read; 250,000 pieces take about 20 MB."""

_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_LONG_WORD = r"[\s\S]{1,64}"
_PARTS = ("Prepend", "Sequence", "Digits", "ByteLevel", "Split", "Strip")
"""What takes text apart and puts it together again."""


def require_texts(texts: object, what: str) -> list[str]:
    """Return a list of texts as such.

    Args:
        texts: What a caller gave.
        what: Name of the argument, for the message.

    Raises:
        DataError: If it is a single text, or anything but texts is in it.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(f"{what} must be a list of texts, not {type(texts).__name__}; for one text write [text]")
    found = list(texts)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str):
            raise DataError(f"{what} must be a list of texts; number {number} is {type(text).__name__}, not str")
    return found


class Tokenizer:
    """A trained vocabulary: text to ids and back; the owner of the ids of the special tokens.

    Text is never read as a special token: a literal `</s>` in a sentence is spelled in ordinary pieces.
    """

    pad_id: int
    """Id of `<pad>`."""
    bos_id: int
    """Id of `<s>`."""
    eos_id: int
    """Id of `</s>`."""
    unk_id: int
    """Id of `<unk>`."""
    vocab_size: int
    """Pieces and special tokens; their ids are 0 to one less."""
    language_tags: dict[str, int]
    """Language to the id of its tag, in the order of the ids."""

    def __init__(self, text: str) -> None:
        """Take the text of a `tokenizer.json`.

        Raises:
            ValueError: If the text is not a tokenizer, a special token is missing, or the ids have gaps.
        """
        if not isinstance(text, str):
            raise ValueError(f"the text of a tokenizer.json must be str, not {type(text).__name__}")
        try:
            _require_our_parts(json.loads(text))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        with _typed_errors(ValueError):
            backend = tokenizers.Tokenizer.from_str(text)
            backend.encode_special_tokens = True  # a "</s>" in the text is text
            added = backend.get_added_tokens_decoder()
            ids = set(backend.get_vocab(with_added_tokens=True).values())
        special = {token.content: token_id for token_id, token in sorted(added.items()) if token.special}
        if missing := [token for token in SPECIAL_TOKENS if token not in special]:
            raise ValueError(f"it has no special token {' '.join(missing)}")
        if ids != set(range(len(ids))):
            raise ValueError(f"the ids of its {len(ids)} pieces are not 0 to {len(ids) - 1}")
        self._backend = backend
        self._special = frozenset(added)
        self._ordered: list[tuple[str, int]] = []  # pieces with their ids, by name; made when first needed
        self.text = text
        self.vocab_size = len(ids)
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = (special[token] for token in SPECIAL_TOKENS)
        self.language_tags = {
            language: token_id
            for token, token_id in special.items()
            if (language := tagged_language(token)) is not None
        }

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: TokenizerKind = "bpe",
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
        model, trainer = _untrained(kind, vocab_size, special)
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizers.Prepend(" ")
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                *([pre_tokenizers.Digits(individual_digits=True)] if split_digits else []),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                # WordPiece searches each word in quadratic time; no word gets longer than this.
                pre_tokenizers.Split(Regex(_LONG_WORD), behavior="isolated"),
            ]
        )
        backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        backend.train_from_iterator(texts, trainer)
        return cls(backend.to_str(pretty=True))  # a tokenizer is what its file says, a trained one as well

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelError: If the file is missing or is not a tokenizer of ours.
        """
        try:
            return cls(read_text(path, most_bytes=MOST_BYTES))
        except OSError as error:
            raise ModelError(f"cannot read the tokenizer {path}: {error.strerror}") from None
        except ValueError as error:
            raise ModelError(f"{path} is not a clearhead tokenizer: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json`, whole or not at all."""
        write_text(path, self.text)

    @property
    def sha256(self) -> str:
        """Hash of `tokenizer.json`, which decides how text becomes ids."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def model_settings(self) -> dict[str, int]:
        """The settings of `[model]` that are the tokenizer's to decide: `vocab_size` and the ids of special tokens."""
        return {"vocab_size": self.vocab_size, "pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}

    @property
    def kind(self) -> str:
        """The subword algorithm: `bpe`, `unigram` or `wordpiece`."""
        return type(self._backend.model).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of `[tokenizer]` that such a vocabulary is learned with."""
        parts = (json.loads(self.text).get("pre_tokenizer") or {}).get("pretokenizers", ())
        return {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "split_digits": any(part["type"] == "Digits" for part in parts),
            "language_tags": tuple(self.language_tags),
        }

    def encode(self, text: str) -> list[int]:
        """Spell a text in ids, without special tokens.

        Raises:
            DataError: If it is no text, or holds an unpaired surrogate, which no encoding can write.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell several texts, in parallel.

        Raises:
            DataError: If one is no text, or holds an unpaired surrogate.
            ModelError: If the vocabulary has no pieces for one; none of ours is like that.
        """
        texts = require_texts(texts, "texts")
        try:
            with _typed_errors(ModelError, "the tokenizer cannot spell the text: "):
                encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except ModelError:
            _refuse_surrogates(texts)
            raise
        return [encoding.ids for encoding in encodings]

    def split_sources(
        self, lines: Sequence[str], target_lang: str | None = None, *, name: str = "", first: int = 1
    ) -> list[tuple[str | None, str]]:
        """Split every source line into the language its tag names and its text.

        Args:
            lines: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of the lines that bring no tag.
            name: File the lines come from, for the message.
            first: Number of the first line in it.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer.
            DataError: If a line starts with the tag of a language that this tokenizer does not know.
        """
        if target_lang is not None and not isinstance(target_lang, str):
            raise ConfigError(f"target_lang must be a language such as 'de', not {type(target_lang).__name__}")
        if target_lang is not None and target_lang not in self.language_tags:
            known = nearest_name(target_lang, self.language_tags) if self.language_tags else "; the model has no tags"
            raise ConfigError(f"unknown target language {target_lang!r}{known}")
        parts = [split_tag(line, self.language_tags) for line in lines]
        for number, (tag, _) in enumerate(parts, start=first):
            if tag is not None and tag not in self.language_tags:
                raise DataError(
                    f"{name}{', ' if name else ''}line {number}: unknown language tag {language_tag(tag)}; the model's "
                    f"tags are {', '.join(map(language_tag, self.language_tags))}"
                )
        return [(tag or target_lang, text) for tag, text in parts]

    def encode_sources(self, texts: Sequence[str], target_lang: str | None = None) -> list[list[int]]:
        """Spell source lines: the language tag if any, the pieces, the end token.

        Args:
            texts: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of the lines that bring no tag.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer.
            DataError: If a line is no text, starts with an unknown language tag, or holds an unpaired surrogate.
        """
        return self.encode_parts(self.split_sources(require_texts(texts, "texts"), target_lang))

    def encode_parts(self, parts: Sequence[tuple[str | None, str]]) -> list[list[int]]:
        """Spell source lines that `split_sources` has split, or cleaning; see `encode_sources`."""
        spelled = self.encode_batch([text for _, text in parts])
        tags = [self.language_tags.get(language or "") for language, _ in parts]
        return [[*([] if tag is None else [tag]), *ids, self.eos_id] for tag, ids in zip(tags, spelled, strict=True)]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell target lines: the pieces, the end token."""
        return [[*ids, self.eos_id] for ids in self.encode_batch(texts)]

    def completions(self, ids: Sequence[int]) -> list[list[int]]:
        """Return for each id of a spelled text the pieces that begin with all that is spelled from there on.

        Such a piece stands for the rest of the text, and may go beyond it: after `ein H` it may be `Hund`.
        """
        if not self._ordered:
            vocabulary = self._backend.get_vocab(with_added_tokens=True)
            self._ordered = sorted(item for item in vocabulary.items() if item[1] not in self._special)
        found, rest = [], ""
        for token_id in reversed(ids):
            rest = (self._backend.id_to_token(token_id) or "") + rest
            first = at = bisect_left(self._ordered, rest, key=lambda item: item[0])
            while at < len(self._ordered) and self._ordered[at][0].startswith(rest):
                at += 1
            found.append([piece_id for _, piece_id in self._ordered[first:at]])
        return found[::-1]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens are left out.

        Ids that a model wrote may break off within a character; its bytes then read as U+FFFD.

        Raises:
            DataError: If they are no ids.
        """
        return self.decode_batch([ids])[0]

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of several id sequences, in parallel.

        Raises:
            DataError: If they are no ids.
        """
        with _typed_errors(DataError, "these ids cannot be read as text: "):
            return self._backend.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each id as readable text, special tokens by name; a piece of half a character shows U+FFFD.

        Raises:
            DataError: If they are no ids.
        """
        byte_level = decoders.ByteLevel()
        with _typed_errors(DataError, "these ids cannot be read as pieces: "):
            tokens = [self._backend.id_to_token(token_id) or SPECIAL_TOKENS[3] for token_id in ids]
            return [
                token if token_id in self._special else byte_level.decode([token])
                for token_id, token in zip(ids, tokens, strict=True)
            ]


@contextmanager
def _typed_errors(error: type[Exception], message: str = "") -> Iterator[None]:
    """Turn whatever the library raises into one exception of ours."""
    try:
        yield
    except BaseException as problem:
        # The library raises bare Exception for any malformed file, and a BaseException where its Rust code panics.
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise error(f"{message}{problem}") from None


def _require_our_parts(values: Any) -> None:
    """Make sure that the file has the normalizer, pre-tokenizer and decoder of our own tokenizers, and no other.

    Raises:
        ValueError: If a part is not one of those that `Tokenizer.train` chooses.
    """
    if not isinstance(values, dict):
        raise ValueError("it must hold a JSON object")
    for name in ("truncation", "padding", "post_processor"):
        if values.get(name) is not None:
            raise ValueError(f"its {name} must be null")
    waiting = [values.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            kind = part.get("type")
            if "type" in part and kind not in _PARTS:
                raise ValueError(f"it has a part of type {kind!r}, which clearhead's tokenizers have not")
            if kind == "Split" and part.get("pattern") != {"Regex": _LONG_WORD}:
                raise ValueError("it splits words by another pattern than clearhead's tokenizers")
            waiting += part.values()


def _untrained(kind: TokenizerKind, vocab_size: int, special: list[str]) -> tuple[models.Model, trainers.Trainer]:
    """Return an empty vocabulary and what fills it."""
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": special,
        "initial_alphabet": _BYTES,
        "show_progress": False,
    }
    match kind:
        case "bpe":
            return models.BPE(unk_token="<unk>"), trainers.BpeTrainer(min_frequency=2, **common)
        case "unigram":
            return models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", **common)
        case "wordpiece":
            model = models.WordPiece(unk_token="<unk>", continuing_subword_prefix="")
            return model, trainers.WordPieceTrainer(min_frequency=2, continuing_subword_prefix="", **common)


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number} holds an unpaired surrogate (U+{ord(text[error.start]):04X}) at character "
                f"{error.start + 1}; it is half of a character and cannot be written as UTF-8"
            ) from None

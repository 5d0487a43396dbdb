"""Lossless subword tokenizers: BPE, Unigram and WordPiece over UTF-8 bytes (paper section 5.1); loading of any.

Each UTF-8 byte is a symbol of the alphabet, so every string can be tokenized, and `decode(encode(x)) == x`. There is no
normalization. A space is prepended to the text and removed again when decoding, so that a word is the same piece at the
start of a line as within it. If the vocabulary has placeholder tokens, the same is done after each placeholder
character (`placeholders.SIGNS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, get_args

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.config.choices import TokenizerKind
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.text.languages import language_tag, tagged_language
from clearhead.text.placeholders import SIGNS
from clearhead.tokenizers.spans import UNREADABLE
from clearhead.tokenizers.tokenizer_json import parts, require_bounded
from clearhead.tokenizers.vocabulary import (
    Vocabulary,
    byte_level_bytes,
    read_vocabulary,
    refuse_surrogates,
    require_texts,
    typed_errors,
)

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
"""Padding, start of target, end of sentence, unknown. They are the first ids of a vocabulary that we train; other
vocabularies may have them anywhere."""

START_TOKEN = SPECIAL_TOKENS[1]

_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
_SPACE = "\u0120"  # as the byte level writes a space
_BEHIND_SIGN = re.compile(f"([{SIGNS[0]}-{SIGNS[-1]}]) ")
LONGEST_WORD = 64
"""Bytes of a word; a longer one is cut."""
_LONG_WORD = rf"[\s\S]{{1,{LONGEST_WORD}}}"
_PARTS = ("Prepend", "Sequence", "Digits", "ByteLevel", "Split", "Strip")
"""The allowed types of normalizer, pre-tokenizer and decoder components."""


class Tokenizer(Vocabulary):
    """A learned subword vocabulary, shared by both sides."""

    is_lossless = True
    unk_id: int
    """Id of `<unk>`, which never occurs in tokenized text."""

    def __init__(self, text: str) -> None:
        """Parse the text of a `tokenizer.json`.

        Raises:
            ValueError: If the text is not a tokenizer, a special token is missing, or the ids have gaps.
        """
        if not isinstance(text, str):
            raise ValueError(f"the text of a tokenizer.json must be str, not {type(text).__name__}")
        try:
            values = json.loads(text)
            _require_our_parts(values)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        with typed_errors(ValueError):
            backend = tokenizers.Tokenizer.from_str(text)
            for split_digits in (True, False):
                if json.loads(_cutting(split_digits).__getstate__()) == values.get("pre_tokenizer"):
                    backend.pre_tokenizer = _cutting(split_digits, quickly=True)
            backend.encode_special_tokens = True  # a "</s>" in the text is text
            added = backend.get_added_tokens_decoder()
            pieces = values["model"]["vocab"]  # a mapping, but of Unigram a list; the library takes longer to list them
            ids = {*(pieces if isinstance(pieces, dict) else backend.get_vocab()).values(), *added}
        special = {token.content: token_id for token_id, token in sorted(added.items()) if token.special}
        if missing := [token for token in SPECIAL_TOKENS if token not in special]:
            raise ValueError(f"it has no special token {' '.join(missing)}")
        if ids != set(range(len(ids))):
            raise ValueError(f"the ids of its {len(ids)} pieces are not 0 to {len(ids) - 1}")
        signs = {token.content: token_id for token_id, token in added.items() if not token.special}
        if any(
            token.lstrip or token.rstrip or token.single_word or token.normalized
            for token in added.values()
            if not token.special
        ):
            raise ValueError("its tokens for placeholders must be found as they stand, wherever that is")
        if signs and [signs.get(sign) for sign in SIGNS] != list(range(len(ids) - len(SIGNS), len(ids))):
            raise ValueError("its added tokens are not those for placeholders, at the end of the vocabulary")
        self._backend = backend
        self._special = frozenset(special.values())
        self.num_placeholders = len(signs)
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
        placeholders: bool = False,
    ) -> Self:
        """Learn a joint vocabulary from the text of both languages.

        Args:
            texts: Segments, without language tags.
            kind: Subword algorithm.
            vocab_size: Maximum number of pieces, special tokens and the 256 bytes included; a small corpus yields
                fewer.
            split_digits: Whether every digit is a separate piece.
            language_tags: Languages that get a tag token.
            placeholders: Whether to add tokens for the placeholder characters.

        Raises:
            ConfigError: If `vocab_size` is too small for the bytes and the special tokens, or the kind is unknown or
                `imported`.
        """
        if kind not in get_args(TokenizerKind):
            raise ConfigError(f"tokenizer.kind: no kind {kind!r}; there are {', '.join(get_args(TokenizerKind)[:-1])}")
        special = [*SPECIAL_TOKENS, *map(language_tag, language_tags)]
        signs = SIGNS if placeholders else ()
        if vocab_size < (least := len(special) + len(_BYTES) + 1 + len(signs)):
            raise ConfigError(
                f"tokenizer.vocab_size ({vocab_size}) must be at least {least}: 256 bytes, "
                f"{len(special) + len(signs)} special tokens and one learned piece"
            )
        model, trainer = _untrained(kind, vocab_size - len(signs), special)
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizers.Prepend(" ")
        backend.pre_tokenizer = _cutting(split_digits, quickly=True)
        backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
        backend.train_from_iterator(texts, trainer)
        backend.pre_tokenizer = _cutting(split_digits)
        backend.add_tokens([AddedToken(sign, special=False, normalized=False) for sign in signs])
        return cls(backend.to_str(pretty=True))  # a trained tokenizer is also constructed from its file's text

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a `tokenizer.json`.

        Raises:
            ModelError: If the file is missing or is not a tokenizer of ours.
        """
        return read_vocabulary(path, cls)

    @property
    def kind(self) -> str:
        """The subword algorithm: `bpe`, `unigram` or `wordpiece`."""
        return type(self._backend.model).__name__.lower()

    @property
    def settings(self) -> dict[str, Any]:
        """The `[tokenizer]` settings it was learned with."""
        parts = (json.loads(self.text).get("pre_tokenizer") or {}).get("pretokenizers", ())
        return {
            "kind": self.kind,
            "vocab_size": self.vocab_size,
            "split_digits": any(part["type"] == "Digits" for part in parts),
            "language_tags": tuple(self.language_tags),
            "placeholders": self.num_placeholders > 0,
        }

    def tokens(self) -> list[str]:
        """Return the names of all pieces, by id, as in `tokenizer.json`."""
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize several texts, in parallel.

        Raises:
            DataError: If an item is not text, or contains an unpaired surrogate.
            ModelError: If the vocabulary has no pieces for a text; impossible with our own vocabularies.
        """
        texts = require_texts(texts, "texts")
        try:
            with typed_errors(ModelError, "the tokenizer cannot encode the text: "):
                encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except ModelError:
            refuse_surrogates(texts)
            raise
        return [encoding.ids for encoding in encodings]

    def encode_parts(self, parts: Sequence[tuple[str | None, str]], source_lang: str | None = None) -> list[list[int]]:
        """Tokenize source lines: language tag if any, pieces, end token; `source_lang` is ignored."""
        encoded = self.encode_batch([text for _, text in parts])
        tags = [self.language_tags.get(language or "") for language, _ in parts]
        return [[*([] if tag is None else [tag]), *ids, self.eos_id] for tag, ids in zip(tags, encoded, strict=True)]

    def encode_targets(self, texts: Sequence[str], languages: Sequence[str | None] = ()) -> list[list[int]]:
        """Tokenize target lines: pieces, end token; the target language is a tag on the source side."""
        return [[*ids, self.eos_id] for ids in self.encode_batch(texts)]

    def given(self, language: str | None) -> tuple[int, ...]:
        """Return (), because the target language is a tag on the source side."""
        return ()

    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize the beginnings of target texts, as any other text."""
        return self.encode_batch(texts)

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Detokenize several id sequences, in parallel.

        Raises:
            DataError: If the ids are invalid.
        """
        with typed_errors(DataError, "these ids cannot be read as text: "):
            texts = self._backend.decode_batch([list(ids) for ids in batch], skip_special_tokens=True)
        return [_BEHIND_SIGN.sub(r"\1", text) for text in texts] if self.num_placeholders else texts

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each id, names for special tokens; part of a character is shown as U+FFFD.

        Raises:
            DataError: If the ids are invalid.
        """
        byte_level = decoders.ByteLevel()
        with typed_errors(DataError, "these ids cannot be read as pieces: "):
            tokens = [self._backend.id_to_token(token_id) or SPECIAL_TOKENS[3] for token_id in ids]
            return [
                token if token_id in self._special else byte_level.decode([token])
                for token_id, token in zip(ids, tokens, strict=True)
            ]

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each source id; both sides share one vocabulary."""
        return self.pieces(ids)

    def source_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return the span of each id in a text; a piece of part of a character has the span of the whole character."""
        if UNREADABLE in text:  # a model may have written part of a character, fewer bytes than U+FFFD
            return super().source_spans(ids, text)
        places = [place for place, character in enumerate(text) for _ in character.encode("utf-8", "replace")]
        places.append(len(text))  # maps byte offsets to characters
        spans, at, is_first = [], 0, True
        for token_id in ids:
            size = 0
            if token_id not in self._special:
                token = self._backend.id_to_token(token_id) or ""
                is_sign = token in SIGNS and self.num_placeholders > 0
                # A space was prepended to the text, but a model may omit it.
                has_space = is_first and token.startswith(_SPACE)
                size = len(token.encode()) if is_sign else len(token) - has_space  # one character is one byte
                is_first = is_sign
            start, end = (min(place, len(places) - 1) for place in (at, at + size))
            spans.append((places[start], places[end - 1] + 1 if end > start else places[start]))
            at += size
        return spans

    def target_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return the span of each id in a text; both sides share one vocabulary."""
        return self.source_spans(ids, text)

    def _bytes_of(self, name: str) -> bytes | None:
        return byte_level_bytes(name)

    def _text_pieces(self) -> list[tuple[str, int]]:
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        return [item for item in vocabulary.items() if item[1] not in self._special]


def _require_our_parts(values: Any) -> None:
    """Check that the file has only components that our own tokenizers use.

    Raises:
        ValueError: If a component is not one that `Tokenizer.train` uses.
    """
    if not isinstance(values, dict):
        raise ValueError("it must hold a JSON object")
    for name in ("truncation", "padding", "post_processor"):
        if values.get(name) is not None:
            raise ValueError(f"its {name} must be null")
    for part in parts(values, "normalizer", "pre_tokenizer", "decoder"):
        if (kind := part["type"]) not in _PARTS:
            raise ValueError(f"it has a part of type {kind!r}, which clearhead's tokenizers have not")
        if kind == "Split" and part.get("pattern") != {"Regex": _LONG_WORD}:
            raise ValueError("it splits words by another pattern than clearhead's tokenizers")
    require_bounded(values)


def _cutting(split_digits: bool, *, quickly: bool = False) -> pre_tokenizers.PreTokenizer:
    """Return the cutting of a text into words, of which pieces are learned.

    Args:
        split_digits: Whether every digit is a word.
        quickly: Whether to take a fifth less time, in a form that versions of the library before 0.22 cannot read.
    """
    is_known = quickly and hasattr(pre_tokenizers, "FixedLength")
    return pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Digits(individual_digits=True)] if split_digits else []),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            # WordPiece takes quadratic time per word, so longer words are cut.
            pre_tokenizers.FixedLength(LONGEST_WORD)
            if is_known
            else pre_tokenizers.Split(Regex(_LONG_WORD), behavior="isolated"),
        ]
    )


def _untrained(kind: TokenizerKind, vocab_size: int, special: list[str]) -> tuple[models.Model, trainers.Trainer]:
    """Return an untrained model and its trainer."""
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
        case "imported":
            raise ConfigError(
                "tokenizer.kind = 'imported' cannot be learned; start from the imported model with --from"
            )


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a `tokenizer.json`, learned or imported.

    Raises:
        ModelError: If the file is missing or invalid, or a required library is missing.
    """
    return read_vocabulary(path, _made)


def _made(text: str) -> Vocabulary:
    if '"clearhead_vocabulary"' not in text:  # which takes a hundredth of the time of parsing it
        return Tokenizer(text)
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not (isinstance(values, dict) and "clearhead_vocabulary" in values):
        return Tokenizer(text)
    from clearhead.tokenizers.foreign import ForeignVocabulary

    return ForeignVocabulary(text)

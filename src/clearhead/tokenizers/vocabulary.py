"""The interface of all vocabularies, learned and imported: text to ids and back."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from clearhead.errors import ConfigError, DataError, ModelError, nearest_name
from clearhead.files import read_text, write_text
from clearhead.runtime.lazy import cached_property
from clearhead.text.languages import language_tag, split_tag
from clearhead.tokenizers.spans import matched_spans
from clearhead.tokenizers.tokenizer_json import require_few_values

V = TypeVar("V", bound="Vocabulary")

_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""Pattern of a piece of one byte, for characters that a vocabulary lacks (byte fallback)."""
_PRINTED = [byte for byte in range(256) if 32 < byte < 127 or (byte > 160 and byte != 173)]
_BYTE_OF = dict(
    zip(
        map(chr, [*_PRINTED, *range(256, 512 - len(_PRINTED))]),
        [*_PRINTED, *(byte for byte in range(256) if byte not in _PRINTED)],
        strict=True,
    )
)
"""The byte of each character by which byte-level vocabularies write it (GPT-2)."""

MOST_BYTES = 256 * 2**20
"""Maximum size of a `tokenizer.json`; 250,000 pieces take about 20 MB."""


class Vocabulary(ABC):
    """A mapping from text to ids and back, including the ids of special tokens.

    Text is never parsed as a special token: a literal `</s>` in a sentence becomes ordinary pieces.
    """

    text: str
    """The whole text of `tokenizer.json`."""
    pad_id: int
    """Id of padding."""
    bos_id: int
    """First decoder input of a translation; a model never writes it, unless it is also the end token."""
    eos_id: int
    """Id of the end of a sentence."""
    vocab_size: int
    """Number of ids of the target side; of both sides, if `source_vocab_size` is None."""
    source_vocab_size: int | None = None
    """Number of ids of the source side, if it has its own vocabulary."""
    language_tags: dict[str, int]
    """For each target language, the id that requests a translation into it, ordered by id."""
    is_lossless: bool
    """Whether every text can be tokenized and restored exactly."""
    num_placeholders = 0
    """Number of placeholder tokens, the last ids of the target side; see `ModelConfig.num_placeholders`."""
    tells_languages = False
    """Whether a known language is always given to the model, in training as well."""

    @abstractmethod
    def __init__(self, text: str) -> None:
        """Parse the text of a `tokenizer.json`.

        Raises:
            ValueError: If the text is not such a vocabulary.
        """

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        """Make another process parse the same text."""
        return type(self), (self.text,)

    def save(self, path: str | Path) -> None:
        """Write `tokenizer.json` atomically."""
        write_text(path, self.text)

    @property
    def sha256(self) -> str:
        """SHA-256 of `tokenizer.json`, which identifies the tokenization."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def model_settings(self) -> dict[str, int]:
        """The `[model]` settings that the tokenizer determines: `vocab_size` and the ids of special tokens."""
        sizes = {"vocab_size": self.vocab_size, "source_vocab_size": self.source_vocab_size}
        settings = {**sizes, "pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}
        settings["num_placeholders"] = self.num_placeholders or None
        return {name: value for name, value in settings.items() if value is not None}

    @property
    @abstractmethod
    def kind(self) -> str:
        """The subword algorithm, such as `bpe`."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The `[tokenizer]` settings of a run with this vocabulary."""

    def split_sources(
        self, lines: Sequence[str], target_lang: str | None = None, *, name: str = "", first: int = 1
    ) -> list[tuple[str | None, str]]:
        """Split each source line into the language of its tag, and its text.

        Args:
            lines: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of lines without a tag.
            name: File of the lines, for messages.
            first: Number of the first line in that file.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer.
            DataError: If a line starts with the tag of an unknown language.
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

    def encode_sources(
        self, texts: Sequence[str], target_lang: str | None = None, source_lang: str | None = None
    ) -> list[list[int]]:
        """Tokenize source lines: pieces and special tokens, such as a language tag and the end token.

        Args:
            texts: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of lines without a tag.
            source_lang: Language of the texts, for vocabularies with source-language tokens.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer, or a required `source_lang` is missing or
                unknown.
            DataError: If a line is not text, starts with an unknown language tag, or contains an unpaired surrogate.
        """
        return self.encode_parts(self.split_sources(require_texts(texts, "texts"), target_lang), source_lang)

    @abstractmethod
    def encode_parts(self, parts: Sequence[tuple[str | None, str]], source_lang: str | None = None) -> list[list[int]]:
        """Tokenize source lines already split into language and text; see `encode_sources`."""

    @abstractmethod
    def encode_targets(self, texts: Sequence[str], languages: Sequence[str | None] = ()) -> list[list[int]]:
        """Tokenize target lines: control tokens (`given`), pieces, end token.

        Args:
            texts: Target lines.
            languages: Language of each line; unknown if empty.
        """

    @abstractmethod
    def given(self, language: str | None) -> tuple[int, ...]:
        """Return the control tokens at the start of every translation into a language; they are not text."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize several source texts, in parallel, without special tokens.

        Raises:
            DataError: If an item is not text, or contains an unpaired surrogate.
        """

    @abstractmethod
    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize the beginnings of target texts, without special tokens."""

    def completions(self, ids: Sequence[int]) -> list[list[int]]:
        """Return for each id of a tokenized target prefix the pieces that begin with the rest of the prefix.

        Such a piece replaces all ids from there on, and may be longer than the rest: after `ein H` it may be `Hund`.
        """
        ordered, names = self._pieces_by_name
        groups, rest = [], ""
        for token_id in reversed(ids):
            rest = names.get(token_id, "") + rest
            first = at = bisect_left(ordered, rest, key=lambda item: item[0])
            while at < len(ordered) and ordered[at][0].startswith(rest):
                at += 1
            groups.append([piece_id for _, piece_id in ordered[first:at]])
        return groups[::-1]

    @cached_property
    def _pieces_by_name(self) -> tuple[list[tuple[str, int]], dict[int, str]]:
        """The target pieces that are text, sorted by name, and the name of each id."""
        ordered = sorted(self._text_pieces())
        return ordered, {piece_id: name for name, piece_id in ordered}

    @abstractmethod
    def _text_pieces(self) -> Iterable[tuple[str, int]]:
        """Return the target pieces that are text, as pairs of name and id."""

    def parts_of_characters(self) -> dict[int, bytes]:
        """Return the bytes of each target piece that is not one or more whole characters of UTF-8."""
        named = ((piece_id, self._bytes_of(name)) for name, piece_id in self._text_pieces())
        return {piece_id: text for piece_id, text in named if text is not None and not _is_utf8(text)}

    def _bytes_of(self, name: str) -> bytes | None:
        """Return the bytes of a piece; None if it is text."""
        return bytes([int(name[1:-1], 16)]) if _BYTE.fullmatch(name) else None

    @abstractmethod
    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Detokenize several sequences of target ids, in parallel, without special tokens.

        Raises:
            DataError: If the ids are invalid.
        """

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each target id, names for special tokens.

        Raises:
            DataError: If the ids are invalid.
        """

    @abstractmethod
    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the readable text of each source id, names for special tokens.

        Raises:
            DataError: If the ids are invalid.
        """

    def source_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return the character span of each id in a source text; ids that are not text have empty spans."""
        return matched_spans(self._without_special(ids, self.source_pieces(ids)), text)

    def target_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return the character span of each id in a target text; ids that are not text have empty spans."""
        return matched_spans(self._without_special(ids, self.pieces(ids)), text)

    def _without_special(self, ids: Sequence[int], pieces: Sequence[str]) -> list[str]:
        special = self._no_text()
        return ["" if token_id in special else piece for token_id, piece in zip(ids, pieces, strict=True)]

    def _no_text(self) -> set[int]:
        """Return the ids that are not text, of either side."""
        return {self.pad_id, self.bos_id, self.eos_id, *self.language_tags.values()}

    def encode(self, text: str) -> list[int]:
        """Tokenize a source text, without special tokens.

        Raises:
            DataError: If it is not text, or contains an unpaired surrogate, which no encoding can represent.
        """
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenize target ids, without special tokens.

        Ids may end within a character; its bytes then become U+FFFD. A search writes whole characters.

        Raises:
            DataError: If the ids are invalid.
        """
        return self.decode_batch([ids])[0]


def byte_level_bytes(name: str) -> bytes | None:
    """Return the bytes that a piece of a byte-level vocabulary is written for; None if it has other characters."""
    return bytes(map(_BYTE_OF.__getitem__, name)) if _BYTE_OF.keys() >= set(name) else None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_vocabulary(path: str | Path, make: Callable[[str], V]) -> V:
    """Read a `tokenizer.json`.

    Args:
        path: The file.
        make: Function from the text to the vocabulary; raises ValueError if the text is invalid.

    Raises:
        ModelError: If the file is missing or invalid.
    """
    try:
        text = read_text(path, most_bytes=MOST_BYTES)
        require_few_values(text)
        return make(text)
    except OSError as error:
        raise ModelError(f"cannot read the tokenizer {path}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not a clearhead tokenizer: {error}") from None


def require_texts(texts: object, what: str) -> list[str]:
    """Return the texts as a list.

    Args:
        texts: A caller's argument.
        what: Name of the argument, for the message.

    Raises:
        DataError: If it is a single text, or an item is not text.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise DataError(f"{what} must be a list of texts, not {type(texts).__name__}; for one text write [text]")
    read = list(texts)
    for number, text in enumerate(read, start=1):
        if not isinstance(text, str):
            raise DataError(f"{what} must be a list of texts; number {number} is {type(text).__name__}, not str")
    return read


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Raise an error for texts that cannot be encoded as UTF-8.

    Raises:
        DataError: With the number of the text and the position.
    """
    for number, text in enumerate(texts, start=1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {number} holds an unpaired surrogate (U+{ord(text[error.start]):04X}) at character "
                f"{error.start + 1}; it is half of a character and cannot be written as UTF-8"
            ) from None


@contextmanager
def typed_errors(error: type[Exception], message: str = "") -> Iterator[None]:
    """Convert any exception of a library into one of ours."""
    try:
        yield
    except BaseException as problem:
        # tokenizers raises a bare Exception for any malformed file, and a BaseException if its Rust code panics.
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise error(f"{message}{problem}") from None

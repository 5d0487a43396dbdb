"""What every vocabulary is asked, ours and those of other libraries: text to ids and back."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from clearhead.errors import ConfigError, DataError, ModelError, nearest_name
from clearhead.files import read_text, write_text
from clearhead.runtime.lazy import cached_property
from clearhead.text.language_tags import language_tag, split_tag
from clearhead.tokenizers.spans import matched_spans

__all__ = ["MOST_BYTES", "Vocabulary", "read_vocabulary", "refuse_surrogates", "require_texts", "typed_errors"]

V = TypeVar("V", bound="Vocabulary")

MOST_BYTES = 256 * 2**20
"""Largest `tokenizer.json` that is read; 250,000 pieces take about 20 MB."""


class Vocabulary(ABC):
    """Text to ids and back; the owner of the ids of the special tokens.

    Text is never read as a special token: a literal `</s>` in a sentence is spelled in ordinary pieces.
    """

    text: str
    """All of it, as it stands in `tokenizer.json`."""
    pad_id: int
    """Id of padding."""
    bos_id: int
    """Id that a translation starts from; a model never writes it, unless it is also the end."""
    eos_id: int
    """Id of the end of a sentence."""
    vocab_size: int
    """Ids of the target side, 0 to one less; of both sides, if there is no other vocabulary for the source."""
    source_vocab_size: int | None = None
    """Ids of the source side, if it has a vocabulary of its own."""
    language_tags: dict[str, int]
    """Language to the id that asks for a translation into it, in the order of the ids."""
    is_lossless: bool
    """Whether every text has a spelling whose text it is."""
    num_placeholders = 0
    """Tokens that stand for placeholders, the last of the target side; see `ModelConfig.num_placeholders`."""
    tells_languages = False
    """Whether a sentence whose language is known is always told to the model with it, in training as well."""

    @abstractmethod
    def __init__(self, text: str) -> None:
        """Take the text of a `tokenizer.json`.

        Raises:
            ValueError: If the text is no such vocabulary.
        """

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
        sizes = {"vocab_size": self.vocab_size, "source_vocab_size": self.source_vocab_size}
        found = {**sizes, "pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}
        found["num_placeholders"] = self.num_placeholders or None
        return {name: value for name, value in found.items() if value is not None}

    @property
    @abstractmethod
    def kind(self) -> str:
        """The subword algorithm, such as `bpe`."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings of `[tokenizer]` that a run with this vocabulary has."""

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

    def encode_sources(
        self, texts: Sequence[str], target_lang: str | None = None, source_lang: str | None = None
    ) -> list[list[int]]:
        """Spell source lines: the pieces, and what stands around them, such as a language tag and the end token.

        Args:
            texts: Source lines; a line may start with its own tag, such as `<2de> `.
            target_lang: Language of the lines that bring no tag.
            source_lang: Language of the texts, for a vocabulary that writes it down.

        Raises:
            ConfigError: If `target_lang` is not a language of this tokenizer, or `source_lang` is none and must be one.
            DataError: If a line is no text, starts with an unknown language tag, or holds an unpaired surrogate.
        """
        return self.encode_parts(self.split_sources(require_texts(texts, "texts"), target_lang), source_lang)

    @abstractmethod
    def encode_parts(self, parts: Sequence[tuple[str | None, str]], source_lang: str | None = None) -> list[list[int]]:
        """Spell source lines that `split_sources` has split, or cleaning; see `encode_sources`."""

    @abstractmethod
    def encode_targets(self, texts: Sequence[str], languages: Sequence[str | None] = ()) -> list[list[int]]:
        """Spell target lines: what they are given (`given`), the pieces, the end token.

        Args:
            texts: Target lines.
            languages: Of each; none is known if not given.
        """

    @abstractmethod
    def given(self, language: str | None) -> tuple[int, ...]:
        """Return the ids that every translation into a language begins with, which are none of its text."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell several source texts, in parallel, without special tokens.

        Raises:
            DataError: If one is no text, or holds an unpaired surrogate.
        """

    @abstractmethod
    def encode_prefixes(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell the beginnings of target texts, without special tokens."""

    def completions(self, ids: Sequence[int]) -> list[list[int]]:
        """Return for each id of the spelled beginning of a target the pieces that begin with the rest of it.

        Such a piece stands for all that is spelled from there on, and may go beyond it: after `ein H` it may be `Hund`.
        """
        ordered, names = self._pieces_by_name
        found, rest = [], ""
        for token_id in reversed(ids):
            rest = names.get(token_id, "") + rest
            first = at = bisect_left(ordered, rest, key=lambda item: item[0])
            while at < len(ordered) and ordered[at][0].startswith(rest):
                at += 1
            found.append([piece_id for _, piece_id in ordered[first:at]])
        return found[::-1]

    @cached_property
    def _pieces_by_name(self) -> tuple[list[tuple[str, int]], dict[int, str]]:
        """The target pieces that stand for text, by their own names, and the names of their ids."""
        ordered = sorted(self._text_pieces())
        return ordered, {piece_id: name for name, piece_id in ordered}

    @abstractmethod
    def _text_pieces(self) -> Iterable[tuple[str, int]]:
        """Return the target pieces that stand for text, by their own names, with their ids."""

    @abstractmethod
    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of several sequences of target ids, in parallel; special tokens are left out.

        Raises:
            DataError: If they are no ids.
        """

    @abstractmethod
    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each target id as readable text, special tokens by name.

        Raises:
            DataError: If they are no ids.
        """

    @abstractmethod
    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each source id as readable text, special tokens by name.

        Raises:
            DataError: If they are no ids.
        """

    def source_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return where in a source text each of its ids stands, in characters; what is no text has an empty span."""
        return matched_spans(self._without_special(ids, self.source_pieces(ids)), text)

    def target_spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Return where in a target text each of its ids stands, in characters; what is no text has an empty span."""
        return matched_spans(self._without_special(ids, self.pieces(ids)), text)

    def _without_special(self, ids: Sequence[int], pieces: Sequence[str]) -> list[str]:
        special = self._no_text()
        return ["" if token_id in special else piece for token_id, piece in zip(ids, pieces, strict=True)]

    def _no_text(self) -> set[int]:
        """Return the ids that stand for no text on either side."""
        return {self.pad_id, self.bos_id, self.eos_id, *self.language_tags.values()}

    def encode(self, text: str) -> list[int]:
        """Spell a source text in ids, without special tokens.

        Raises:
            DataError: If it is no text, or holds an unpaired surrogate, which no encoding can write.
        """
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of target ids; special tokens are left out.

        Ids that a model wrote may break off within a character; its bytes then read as U+FFFD.

        Raises:
            DataError: If they are no ids.
        """
        return self.decode_batch([ids])[0]


def read_vocabulary(path: str | Path, make: Callable[[str], V]) -> V:
    """Read a `tokenizer.json`.

    Args:
        path: The file.
        make: From its text to the vocabulary; raises ValueError if it is none.

    Raises:
        ModelError: If the file is missing or is no such vocabulary.
    """
    try:
        return make(read_text(path, most_bytes=MOST_BYTES))
    except OSError as error:
        raise ModelError(f"cannot read the tokenizer {path}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not a clearhead tokenizer: {error}") from None


def require_texts(texts: object, what: str) -> list[str]:
    """Return a list of texts as such.

    Args:
        texts: What a caller gave.
        what: Name of the argument, for the message.

    Raises:
        DataError: If it is a single text, or anything but texts is in it.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise DataError(f"{what} must be a list of texts, not {type(texts).__name__}; for one text write [text]")
    found = list(texts)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str):
            raise DataError(f"{what} must be a list of texts; number {number} is {type(text).__name__}, not str")
    return found


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Refuse texts that no encoding can write.

    Raises:
        DataError: Naming the text and the place.
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
    """Turn whatever a library raises into one exception of ours."""
    try:
        yield
    except BaseException as problem:
        # tokenizers raises bare Exception for any malformed file, and a BaseException where its Rust code panics.
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise error(f"{message}{problem}") from None

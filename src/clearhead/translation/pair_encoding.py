"""Tokenize sources with given translations, for scoring, alignment and explanation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from clearhead.config import DecodeConfig
from clearhead.errors import ConfigError, DataError
from clearhead.text.language_tags import language_tag
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import Protected, protect, protect_target
from clearhead.text.word_links import Span, words_of
from clearhead.tokenizers import Vocabulary, require_texts
from clearhead.translation.alignment import EncodedPair, encoded_pair
from clearhead.translation.normalization import known_forms


class PairEncoder:
    """Tokenizes sentence pairs with a model's vocabulary, in the Unicode forms that the model knows.

    Args:
        tokenizer: The vocabulary.
        trained: Statistics of the training lines; None if unknown.
    """

    def __init__(self, tokenizer: Vocabulary, trained: LineStatistics | None) -> None:
        self.tokenizer = tokenizer
        source_form, self.target_form = known_forms(tokenizer, trained)
        self.source_form = replace(source_form, spaces=None)  # a given pair keeps its white space, as its case

    def split_sources(
        self, lines: Sequence[str], target_lang: str | None, *, name: str = "", first: int = 1
    ) -> list[tuple[str | None, str]]:
        """Split source lines as `Tokenizer.split_sources` does, and require a target language for each.

        Raises:
            ConfigError: Naming the first non-blank line without a target language, and the available languages.
        """
        parts = self.tokenizer.split_sources(lines, target_lang, name=name, first=first)
        languages = list(self.tokenizer.language_tags)
        for number, (language, text) in enumerate(parts if languages else [], start=first):
            if language is None and text.strip():
                raise ConfigError(
                    f"{name}{', ' if name else ''}line {number}: into which language? This model translates into "
                    f"{', '.join(languages)}; start the line with its tag, {language_tag(languages[0])}, or say "
                    f"--target-lang {languages[0]} (in Python target_lang={languages[0]!r})"
                )
        return parts

    def encode(
        self, parts: Sequence[tuple[str | None, str]], targets: Sequence[str], config: DecodeConfig
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of sources and of their targets, with placeholders masked as the model expects.

        Args:
            parts: Target language and text of each source, as returned by `split_sources`.
            targets: Their translations.
            config: Only `source_lang` and `protect_numbers` are used.

        Raises:
            DataError: If one is not text, or contains an unpaired surrogate.
        """
        protected = self._protected(parts, config)
        targets = list(map(self.target_form, targets))
        languages = [language for language, _ in parts]
        read = [(language, one.text) for language, one in zip(languages, protected, strict=True)]
        written = [protect_target(one, target) for one, target in zip(protected, targets, strict=True)]
        return self.tokenizer.encode_parts(read, config.source_lang), self.tokenizer.encode_targets(written, languages)

    def encoded(
        self, sources: Sequence[str], targets: Sequence[str], config: DecodeConfig, *, name: str
    ) -> tuple[list[tuple[str | None, str]], list[list[int]], list[list[int]]]:
        """Return the target languages and texts of source lines, and the ids of both sides.

        Args:
            sources: Source lines; each may start with a language tag.
            targets: Their translations.
            config: Only `target_lang`, `source_lang`, `protect_numbers` and `max_input_tokens` are used.
            name: Name of the file of the sources, for messages.

        Raises:
            ConfigError: If the model has language tags and a line has no target language.
            DataError: If a side is not a list of texts, the numbers of lines differ, or a line exceeds the limit or
                starts with an unknown language tag.
        """
        sources, targets = require_texts(sources, "sources"), require_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} source lines but {len(targets)} target lines; they must pair up")
        parts = self.split_sources(sources, config.target_lang, name=name)
        source_ids, target_ids = self.encode(parts, targets, config)
        for number, ids in enumerate(map(max, zip(map(len, source_ids), map(len, target_ids), strict=True)), start=1):
            if ids > config.max_input_tokens:
                raise DataError(
                    f"{name}{', ' if name else ''}pair {number} has {ids:,} tokens on one side; at most "
                    f"{config.max_input_tokens:,} are scored or aligned (decode.max_input_tokens)"
                )
        return parts, source_ids, target_ids

    def pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        config: DecodeConfig,
        *,
        words: Callable[[str], list[Span]] = words_of,
        name: str = "",
    ) -> list[EncodedPair]:
        """Return tokenized pairs for word alignment.

        Args:
            sources: Source lines; each may start with a language tag.
            targets: Their translations.
            config: As for `encoded`.
            words: Returns the spans of the words of a text.
            name: Name of the file of the sources, for messages.

        Raises:
            ConfigError: If the model has language tags and a line has no target language.
            DataError: As `encoded`.
        """
        parts, *encoded = self.encoded(sources, targets, config, name=name)
        protected = self._protected(parts, config)
        written = map(self.target_form, targets)
        return [
            encoded_pair(self.tokenizer, source, source_ids, protect_target(source, target), target_ids, words)
            for source, target, source_ids, target_ids in zip(protected, written, *encoded, strict=True)
        ]

    def _protected(self, parts: Sequence[tuple[str | None, str]], config: DecodeConfig) -> list[Protected]:
        num_signs = self.tokenizer.num_placeholders
        numbers = config.protect_numbers
        return [protect(self.source_form(text), num_signs, with_numbers=numbers) for _, text in parts]

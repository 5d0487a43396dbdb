"""Normalize, segment and tokenize lines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, given_prefix
from clearhead.errors import ConfigError, DataError
from clearhead.runtime.lazy import cached_property
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholders import has_words
from clearhead.tokenizers import Vocabulary, require_texts
from clearhead.translation.normalization import Normalizer
from clearhead.translation.options import TranslateOptions
from clearhead.translation.pair_encoding import PairEncoder
from clearhead.translation.segment import SegmentedLine
from clearhead.translation.segmentation import cut_lines, cut_to_limit
from clearhead.translation.terminology import Terms


class Preprocessor:
    """Preprocesses lines for a model.

    Args:
        pair_encoder: Splits lines into language tag and text.
        tokenizer: Vocabulary of the model.
        config: Configuration of the model.
        trained: Statistics of the training lines; None if unknown.
    """

    def __init__(
        self, pair_encoder: PairEncoder, tokenizer: Vocabulary, config: ModelConfig, trained: LineStatistics | None
    ) -> None:
        self._pair_encoder = pair_encoder
        self._tokenizer = tokenizer
        self._config = config
        self._trained = trained
        self._normalize = Normalizer(tokenizer, trained)

    def __call__(
        self, lines: Sequence[str], config: DecodeConfig, prefix: str | Sequence[str], options: TranslateOptions
    ) -> list[SegmentedLine]:
        """Normalize lines, split them into sentences, and tokenize them, as configured.

        Args:
            lines: Source lines, which may begin with a language tag.
            config: Decode settings.
            prefix: Text that each translation begins with: one text, or one for each line.
            options: Only `terms`, `one_line`, `raw`, `name` and `first` are used.

        Raises:
            ConfigError: If the model has language tags and a line has no target language, or if a prefix
                contains a line end and `one_line` is set.
            DataError: If a line contains an unpaired surrogate; if prefixes are not texts, not one for each line, or
                too long for the model.
        """
        parts = self._pair_encoder.split_sources(lines, config.target_lang, name=options.name, first=options.first)
        beginnings = [prefix] * len(lines) if isinstance(prefix, str) else require_texts(prefix, "prefix")
        prefixes = self._prefixes(beginnings, len(lines), options.one_line)
        as_text = options.raw or self._config.is_decoder_alone
        read = []
        for line, (language, text), start in zip(lines, parts, beginnings, strict=True):
            begun = bool(start)
            form = self._normalize(text, config, language, keep_case=begun, as_text=as_text or begun)
            read.append(SegmentedLine(line, line.removesuffix(text), language, form, start))
        cut_lines(read, self._tokenizer, config, self._trained)
        for one in read:
            one.segments[0].prefix = prefixes[one.beginning]
            for segment in one.segments:
                segment.is_translated = bool(segment.text.strip()) and (
                    options.raw or bool(segment.prefix.tokens) or self.translates(segment.text, options.terms)
                )
        segments = [segment for one in read for segment in one.to_translate]
        most_begun = max((len(one.tokens) for one in prefixes.values()), default=0)
        cut_to_limit(segments, self._config, config, begun=most_begun)
        for segment in segments:
            segment.prefix = given_prefix(self._tokenizer.given(segment.language), segment.prefix)
        return read

    def translates(self, text: str, terms: Terms | None = None) -> bool:
        """Return whether a text is translated; otherwise it is left as it is, such as `...` or `12345`.

        It is if it has words or terms. A model that has learned to change texts without words, such as dates in
        figures, also translates those with a character of its training sources; a decoder alone continues any text.

        Args:
            text: A line or a sentence, without a language tag.
            terms: Terms that its translation must use.
        """
        return (
            has_words(text)
            or self._config.is_decoder_alone
            or not self._known_without_words.isdisjoint(text)
            or bool(terms and terms.found_in(text))
        )

    @cached_property
    def _known_without_words(self) -> frozenset[str]:
        """The characters of the training sources if texts without words are translated, else none."""
        if self._trained is None or not self._trained.changes_without_words():
            return frozenset()
        return frozenset(filter(str.strip, self._trained.known_characters()[0]))

    def _prefixes(self, texts: Sequence[str], num_lines: int, one_line: bool) -> dict[str, Prefix]:
        """Return the prefix of a translation for each text that it begins with.

        Raises:
            ConfigError: If one contains a line end and `one_line` is set.
            DataError: If they are not one for each line, or too long for the model.
        """
        if len(texts) != num_lines:
            raise DataError(f"{len(texts)} prefixes but {num_lines} lines; give one text, or one for each line")
        different = {text: self._pair_encoder.target_form(text) for text in dict.fromkeys(texts)}
        written = list(filter(None, dict.fromkeys(different.values())))
        if one_line and any("\n" in text or "\r" in text for text in written):
            raise ConfigError("a prefix has a line end, which a file with one translation a line cannot hold")
        tokenizer, room = self._tokenizer, self._config.max_length or math.inf
        if self._config.is_decoder_alone:
            room -= 1  # its positions also hold the source, of which it reads at least one token
        encoded = dict(zip(written, tokenizer.encode_prefixes(written), strict=True))
        for text, ids in encoded.items():
            if not tokenizer.is_lossless and (read := tokenizer.decode(ids)) not in (text, text.strip()):
                raise DataError(f"this model's vocabulary cannot write the prefix {text!r}; it would be {read!r}")
        if (longest := max(map(len, encoded.values()), default=0)) >= room:
            raise DataError(f"a prefix has {longest:,} tokens; this model writes at most {room:,}, the end included")
        prefixes = {
            text: Prefix(tuple(ids), tuple(map(tuple, tokenizer.completions(ids)))) for text, ids in encoded.items()
        }
        return {text: prefixes.get(form, NO_PREFIX) for text, form in different.items()}

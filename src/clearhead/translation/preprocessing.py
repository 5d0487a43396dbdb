"""Normalize, segment and tokenize lines; rejoin the translations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, cut_sources, given_prefix
from clearhead.errors import ConfigError, DataError
from clearhead.runtime.lazy import cached_property
from clearhead.text.language_tags import split_tag
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import without_signs
from clearhead.text.placeholders import find_placeholders, has_words
from clearhead.text.sentence_splitting import split_sentences
from clearhead.tokenizers import Vocabulary, require_texts
from clearhead.translation.normalization import NormalizedLine, Normalizer
from clearhead.translation.pair_encoding import PairEncoder
from clearhead.translation.result import Translation, join_translations
from clearhead.translation.search import DecodedText
from clearhead.translation.segmentation import LinePart, Piece, SegmentedLines, align_samples, cut_lines
from clearhead.translation.terminology import Terms


class PreprocessedLines(NamedTuple):
    """Preprocessed lines, with everything needed to join their translations into lines."""

    lines: Sequence[str]
    """The original lines."""
    forms: list[NormalizedLine]
    """The normalized form of each line."""
    cut_up: SegmentedLines
    filled: list[int]
    """Indexes of the pieces to translate: those neither blank nor left as they are (`Preprocessor.translates`).

    `ids` and `prefixes` have one entry for each of these.
    """
    ids: list[list[int]]
    """Source ids of each such piece, cut to the model's limit."""
    prefixes: list[Prefix]

    @property
    def filled_pieces(self) -> list[Piece]:
        """The pieces to translate."""
        return [self.cut_up.pieces[index] for index in self.filled]

    def originals(self) -> list[str]:
        """Return the texts of all pieces as they were before they were normalized."""
        return [
            text
            for form, gaps in zip(self.forms, self.cut_up.gaps, strict=True)
            for text in (form.original if gaps else [form.whole])
        ]

    def are_in_capitals(self) -> list[bool]:
        """Return for each piece to translate whether its line was in capitals before it was normalized."""
        pieces = self.cut_up.of_lines(range(len(self.cut_up.pieces)))
        found = [form.in_capitals for form, line in zip(self.forms, pieces, strict=True) for _ in line]
        return [found[index] for index in self.filled]

    def aligned(self, samples: Sequence[list[DecodedText]], seed: int) -> list[list[DecodedText]]:
        """Return samples reordered such that the i-th samples of a line's sentences form a sample of the line.

        Args:
            samples: Samples of each piece to translate.
            seed: Seed of the sampling.
        """
        groups = dict(zip(self.filled, samples, strict=True))
        for line in self.cut_up.of_lines(range(len(self.cut_up.pieces))):
            if len(own := [index for index in line if index in groups]) > 1:
                some = align_samples([groups[index] for index in own], lambda one: one.log_prob, seed)
                groups.update(zip(own, some, strict=True))
        return list(groups.values())

    def joined(self, results: Sequence[Translation], **how: Any) -> list[Translation]:
        """Return the translation of each line.

        Args:
            results: Translations of all pieces.
            **how: Further arguments of `join_translations`.
        """
        read = self.cut_up.of_lines([piece.text for piece in self.cut_up.pieces])
        return [
            some[0]
            if len(some) == 1 and some[0].source == line
            else join_translations(
                line, some, gaps, marker=form.marker, in_capitals=form.in_capitals, read=(form.text, texts), **how
            )
            for line, form, some, texts, gaps in zip(
                self.lines,
                self.forms,
                self.cut_up.of_lines(results),
                read,
                self.cut_up.gaps,
                strict=True,
            )
        ]

    def sentences(self, tags: Sequence[str]) -> list[list[LinePart]]:
        """Return the sentences of each line that can be translated one by one; none of a line that must stay whole.

        A line in capitals that is normalized stays whole, because the case of its translation depends on the whole. So
        does one with a list marker, and one with a sentence that begins like a language tag, which is text only within
        its line.

        Args:
            tags: Languages of the vocabulary.
        """
        pieces_of_lines = self.cut_up.of_lines(self.cut_up.pieces)
        found: list[list[LinePart]] = [[] for _ in self.lines]
        for number, (line, form, pieces, gaps) in enumerate(
            zip(self.lines, self.forms, pieces_of_lines, self.cut_up.gaps, strict=True)
        ):
            if (
                not gaps
                or form.in_capitals
                or form.marker
                or any(split_tag(one.source, tags)[1] != one.text for one in pieces)
            ):
                continue
            start, at = 0, len(line.rstrip()) - sum(map(len, (*form.original, *gaps)))
            for piece, original, gap in zip(pieces, form.original, ("", *gaps), strict=True):
                at += len(gap) + len(original)
                found[number].append(LinePart(number, start, at, piece.source, gap, is_sentence=True))
                start = at
            found[number][-1] = found[number][-1]._replace(end=len(line))
        return found


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
        self,
        lines: Sequence[str],
        config: DecodeConfig,
        prefix: str | Sequence[str] = "",
        *,
        terms: Terms | None = None,
        one_line: bool = False,
        raw: bool = False,
        name: str = "",
        first: int = 1,
    ) -> PreprocessedLines:
        """Normalize lines, split them into sentences, and tokenize them, as configured.

        Args:
            lines: Source lines, which may begin with a language tag.
            config: Decode settings.
            prefix: Text that each translation begins with: one text, or one for each line.
            terms: Terms that translations must use.
            one_line: Reject a prefix that contains a line end.
            raw: Translate texts without words too, and list markers as text.
            name: Name of the file of the lines, for messages.
            first: Number of the first line in that file.

        Raises:
            ConfigError: If the model has language tags and a line has no target language, or if a prefix
                contains a line end and `one_line` is set.
            DataError: If a line contains an unpaired surrogate; if prefixes are not texts, not one for each line, or
                too long for the model.
        """
        parts = self._pair_encoder.split_sources(lines, config.target_lang, name=name, first=first)
        beginnings = [prefix] * len(lines) if isinstance(prefix, str) else require_texts(prefix, "prefix")
        prefixes = self._prefixes(beginnings, len(lines), one_line)
        as_text = raw or self._config.is_decoder_alone
        forms = [
            self._normalize(text, config, language, keep_case=bool(start), as_text=as_text or bool(start))
            for (language, text), start in zip(parts, beginnings, strict=True)
        ]
        cut_up = self._cut_up(lines, parts, forms, beginnings, config)
        of_pieces = cut_up.first_of_lines(prefixes, NO_PREFIX)
        filled = [
            index
            for index, (piece, prefix) in enumerate(zip(cut_up.pieces, of_pieces, strict=True))
            if piece.text.strip() and (raw or prefix.tokens or self.translates(piece.text, terms))
        ]
        pieces = [cut_up.pieces[index] for index in filled]
        begun_tokens = max((len(prefix.tokens) for prefix in prefixes), default=0)
        ids = cut_sources(self._config, config, [piece.ids for piece in pieces], begun=begun_tokens)
        given = self._tokenizer.given
        begun_pieces = [
            given_prefix(given(piece.language), of_pieces[index]) for index, piece in zip(filled, pieces, strict=True)
        ]
        return PreprocessedLines(lines, forms, cut_up, filled, ids, begun_pieces)

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

    def _cut_up(
        self,
        lines: Sequence[str],
        parts: Sequence[tuple[str | None, str]],
        forms: Sequence[NormalizedLine],
        beginnings: Sequence[str],
        config: DecodeConfig,
    ) -> SegmentedLines:
        """Split normalized lines into sentences; a prefix may prevent splitting or masking of its line."""
        as_read = [
            line.removesuffix(text) + form.text for line, (_, text), form in zip(lines, parts, forms, strict=True)
        ]
        parts = [(language, form.text) for (language, _), form in zip(parts, forms, strict=True)]
        # It is unknown which sentences of a line a prefix of several sentences translates.
        whole = [bool(text) and len(split_sentences(text)) > 1 for text in beginnings]
        # Placeholders in a prefix are tokenized as text. If the line's were masked, the translation could repeat them.
        # A sign in a prefix is text as well: restored, it would become a placeholder of the line.
        unprotected = [
            any(find_placeholders(text, with_numbers=config.protect_numbers)) or without_signs(text) != text
            for text in beginnings
        ]
        cuts = [form.cut for form in forms]
        return cut_lines(as_read, parts, cuts, self._tokenizer, config, self._trained, whole, unprotected)

    def _prefixes(self, texts: Sequence[str], num_lines: int, one_line: bool) -> list[Prefix]:
        """Return the prefix of the translation of each line.

        Raises:
            ConfigError: If one contains a line end and `one_line` is set.
            DataError: If they are not one for each line, or too long for the model.
        """
        if len(texts) != num_lines:
            raise DataError(f"{len(texts)} prefixes but {num_lines} lines; give one text, or one for each line")
        texts = list(map(self._pair_encoder.target_form, texts))
        different = [text for text in dict.fromkeys(texts) if text]
        if one_line and any("\n" in text or "\r" in text for text in different):
            raise ConfigError("a prefix has a line end, which a file with one translation a line cannot hold")
        tokenizer, room = self._tokenizer, self._config.max_length or math.inf
        if self._config.is_decoder_alone:
            room -= 1  # its positions also hold the source, of which it reads at least one token
        encoded = tokenizer.encode_prefixes(different)
        for text, ids in zip(different, encoded, strict=True):
            if not tokenizer.is_lossless and (read := tokenizer.decode(ids)) not in (text, text.strip()):
                raise DataError(f"this model's vocabulary cannot write the prefix {text!r}; it would be {read!r}")
        if (longest := max(map(len, encoded), default=0)) >= room:
            raise DataError(f"a prefix has {longest:,} tokens; this model writes at most {room:,}, the end included")
        prefixes = [Prefix(tuple(ids), tuple(map(tuple, tokenizer.completions(ids)))) for ids in encoded]
        of_text = {"": NO_PREFIX, **dict(zip(different, prefixes, strict=True))}
        return [of_text[text] for text in texts]

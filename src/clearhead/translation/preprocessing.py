"""Normalize lines, split them into segments (whole lines, or their sentences), and tokenize them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, cut_sources, given_prefix
from clearhead.errors import ConfigError, DataError
from clearhead.runtime.lazy import cached_property
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import protect, without_signs
from clearhead.text.placeholders import find_placeholders, has_words
from clearhead.text.sentence_splitting import split_sentences
from clearhead.tokenizers import Vocabulary, require_texts
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.normalization import Normalizer
from clearhead.translation.options import TranslateOptions
from clearhead.translation.pair_encoding import PairEncoder
from clearhead.translation.segment import Segment, SegmentedLine
from clearhead.translation.terminology import Terms

_CHARACTERS_OF_A_TOKEN = 64
"""Far more characters than the tokens of a text have on average."""


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
        self.normalize = Normalizer(tokenizer, trained)

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
            form = self.normalize(text, config, language, keep_case=begun, as_text=as_text or begun)
            read.append(SegmentedLine(line, line.removesuffix(text), language, form, start))
        cut_lines(read, self._tokenizer, config, self._trained)
        for segmented in read:
            segmented.segments[0].prefix = prefixes[segmented.beginning]
            for segment in segmented.segments:
                segment.is_translated = bool(segment.text.strip()) and (
                    options.raw or bool(segment.prefix.tokens) or self.translates(segment.text, options.terms)
                )
        segments = [segment for segmented in read for segment in segmented.to_translate]
        most_begun = max((len(prefix.tokens) for prefix in prefixes.values()), default=0)
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


def cut_lines(
    lines: Sequence[SegmentedLine], tokenizer: Vocabulary, config: DecodeConfig, trained: LineStatistics | None
) -> None:
    """Set the segments of lines: their sentences, or whole lines.

    With `always`, every line of several sentences is split. With `auto`, only those longer than the lines that the
    model was trained on (`LineStatistics.covers`), or longer than the input limit. A line whose translation begins with
    several given sentences stays whole, for it is unknown which of its sentences these translate.

    Args:
        lines: The lines, normalized.
        tokenizer: Tokenizes lines and sentences.
        config: Only `split`, `max_input_tokens`, `protect_numbers` and `source_lang` are used.
        trained: Statistics of the training lines; None if unknown.

    Raises:
        DataError: If a line contains an unpaired surrogate.
    """
    for line in lines:
        whole, num_sentences = (line.form.text, line.form.whole, ""), len(line.form.cut.sentences)
        line.segments = _segments(line, [whole], num_sentences, tokenizer, config)
    # Tokenize whole lines first, so that an error message counts lines.
    tokenize([segment for line in lines for segment in line.segments], tokenizer, config)
    split = [line for line in lines if _is_cut(line, line.segments[0], config, trained)]
    for line in split:
        sentences, gaps = line.form.cut
        texts = zip(sentences, line.form.original, ("", *gaps), strict=True)
        line.segments = _segments(line, texts, 1, tokenizer, config)
    tokenize([segment for line in split for segment in line.segments], tokenizer, config)


def _segments(
    line: SegmentedLine,
    texts: Iterable[tuple[str, str, str]],
    num_sentences: int,
    tokenizer: Vocabulary,
    config: DecodeConfig,
) -> list[Segment]:
    """Return the segments of a line, not tokenized yet.

    Args:
        line: The line.
        texts: Text of each segment, normalized and as it was, and the white space before it.
        num_sentences: Number of sentences of each.
        tokenizer: The vocabulary.
        config: As for `cut_lines`.
    """
    numbers = config.protect_numbers
    # Placeholders in the given beginning of a translation are tokenized as text. If the line's were masked, the
    # translation could repeat them. A sign in it is text as well: restored, it would become a placeholder of the line.
    given = line.beginning
    is_text = bool(given) and (any(find_placeholders(given, with_numbers=numbers)) or without_signs(given) != given)
    num_signs = 0 if is_text else tokenizer.num_placeholders
    return [
        Segment(
            line.tag + text,
            text,
            original,
            gap,
            num_sentences,
            protect(text, num_signs, with_numbers=numbers),
            line.language,
        )
        for text, original, gap in texts
    ]


def tokenize(segments: Sequence[Segment], tokenizer: Vocabulary, config: DecodeConfig) -> None:
    """Tokenize segments; of a text that is certainly longer than the input limit, the beginning alone.

    A word of a million characters would otherwise take 150 MB, of which the model reads the first `max_input_tokens`.
    """
    texts = [(segment.language, segment.protected.text) for segment in segments]
    most = _CHARACTERS_OF_A_TOKEN * config.max_input_tokens
    encoded = tokenizer.encode_parts([(language, text[:most]) for language, text in texts], config.source_lang)
    if long := [number for number, (_, text) in enumerate(texts) if len(text) > most]:
        refuse_surrogates([text for _, text in texts])
        for number in long:
            if len(encoded[number]) <= config.max_input_tokens:  # such as a long word that is one unknown token
                encoded[number] = tokenizer.encode_parts([texts[number]], config.source_lang)[0]
    for segment, ids in zip(segments, encoded, strict=True):
        segment.ids, segment.num_tokens = ids, len(ids)


def cut_to_limit(segments: Sequence[Segment], model: ModelConfig, config: DecodeConfig, *, begun: int = 0) -> None:
    """Cut the ids of segments to what the model reads; see `cut_sources`."""
    cut = cut_sources(model, config, [segment.ids for segment in segments], begun=begun)
    for segment, ids in zip(segments, cut, strict=True):
        segment.ids = ids


def _is_cut(line: SegmentedLine, whole: Segment, config: DecodeConfig, trained: LineStatistics | None) -> bool:
    if whole.num_sentences == 1 or config.split == "never":
        return False
    if line.beginning and len(split_sentences(line.beginning)) > 1:
        return False
    if config.split == "always" or whole.num_tokens > config.max_input_tokens:
        return True
    return trained is not None and not trained.covers(whole.num_sentences, whole.num_tokens)

"""Tokenize sources with given translations, for alignment and explanation; score them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from clearhead.config import DecodeConfig
from clearhead.decoding import Engine, score
from clearhead.errors import ConfigError, DataError
from clearhead.text.languages import language_tag
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import Protected, protect, protect_target
from clearhead.text.word_links import Span, words_of
from clearhead.tokenizers import Vocabulary, require_texts
from clearhead.translation.alignment import EncodedPair, encoded_pair
from clearhead.translation.normalization import known_forms


@dataclass(slots=True)
class GivenPair:
    """A source line and its given translation, tokenized."""

    language: str | None
    """Target language; None if neither the line nor a setting names one."""
    text: str
    """The source without its language tag."""
    target: str
    protected: Protected
    """The source with its placeholders masked."""
    protected_target: str
    """The target with the masks of the source."""
    source_ids: list[int] = field(default_factory=list)
    target_ids: list[int] = field(default_factory=list)


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
        pairs = self.tokenized(parts, targets, config)
        return [pair.source_ids for pair in pairs], [pair.target_ids for pair in pairs]

    def read(
        self, sources: Sequence[str], targets: Sequence[str], config: DecodeConfig, *, name: str = "", first: int = 1
    ) -> list[GivenPair]:
        """Return source lines with their given translations, tokenized.

        Args:
            sources: Source lines; each may start with a language tag.
            targets: Their translations.
            config: Only `target_lang`, `source_lang`, `protect_numbers` and `max_input_tokens` are used.
            name: Name of the file of the sources, for messages.
            first: Number of the first line in that file.

        Raises:
            ConfigError: If the model has language tags and a line has no target language.
            DataError: If a side is not a list of texts, the numbers of lines differ, or a line exceeds the limit or
                starts with an unknown language tag.
        """
        sources, targets = require_texts(sources, "sources"), require_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} source lines but {len(targets)} target lines; they must pair up")
        pairs = self.tokenized(self.split_sources(sources, config.target_lang, name=name, first=first), targets, config)
        for number, pair in enumerate(pairs, start=first):
            if (longest := max(len(pair.source_ids), len(pair.target_ids))) > config.max_input_tokens:
                raise DataError(
                    f"{_place(name, number)} has {longest:,} tokens on one side; at most "
                    f"{config.max_input_tokens:,} are scored or aligned (decode.max_input_tokens)"
                )
        return pairs

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
            config: As for `read`.
            words: Returns the spans of the words of a text.
            name: Name of the file of the sources, for messages.

        Raises:
            ConfigError: If the model has language tags and a line has no target language.
            DataError: As `read`.
        """
        return [
            encoded_pair(self.tokenizer, pair.protected, pair.source_ids, pair.protected_target, pair.target_ids, words)
            for pair in self.read(sources, targets, config, name=name)
        ]

    def tokenized(
        self, parts: Sequence[tuple[str | None, str]], targets: Sequence[str], config: DecodeConfig
    ) -> list[GivenPair]:
        """Return pairs with their ids; the arguments are those of `encode`."""
        num_signs, numbers = self.tokenizer.num_placeholders, config.protect_numbers
        pairs = []
        for (language, text), target in zip(parts, targets, strict=True):
            protected = protect(self.source_form(text), num_signs, with_numbers=numbers)
            pairs.append(
                GivenPair(language, text, target, protected, protect_target(protected, self.target_form(target)))
            )
        languages = [pair.language for pair in pairs]
        texts = [(pair.language, pair.protected.text) for pair in pairs]
        sources = self.tokenizer.encode_parts(texts, config.source_lang)
        written = self.tokenizer.encode_targets([pair.protected_target for pair in pairs], languages)
        for pair, source_ids, target_ids in zip(pairs, sources, written, strict=True):
            pair.source_ids, pair.target_ids = source_ids, target_ids
        return pairs


def score_pairs(
    engine: Engine,
    encoder: PairEncoder,
    sources: Sequence[str],
    targets: Sequence[str],
    config: DecodeConfig,
    *,
    name: str,
    first: int,
    on_progress: Callable[[int], None] | None,
) -> list[float]:
    """Return the log-probability of each target in nats; 0 for a blank source with an empty target.

    Args:
        engine: The model, in float32.
        encoder: Tokenizes the pairs.
        sources: Source lines.
        targets: Their translations.
        config: As for `PairEncoder.read`, and `batch_tokens`.
        name: Name of the file of the sources, for messages.
        first: Number of the first line in that file.
        on_progress: Called with the number of pairs finished, batch by batch.

    Raises:
        ConfigError: As `PairEncoder.read`.
        DataError: As `PairEncoder.read`; or if a decoder-only model cannot continue a source with its target.
    """
    pairs = encoder.read(sources, targets, config, name=name, first=first)
    model = engine.model.config
    if model.is_decoder_alone:
        _require_continuations(pairs, most=model.max_length, name=name, first=first)
    is_scored = [bool(pair.text.strip() or pair.target) for pair in pairs]
    scored = list(compress(pairs, is_scored))
    if on_progress is not None and len(scored) < len(pairs):
        on_progress(len(pairs) - len(scored))
    scores = score(
        engine,
        [pair.source_ids for pair in scored],
        [pair.target_ids for pair in scored],
        batch_tokens=config.batch_tokens,
        on_progress=on_progress,
        given=[len(encoder.tokenizer.given(pair.language)) for pair in scored],
    )
    remaining = iter(scores)
    return [next(remaining) if own else 0.0 for own in is_scored]


def _require_continuations(pairs: Sequence[GivenPair], *, most: int | None, name: str, first: int) -> None:
    """Require that a decoder-only model can continue each source with its target.

    Args:
        pairs: The pairs.
        most: Number of positions of the model; None for no limit.
        name: Name of the file of the sources, for messages.
        first: Number of the first line in that file.

    Raises:
        DataError: Naming the first pair whose source is empty, or which needs more positions than the model has.
    """
    for number, pair in enumerate(pairs, start=first):
        if pair.target and not pair.source_ids:
            raise DataError(f"{_place(name, number)} has no source, and this model, a decoder alone, continues a text")
        num_tokens = len(pair.source_ids) + len(pair.target_ids)
        if most is not None and num_tokens > most:
            raise DataError(
                f"{_place(name, number)} has {num_tokens:,} tokens, and this model has positions for {most:,}"
            )


def _place(name: str, number: int) -> str:
    return f"{name}{', ' if name else ''}pair {number}"

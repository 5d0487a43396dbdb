"""Run the search, and return its hypotheses as unique, canonically tokenized, rescored texts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.config import DecodePrecision
from clearhead.decoding import Engine, Ensemble, Hypothesis, Prefix, SearchOptions, decode, make_engine, score
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.utf8 import CharacterParts
from clearhead.errors import ConfigError
from clearhead.model.stored import StoredModel
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import needing_pytorch
from clearhead.text.lines import on_one_line
from clearhead.text.unicode_forms import TextForm
from clearhead.tokenizers import Vocabulary
from clearhead.translation.segment import DecodedText, Segment, SegmentedLine

if TYPE_CHECKING:
    from clearhead.decoding import Required
    from clearhead.model.transformer import Transformer

    Model = StoredModel | Transformer | Ensemble

Decode = Callable[
    [
        Engine,
        list[list[int]],
        SearchOptions,
        Callable[[int], None] | None,
        Sequence[Prefix],
        Sequence["Required"],
        Sequence[Neighbours | None],
    ],
    list[list[Hypothesis]],
]
"""A search function, called as `decoding.decode` is."""


class Engines:
    """The engines of a model by precision; each is built when first needed, and again when the weights have changed.

    Args:
        model: Returns the model, or an ensemble.
        tokenizer: Its vocabulary.
        is_plain: Whether plain code alone searches and scores, in fp32 whatever the precision.
    """

    def __init__(self, model: Callable[[], Model], tokenizer: Vocabulary, *, is_plain: bool = False) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._is_plain = is_plain
        self._built: dict[DecodePrecision, tuple[Model, Engine]] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: no engine, which holds memory of the compiled core; a copy builds its own."""
        return {**self.__dict__, "_built": {}}

    def of(self, precision: DecodePrecision) -> Engine:
        """Return the engine of a precision.

        Raises:
            ConfigError: If the model is encoder-only, or plain code is asked of an ensemble.
        """
        model = self._model()
        if not model.config.num_decoder_layers:
            raise ConfigError(
                "this model is an encoder alone, which writes nothing; in Python, bundle.model.hidden_states of the "
                "translator gives what it makes of a text"
            )
        built_from, engine = self._built.get(precision, (None, None))
        if engine is None or built_from != model or not engine.is_current():
            engine = _plain_engine(model) if self._is_plain else make_engine(model, precision)
            engine.parts = self.parts
            self._built[precision] = model, engine
        return engine

    @cached_property
    def parts(self) -> CharacterParts | None:
        """The tokens that are parts of characters; None if there are none."""
        return CharacterParts.of(self._tokenizer)


Inputs = tuple[list[Prefix], "list[Required]", list[Neighbours | None]]


def _inputs(segments: Sequence[Segment], with_terms: bool) -> Inputs:
    """Return what a search is given of segments beside their sources: prefixes, terms it must use, and neighbours."""
    terms = [segment.terms.required for segment in segments] if with_terms else []
    required = [constraint for constraint in terms if constraint is not None]
    return [segment.prefix for segment in segments], required, [segment.neighbours for segment in segments]


def _plain_engine(model: Model) -> Engine:
    if isinstance(model, Ensemble):
        raise ConfigError("an ensemble has no plain form; leave out plain")
    with needing_pytorch("plain code"):
        from clearhead.decoding.pytorch.plain_engine import PlainEngine

    return PlainEngine(model.own_module if isinstance(model, StoredModel) else model)


class TextSearch:
    """Runs searches on one engine and returns texts.

    Args:
        tokenizer: The vocabulary.
        engine: The engine that searches.
        scorer: Returns the engine that scores texts; called only when there is one to score.
        max_length: Tokens that the model can write at most; None for no limit.
        one_line: Replace line ends in texts by spaces.
        form: Unicode form of the texts.
        decode: The search function.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        engine: Engine,
        scorer: Callable[[], Engine],
        max_length: int | None,
        one_line: bool,
        form: TextForm,
        decode: Decode = decode,
    ) -> None:
        self.tokenizer, self.engine, self.scorer = tokenizer, engine, scorer
        self.max_length, self.one_line, self.form, self.decode = max_length, one_line, form, decode

    def __call__(
        self,
        segments: Sequence[Segment],
        options: SearchOptions,
        *,
        on_progress: Callable[[int], None] | None = None,
        with_terms: bool = False,
    ) -> None:
        """Set the texts found for segments, best first, with their log-probabilities if `options.scores` is set.

        If duplicates leave fewer than `num_best` texts, the search is run again with all hypotheses of the beam.

        Args:
            segments: The segments.
            options: Options of the search.
            on_progress: Called with the number of segments finished, batch by batch.
            with_terms: Whether translations must contain the terms of their segments; each has some then.
        """
        sources = [segment.ids for segment in segments]
        groups = self.decode(self.engine, sources, options, on_progress, *_inputs(segments, with_terms))
        short = self._set_texts(segments, groups, options)
        if short and options.sampling is None and options.num_best < options.config.beam_size:
            # Rare. Asking for more at once would keep beams of every line running that can no longer win.
            wider = replace(options, num_best=options.config.beam_size)
            sources = [segment.ids for segment in short]
            self._set_texts(short, self.decode(self.engine, sources, wider, None, *_inputs(short, with_terms)), wider)
            for segment in short:
                del segment.hypotheses[options.num_best :]
        is_own = self.engine.finds_scores and options.shortlist is None
        self._retokenize(segments, options, score_all=options.scores and not is_own)

    def _set_texts(
        self, segments: Sequence[Segment], groups: Sequence[Sequence[Hypothesis]], options: SearchOptions
    ) -> list[Segment]:
        """Set the texts found for segments; return the segments with fewer texts than the `num_best` hypotheses.

        They are all samples, the best samples by utility for `mbr`, else each text once.
        """
        texts = self.tokenizer.decode_batch([hypothesis.tokens for group in groups for hypothesis in group])
        if self.one_line:
            texts = list(map(on_one_line, texts))
        remaining, short = map(self.form, texts), []
        for segment, group in zip(segments, groups, strict=True):
            decoded = [DecodedText(h.tokens, h.log_prob, h.was_ended, next(remaining)) for h in group]
            if options.mbr is not None:
                decoded = _most_expected(decoded, options.num_best)
            segment.hypotheses = decoded if options.are_samples else distinct(decoded)
            if len(segment.hypotheses) < len(group) == options.num_best:
                short.append(segment)
        return short

    def _retokenize(self, segments: Sequence[Segment], options: SearchOptions, *, score_all: bool) -> None:
        """Set the tokens of every text to its canonical tokenization; rescore the changed ones if scores are asked for.

        About one search in a hundred splits a word into other pieces than the tokenizer does (`b` + `ra` for `bra`).
        Only the text is returned, so its canonical tokenization is scored: the reported score equals what `score`
        returns. A vocabulary that loses text has no canonical tokenization; there the tokens found are kept.
        `score_all` is for searches whose log-probabilities are not the model's own; those of segments with neighbours
        never are.
        """
        longest = self.max_length or math.inf
        rescored = []
        for segment, decoded, ids in self._encoded(segments, ()):  # even unused ones: 1 % of the time
            # If the canonical tokenization is longer than the model can write, keep the tokens found.
            is_retokenized = self.tokenizer.is_lossless and ids != decoded.tokens and len(ids) <= longest
            if is_retokenized:
                decoded.tokens = ids
            is_mixed = segment.neighbours is not None
            if score_all or (options.scores and (is_retokenized or is_mixed)):
                rescored.append((segment, decoded))
        self._score(rescored, options.config.batch_tokens)

    def retokenize(self, segments: Sequence[Segment], batch_tokens: int, most_scored: float) -> None:
        """Tokenize the texts of segments, which were changed, and score them.

        Args:
            segments: The segments.
            batch_tokens: Tokens scored at once.
            most_scored: Tokens of the longest text to score.
        """
        scored = []
        languages = [segment.language for segment in segments for _ in segment.hypotheses]
        for segment, decoded, ids in self._encoded(segments, languages):
            decoded.tokens = ids
            if len(ids) <= most_scored:
                scored.append((segment, decoded))
        self._score(scored, batch_tokens)

    def _encoded(
        self, segments: Sequence[Segment], languages: Sequence[str | None]
    ) -> Iterator[tuple[Segment, DecodedText, tuple[int, ...]]]:
        """Yield each text of each segment with its canonical tokenization."""
        texts = [(segment, decoded) for segment in segments for decoded in segment.hypotheses]
        encoded = self.tokenizer.encode_targets([decoded.text for _, decoded in texts], languages)
        for (segment, decoded), ids in zip(texts, encoded, strict=True):
            yield segment, decoded, tuple(ids)

    def _score(self, texts: Sequence[tuple[Segment, DecodedText]], batch_tokens: int) -> None:
        if texts:
            sources, targets = [segment.ids for segment, _ in texts], [list(decoded.tokens) for _, decoded in texts]
            given = [segment.prefix.given for segment, _ in texts]
            log_probs = score(self.scorer(), sources, targets, batch_tokens=batch_tokens, given=given)
            for (_, decoded), log_prob in zip(texts, log_probs, strict=True):
                decoded.log_prob = log_prob


def distinct(group: list[DecodedText]) -> list[DecodedText]:
    """Return the first of each distinct text, in order."""
    first: dict[str, DecodedText] = {}
    for decoded in group:
        first.setdefault(decoded.text, decoded)
    return list(first.values())


def _most_expected(samples: list[DecodedText], count: int) -> list[DecodedText]:
    """Return the distinct texts with the highest utility; ties go to the more probable."""
    from clearhead.decoding import expected_chrf

    for sample, utility in zip(samples, expected_chrf([sample.text for sample in samples]), strict=True):
        sample.utility = utility
    return sorted(distinct(samples), key=lambda sample: -(sample.utility or 0.0))[:count]


def lines_done(
    lines: Sequence[SegmentedLine], on_lines_done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Return a progress callback that converts numbers of finished segments to approximate numbers of lines.

    Args:
        lines: The lines; those without a segment to translate are not counted.
        on_lines_done: Called with the number of lines.
    """
    if on_lines_done is None or not any(line.is_split for line in lines):
        return on_lines_done
    report = on_lines_done
    counts = [count for line in lines if (count := len(line.to_translate))]
    num_lines, num_segments = len(counts), sum(counts)
    done = 0

    def on_segments_done(segments: int) -> None:
        nonlocal done
        before, done = done * num_lines // num_segments, done + segments
        if advance := done * num_lines // num_segments - before:
            report(advance)

    return on_segments_done


def align_samples(lines: Sequence[SegmentedLine], options: SearchOptions) -> None:
    """Reorder the samples of sentences such that the i-th of all sentences of a line form a sample of the line.

    The samples of each sentence arrive sorted by probability. Combining all the best, all the second best and so on
    would not be draws from the model. So they are shuffled, and the resulting lines are sorted by probability.

    Args:
        lines: The lines, with equally many samples for each segment that is translated.
        options: Options of the search that drew them; the order depends on the seed of `sampling`.
    """
    assert options.sampling is not None
    for segments in (line.to_translate for line in lines if len(line.to_translate) > 1):
        shuffled = [
            random.Random(f"{options.sampling.seed} {number}").sample(segment.hypotheses, len(segment.hypotheses))
            for number, segment in enumerate(segments)
        ]
        rows = sorted(zip(*shuffled, strict=True), key=lambda row: -sum(sample.log_prob for sample in row))
        for number, segment in enumerate(segments):
            segment.hypotheses = [row[number] for row in rows]

"""Turn the texts that a search found into translations: restore placeholders, flag, and join sentences to lines.

A text that is not blank never gets a blank translation: the next hypothesis that is not blank takes its place
(`replace_blank`), or else the source. Only a raw translation, which measures the model, is what the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from clearhead.config import ModelConfig
from clearhead.decoding import SearchOptions
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import cached_property
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.lines import on_one_line
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import MOST_SHOWN, Flag, SeenInTraining, find_flags, placeholders_of
from clearhead.tokenizers import Vocabulary
from clearhead.translation.options import TranslateOptions
from clearhead.translation.quality import QualityEstimator
from clearhead.translation.result import Alternative, Translation, join_translations
from clearhead.translation.segment import Segment, SegmentedLine


class Postprocessor:
    """Turns the texts that a search found into the translations of lines.

    Args:
        tokenizer: Vocabulary of the model.
        config: Configuration of the model.
        trained: Statistics of the training lines; None if unknown.
    """

    def __init__(self, tokenizer: Vocabulary, config: ModelConfig, trained: LineStatistics | None) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._trained = trained

    def __call__(
        self,
        lines: Sequence[SegmentedLine],
        options: TranslateOptions,
        search: SearchOptions,
        estimate: QualityEstimator | None = None,
    ) -> list[Translation]:
        """Return the translation of each line.

        Args:
            lines: The lines in segments, translated.
            options: Only `terms`, `alignments`, `one_line` and `raw` are used.
            search: Options of the search that found the texts; they have scores if `search.scores` is set.
            estimate: Estimates the quality of scored translations; None if it is not requested.
        """
        results = []
        for line in lines:
            translations = [
                self._translated(segment, options, search, estimate)
                if segment.is_translated
                else _unchanged(segment, options, search)
                for segment in line.segments
            ]
            if line.is_split or translations[0].source != line.source:
                translations = [_joined(line, translations, options, search)]
            results += translations
        return results

    def _translated(
        self, segment: Segment, options: TranslateOptions, search: SearchOptions, estimate: QualityEstimator | None
    ) -> Translation:
        """Return the translation of a segment from the texts that were found, or its source if the best is blank."""
        check_interruption()

        def restored(text: str) -> str:
            original = segment.protected.restored(text)
            return on_one_line(original) if options.one_line else original  # a tag may contain a line end

        best = segment.hypotheses[0]
        texts = [
            Alternative(restored(hypothesis.text), hypothesis.log_prob if search.scores else None, hypothesis.utility)
            for hypothesis in segment.hypotheses
        ]
        text, score, utility = texts[0].text, texts[0].score, texts[0].utility
        text_ids = best.tokens[segment.prefix.given : -1]
        tokens = tuple(map(restored, self._tokenizer.pieces(text_ids)))  # even if unused: at most 2 % of time
        in_place = "the next best translation" if best.follows_blank else ""
        alignment = tuple(segment.links) if options.alignments else None
        has_placed_markup, quality = best.has_placed_markup, None
        if estimate is not None and score is not None:
            # The tags of a text are improbable where a model does not write them, and say nothing about its words.
            quality = estimate(*(best.unmarked or (segment.text, text, score)))
        if is_blank(text) and not self.keeps_blank(options):
            text, in_place, has_placed_markup = _as_asked(segment.original, options), "the source", False
            score, utility, tokens = None, None, ()
            quality, alignment = None if quality is None else 0.0, None if alignment is None else ()
            texts[0] = Alternative(text, None)
        without = None if best.without_terms is None else restored(best.without_terms)
        return Translation(
            source=segment.source,
            text=text,
            score=score,
            utility=utility,
            tokens=tokens,
            alternatives=tuple(texts) if search.num_best > 1 else (),
            source_truncated=segment.was_cut,
            output_truncated=best.was_ended,
            warnings=self._flags(segment, text, has_placed_markup=has_placed_markup, in_place=in_place),
            terms=None if options.terms is None else segment.terms.uses(text, without),
            alignment=alignment,
            quality=quality,
        )

    def keeps_blank(self, options: TranslateOptions) -> bool:
        """Return whether a blank translation is one: if raw, and of a decoder alone, which may have nothing to add."""
        return options.raw or self._config.is_decoder_alone

    def _flags(self, segment: Segment, text: str, *, has_placed_markup: bool, in_place: str) -> tuple[Flag, ...]:
        if self._config.is_decoder_alone:
            return ()  # the continuation of a text need not contain what the text contains
        flags = find_flags(
            segment.text,
            text,
            tokens=segment.num_tokens,
            sentences=segment.num_sentences,
            seen=self._seen,
            masked=segment.protected.text,
            in_place=in_place,
        )
        if not has_placed_markup:
            return flags
        return (*flags, Flag("placed_markup", " ".join(list(placeholders_of(segment.text))[:MOST_SHOWN])))

    @cached_property
    def _seen(self) -> SeenInTraining:
        return SeenInTraining.of(self._trained, lambda: self._tokenizer.pieces(range(self._tokenizer.vocab_size)))


def _as_asked(text: str, options: TranslateOptions) -> str:
    return on_one_line(text) if options.one_line else text


def _unchanged(segment: Segment, options: TranslateOptions, search: SearchOptions) -> Translation:
    """Return a segment that is not translated as its own translation; an empty one for a blank segment."""
    terms, alignment = None if options.terms is None else (), () if options.alignments else None
    if not segment.text.strip():
        score = 0.0 if search.scores else None
        return Translation(segment.source, "", score, (), terms=terms, alignment=alignment)
    text = _as_asked(segment.original, options)
    count = 0 if search.num_best == 1 else search.num_best if search.are_samples else 1
    same = (Alternative(text, None),) * count
    return Translation(segment.source, text, None, (), same, terms=terms, alignment=alignment)


def _joined(
    line: SegmentedLine, translations: Sequence[Translation], options: TranslateOptions, search: SearchOptions
) -> Translation:
    return join_translations(
        line.source,
        translations,
        [segment.gap for segment in line.segments[1:]],
        num_best=search.num_best,
        are_samples=search.are_samples,
        one_line=options.one_line,
        marker=line.form.marker,
        in_capitals=line.form.in_capitals,
        read=(line.form.text, [segment.text for segment in line.segments]),
    )


def replace_blank(
    segments: Sequence[Segment], options: SearchOptions, run_search: Callable[[Sequence[Segment], SearchOptions], None]
) -> None:
    """Replace the best texts of segments that are blank by the next ones that are not, of a wider search if need be.

    No text is blank then but the one of a segment that has no other. Samples stay, blank ones last.

    Args:
        segments: The segments, translated.
        options: Options of the search that found the texts.
        run_search: Translates segments again.
    """
    blank = {segment for segment in segments if segment.makes_blank(segment.hypotheses[0])}
    wider = replace(options, num_best=max(options.num_best, options.mbr or options.config.beam_size))
    if blank and not options.are_samples and wider != options:
        run_search([segment for segment in segments if segment in blank], wider)
    for segment in blank if options.num_best == 1 else segments:
        left_out = [hypothesis for hypothesis in segment.hypotheses if segment.makes_blank(hypothesis)]
        visible = segment.hypotheses
        if left_out:
            visible = [hypothesis for hypothesis in visible if not segment.makes_blank(hypothesis)]
        if visible and segment in blank:
            visible[0].follows_blank = True
        if options.are_samples:
            segment.hypotheses = [*visible, *left_out]
        else:
            segment.hypotheses = (visible or left_out[:1])[: options.num_best]

"""Turn the texts that a search found into translations: restore placeholders, flag, and join sentences to lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clearhead.config import ModelConfig
from clearhead.decoding import SearchOptions
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import cached_property
from clearhead.text.line_ends import on_one_line
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.quality_flags import MOST_SHOWN, Flag, SeenInTraining, find_flags, placeholders_of
from clearhead.text.word_links import Link
from clearhead.tokenizers import Vocabulary
from clearhead.translation.preprocessing import PreprocessedLines
from clearhead.translation.result import Alternative, Translation
from clearhead.translation.search import DecodedText
from clearhead.translation.segmentation import Piece
from clearhead.translation.term_constraints import WantedTerms


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
        read: PreprocessedLines,
        groups: Sequence[Sequence[DecodedText]],
        options: SearchOptions,
        *,
        terms: Sequence[WantedTerms] | None,
        links: Sequence[Sequence[Link]] | None,
        scores: bool,
        one_line: bool,
    ) -> list[Translation]:
        """Return the translation of each line.

        Args:
            read: The lines as the model read them.
            groups: For each piece that is not blank the texts that were found, best first.
            options: Options of the search that found them.
            terms: The terms of each such piece; None if none were given.
            links: The word links of each such piece with its best text; None if not requested.
            scores: Whether the log-probabilities are those of the texts.
            one_line: Replace line ends in translations by spaces.
        """
        no_terms, no_links = None if terms is None else (), None if links is None else ()
        blank = Translation("", "", 0.0 if scores else None, (), terms=no_terms, alignment=no_links)
        results = [replace(blank, source=piece.source) for piece in read.cut_up.pieces]
        for row, (index, piece, group) in enumerate(zip(read.filled, read.filled_pieces, groups, strict=True)):
            uses = None if terms is None else terms[row].uses(group[0].text)
            own_links = None if links is None else tuple(links[row])
            was_cut = len(piece.ids) > len(read.ids[row])
            told: dict[str, Any] = {"source_truncated": was_cut, "terms": uses, "alignment": own_links}
            results[index] = self._of_piece(piece, group, options.num_best, scores, one_line, told)
        return read.joined(results, num_best=options.num_best, are_samples=options.are_samples, one_line=one_line)

    def _of_piece(
        self,
        piece: Piece,
        group: Sequence[DecodedText],
        num_best: int,
        scores: bool,
        one_line: bool,
        told: Mapping[str, Any],
    ) -> Translation:
        check_interruption()

        def restored(text: str) -> str:
            original = piece.protected.restored(text)
            return on_one_line(original) if one_line else original  # a tag may contain a line end

        best = [Alternative(restored(one.text), one.log_prob if scores else None, one.utility) for one in group]
        text_ids = group[0].tokens[group[0].given : -1]
        return Translation(
            source=piece.source,
            text=best[0].text,
            score=best[0].score,
            utility=best[0].utility,
            tokens=tuple(map(restored, self._tokenizer.pieces(text_ids))),  # even if unused: at most 2 % of time
            alternatives=tuple(best) if num_best > 1 else (),
            output_truncated=group[0].was_ended,
            warnings=self._flags(piece, best[0].text, has_placed_markup=group[0].has_placed_markup),
            **told,
        )

    def _flags(self, piece: Piece, text: str, *, has_placed_markup: bool) -> tuple[Flag, ...]:
        if self._config.is_decoder_alone:
            return ()  # the continuation of a text need not contain what the text contains
        found = find_flags(piece.text, text, tokens=len(piece.ids), sentences=piece.sentences, seen=self._seen)
        if not has_placed_markup:
            return found
        return (*found, Flag("placed_markup", " ".join(list(placeholders_of(piece.text))[:MOST_SHOWN])))

    @cached_property
    def _seen(self) -> SeenInTraining:
        return SeenInTraining.of(self._trained, lambda: self._tokenizer.pieces(range(self._tokenizer.vocab_size)))

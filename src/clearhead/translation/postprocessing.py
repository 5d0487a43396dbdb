"""Turn the texts that a search found into translations: restore placeholders, flag, and join sentences to lines.

A text that is not blank never gets a blank translation: the next hypothesis that is not blank takes its place
(`without_blank`), or else the source. Only a raw translation, which measures the model, is what the model wrote.
"""

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
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import MOST_SHOWN, Flag, SeenInTraining, find_flags, placeholders_of
from clearhead.text.word_links import Link
from clearhead.tokenizers import Vocabulary
from clearhead.translation.preprocessing import PreprocessedLines
from clearhead.translation.quality import QualityEstimator
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
        raw: bool,
        estimate: QualityEstimator | None = None,
    ) -> list[Translation]:
        """Return the translation of each line.

        Args:
            read: The lines as the model read them.
            groups: For each piece to translate the texts that were found, best first.
            options: Options of the search that found them.
            terms: The terms of each such piece; None if none were given.
            links: The word links of each such piece with its best text; None if not requested.
            scores: Whether the log-probabilities are those of the texts.
            one_line: Replace line ends in translations by spaces.
            raw: Keep blank texts.
            estimate: Estimates the quality of scored translations; None if it is not requested.
        """
        changed = on_one_line if one_line else str
        no_terms, no_links = None if terms is None else (), None if links is None else ()
        originals = read.originals()
        count = 0 if options.num_best == 1 else options.num_best if options.are_samples else 1

        def unchanged(piece: Piece, text: str) -> Translation:
            if not piece.text.strip():
                return Translation(piece.source, "", 0.0 if scores else None, (), terms=no_terms, alignment=no_links)
            same = (Alternative(changed(text), None),) * count
            return Translation(piece.source, changed(text), None, (), same, terms=no_terms, alignment=no_links)

        results = list(map(unchanged, read.cut_up.pieces, originals))
        for row, (index, piece, group) in enumerate(zip(read.filled, read.filled_pieces, groups, strict=True)):
            was_cut = len(piece.ids) > len(read.ids[row])
            told: dict[str, Any] = {"source_truncated": was_cut, "terms": no_terms, "alignment": no_links}
            found = self._of_piece(piece, group, options.num_best, scores, one_line, told)
            if estimate is not None and found.score is not None:
                # The tags of a text are improbable where a model does not write them, and say nothing about its words.
                quality = estimate(*(group[0].unmarked or (piece.text, found.text, found.score)))
                found = replace(found, quality=quality)
            if is_blank(found.text) and not raw:
                found = self._with_source(found, piece, changed(originals[index]))
            elif links is not None:
                found = replace(found, alignment=tuple(links[row]))
            if terms is not None:
                without = group[0].without_terms
                if without is not None:
                    without = changed(piece.protected.restored(without))
                found = replace(found, terms=terms[row].uses(found.text, without))
            results[index] = found
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
            warnings=self._flags(
                piece,
                best[0].text,
                has_placed_markup=group[0].has_placed_markup,
                in_place="the next best translation" if group[0].follows_blank else "",
            ),
            **told,
        )

    def _with_source(self, blank: Translation, piece: Piece, text: str) -> Translation:
        """Return a blank translation with its source in its place, which has no score."""
        return replace(
            blank,
            text=text,
            score=None,
            utility=None,
            quality=None if blank.quality is None else 0.0,
            tokens=(),
            alternatives=(Alternative(text, None), *blank.alternatives[1:]) if blank.alternatives else (),
            warnings=self._flags(piece, text, in_place="the source"),
        )

    def _flags(
        self, piece: Piece, text: str, *, has_placed_markup: bool = False, in_place: str = ""
    ) -> tuple[Flag, ...]:
        if self._config.is_decoder_alone:
            return ()  # the continuation of a text need not contain what the text contains
        sizes = {"tokens": len(piece.ids), "sentences": piece.sentences}
        masked = piece.protected.text
        found = find_flags(piece.text, text, **sizes, seen=self._seen, masked=masked, in_place=in_place)
        if not has_placed_markup:
            return found
        return (*found, Flag("placed_markup", " ".join(list(placeholders_of(piece.text))[:MOST_SHOWN])))

    @cached_property
    def _seen(self) -> SeenInTraining:
        return SeenInTraining.of(self._trained, lambda: self._tokenizer.pieces(range(self._tokenizer.vocab_size)))


def blank_rows(pieces: Sequence[Piece], groups: Sequence[Sequence[DecodedText]]) -> list[int]:
    """Return the indexes of the pieces whose best text is blank.

    Args:
        pieces: The translated pieces.
        groups: The texts found for each, best first.
    """
    return [row for row, (piece, group) in enumerate(zip(pieces, groups, strict=True)) if _is_blank(piece, group[0])]


def without_blank(
    pieces: Sequence[Piece], groups: Sequence[Sequence[DecodedText]], options: SearchOptions, rows: Sequence[int]
) -> list[list[DecodedText]]:
    """Return the texts of each piece without blank ones; if all are blank, the best. Samples stay, blank ones last.

    Args:
        pieces: The translated pieces.
        groups: The texts found for each, best first; of the pieces that were searched again, all.
        options: Options of the first search.
        rows: Pieces whose best text was blank.
    """
    found = list(map(list, groups))
    for row in rows if options.num_best == 1 else range(len(found)):
        blank = [one for one in found[row] if _is_blank(pieces[row], one)]
        visible = [one for one in found[row] if not _is_blank(pieces[row], one)] if blank else found[row]
        if row in rows and visible:
            visible[0].follows_blank = True
        found[row] = [*visible, *blank] if options.are_samples else (visible or blank[:1])[: options.num_best]
    return found


def _is_blank(piece: Piece, one: DecodedText) -> bool:
    return is_blank(piece.protected.restored(one.text))

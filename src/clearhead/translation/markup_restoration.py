"""Restore markup that a translation lacks: translate without tags, then place the tags by word alignment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import Prefix, SearchOptions, cut_sources
from clearhead.text.placeholder_masking import Protected
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import missing_placeholders
from clearhead.translation.alignment import Aligner, encoded_pair
from clearhead.translation.search import DecodedText, TextSearch, distinct
from clearhead.translation.segmentation import Piece
from clearhead.translation.term_constraints import WantedTerms, search_with_terms

if TYPE_CHECKING:
    from clearhead.text.markup_projection import Stripped

_MOST_CHARACTERS = 16
"""Characters a token of the longest source whose markup is restored. An unknown token may stand for any number of
characters, each a word to align."""


def places_markup(bundle: Bundle, config: DecodeConfig) -> bool:
    """Return whether markup must be restored: if configured, for a model without tokens for placeholders."""
    is_kept = bundle.tokenizer.num_placeholders > 0
    return config.place_markup and not is_kept and bundle.config.is_encoder_decoder


class MarkupRestorer:
    """Restores markup in search results, for a model without tokens for placeholders.

    Args:
        config: Configuration of the model, or of the ensemble.
        search: Searches and retokenizes texts.
        aligner: Aligns words.
    """

    def __init__(self, config: ModelConfig, search: TextSearch, aligner: Aligner) -> None:
        self.config, self.search, self.aligner = config, search, aligner

    def __call__(
        self,
        pieces: Sequence[Piece],
        sources: Sequence[list[int]],
        prefixes: Sequence[Prefix],
        wanted: Sequence[WantedTerms],
        groups: Sequence[list[DecodedText]],
        options: SearchOptions,
        *,
        scores: bool,
        scores_unmarked: bool = False,
    ) -> list[list[DecodedText]]:
        """Return the search results, with the markup restored where the best text lacks some.

        If the best text of a piece lacks markup, the other n-best texts are restored too. If tags are missing or added,
        the piece is first translated again without tags, with its terms. A changed text is scored whole, markup
        included. Results of pieces with a text prefix are not changed, nor those of sources that were cut; nor is a
        text used that the search could not have written for its length.

        Args:
            pieces: The translated pieces.
            sources: Source ids of each piece.
            prefixes: Prefix of each translation.
            wanted: Terms that each translation must contain.
            groups: Search results of each piece, best first.
            options: Options of the search that found them.
            scores: Whether to score the changed texts.
            scores_unmarked: Whether to score them without their markup too (`DecodedText.unmarked`); needs `scores`.
        """
        stripped: dict[int, Stripped] = {}
        config = options.config
        most_characters = _MOST_CHARACTERS * config.max_input_tokens
        for row, (piece, prefix, group) in enumerate(zip(pieces, prefixes, groups, strict=True)):
            written = group[0].text
            if len(prefix.tokens) > prefix.given or len(piece.ids) > len(sources[row]):
                continue  # markup of what the model has not read has no place, and may be of any length
            if len(piece.text) <= most_characters and (missing := missing_placeholders(piece.text, written)):
                from clearhead.text.markup_projection import is_tag, strip_markup

                tags = any(map(is_tag, [*missing, *missing_placeholders(written, piece.text)]))
                stripped[row] = strip_markup(piece.text, tags=tags)
        if not stripped:
            return list(groups)
        from clearhead.text.markup_projection import parts_with_placeholders

        without_tags = self._found_without_tags(stripped, pieces, prefixes, wanted, options, scores=scores_unmarked)
        texts = [
            (row, own, one)
            for row in stripped
            for own, group in [without_tags.get(row, (sources[row], groups[row]))]
            for one in group
        ]
        tokenizer, batch_tokens = self.search.tokenizer, config.batch_tokens
        pairs = [
            encoded_pair(
                tokenizer, Protected(stripped[row].text), own, one.text, list(one.tokens), parts_with_placeholders
            )
            for row, own, one in texts
        ]
        links = self.aligner(pairs, by="attention", batch_tokens=batch_tokens)
        placed: dict[int, list[DecodedText]] = {row: [] for row in stripped}
        for (row, _, one), some in zip(texts, links, strict=True):
            text, unmarked = stripped[row].placed(one.text, some), (stripped[row].text, one.text, one.log_prob)
            placed[row].append(replace(one, source=sources[row], text=text, has_placed_markup=True, unmarked=unmarked))
        every = [one for group in placed.values() for one in group]
        longest = min(self.search.max_length or math.inf, config.max_input_tokens + config.extra_length)
        languages = [pieces[row].language for row, _, _ in texts]
        self.search.retokenize(every, languages, batch_tokens, longest if scores else 0)

        def best(row: int) -> list[DecodedText]:
            group = placed.get(row, [])
            if not group or is_blank(group[0].text) or any(len(one.tokens) > longest for one in group):
                return groups[row]
            before, after = (missing_placeholders(pieces[row].text, some[0].text) for some in (groups[row], group))
            return distinct(group) if len(after) < len(before) else groups[row]

        return list(map(best, range(len(groups))))

    def _found_without_tags(
        self,
        stripped: dict[int, Stripped],
        pieces: Sequence[Piece],
        prefixes: Sequence[Prefix],
        wanted: Sequence[WantedTerms],
        options: SearchOptions,
        *,
        scores: bool,
    ) -> dict[int, tuple[list[int], list[DecodedText]]]:
        """Return, by row, the source ids without tags and the texts found for them, for texts that have lost tags."""
        rows = [row for row, one in stripped.items() if one.has_lost and one.text.strip()]
        if not rows:
            return {}
        parts = [(pieces[row].language, stripped[row].text) for row in rows]
        encoded = self.search.tokenizer.encode_parts(parts, options.config.source_lang)
        ids = cut_sources(self.config, options.config, encoded)
        own = [wanted[row] for row in rows], ids, [prefixes[row] for row in rows]
        groups = search_with_terms(self.search, *own, options, scores=scores)
        return dict(zip(rows, zip(ids, groups, strict=True), strict=True))

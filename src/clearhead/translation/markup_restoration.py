"""Restore markup that a translation lacks: translate without tags, then place the tags by word alignment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import SearchOptions
from clearhead.text.placeholder_masking import Protected
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import missing_placeholders
from clearhead.text.word_links import Link
from clearhead.tokenizers import Vocabulary
from clearhead.translation.alignment import Aligner, encoded_pair
from clearhead.translation.preprocessing import cut_to_limit, tokenize
from clearhead.translation.search import TextSearch, distinct
from clearhead.translation.segment import DecodedText, Segment
from clearhead.translation.term_constraints import search_with_terms

if TYPE_CHECKING:
    from clearhead.text.markup_projection import Stripped

_MOST_CHARACTERS = 16
"""Characters a token of the longest source whose markup is restored. An unknown token may stand for any number of
characters, each a word to align."""


def places_markup(tokenizer: Vocabulary, model: ModelConfig, config: DecodeConfig) -> bool:
    """Return whether markup must be restored: if configured, for a model without tokens for placeholders."""
    return config.place_markup and not tokenizer.num_placeholders and model.is_encoder_decoder


class _Unmarked(NamedTuple):
    """A segment whose translation lacks markup."""

    segment: Segment
    stripped: Stripped
    """Its text without markup."""
    bare: Segment
    """The segment as that text."""
    placed: Segment
    """The segment with the restored texts."""

    @property
    def is_searched(self) -> bool:
        """Whether its tags are lost, so that the text without them is translated."""
        return self.stripped.has_lost and bool(self.stripped.text.strip())


class MarkupRestorer:
    """Restores markup in search results, for a model without tokens for placeholders.

    Args:
        config: Configuration of the model, or of the ensemble.
        search: Searches and retokenizes texts.
        aligner: Aligns words.
    """

    def __init__(self, config: ModelConfig, search: TextSearch, aligner: Aligner) -> None:
        self.config, self.search, self.aligner = config, search, aligner

    def __call__(self, segments: Sequence[Segment], options: SearchOptions, *, scores_unmarked: bool = False) -> None:
        """Restore the markup of segments whose best text lacks some.

        If the best text of a segment lacks markup, the other n-best texts are restored too. If tags are missing or
        added, the segment is first translated again without tags, with its terms. A changed text is scored whole,
        markup included. Results of segments with a text prefix are not changed, nor those of sources that were cut; nor
        is a text used that the search could not have written for its length.

        Args:
            segments: The segments, translated.
            options: Options of the search that found the texts; changed texts are scored if `options.scores` is set.
            scores_unmarked: Whether to score them without their markup too (`DecodedText.unmarked`).
        """
        config = options.config
        candidates = list(filter(None, (_unmarked(segment, config.max_input_tokens) for segment in segments)))
        if not candidates:
            return
        from clearhead.text.markup_projection import parts_with_placeholders

        searched = [candidate.bare for candidate in candidates if candidate.is_searched]
        self._translate_without_tags(searched, replace(options, scores=scores_unmarked))
        tokenizer = self.search.tokenizer
        pairs = [
            encoded_pair(
                tokenizer, bare.protected, bare.ids, decoded.text, list(decoded.tokens), words=parts_with_placeholders
            )
            for bare in (candidate.bare for candidate in candidates)
            for decoded in bare.hypotheses
        ]
        links = iter(self.aligner(pairs, by="attention", batch_tokens=config.batch_tokens))
        for candidate in candidates:
            candidate.placed.hypotheses = _placed(candidate, links)
        longest = min(self.search.max_length or math.inf, config.max_input_tokens + config.extra_length)
        placed = [candidate.placed for candidate in candidates]
        self.search.retokenize(placed, config.batch_tokens, longest if options.scores else 0)
        for candidate in candidates:
            are_short = all(len(hypothesis.tokens) <= longest for hypothesis in candidate.placed.hypotheses)
            if are_short and _has_more_markup(candidate.placed, candidate.segment):
                candidate.segment.hypotheses = distinct(candidate.placed.hypotheses)

    def _translate_without_tags(self, bare: Sequence[Segment], options: SearchOptions) -> None:
        """Tokenize and translate segments whose texts have lost their tags."""
        tokenize(bare, self.search.tokenizer, options.config)
        cut_to_limit(bare, self.config, options.config)
        if bare:
            search_with_terms(self.search, bare, options)


def _unmarked(segment: Segment, max_input_tokens: int) -> _Unmarked | None:
    """Return a segment whose best text lacks markup that can be restored; None if it lacks none."""
    text, written = segment.text, segment.hypotheses[0].text
    # Markup of what the model has not read has no place, and may be of any length.
    if len(segment.prefix.tokens) > segment.prefix.given or segment.was_cut:
        return None
    if len(text) > _MOST_CHARACTERS * max_input_tokens or not (missing := missing_placeholders(text, written)):
        return None
    from clearhead.text.markup_projection import is_tag, strip_markup

    tags = any(map(is_tag, [*missing, *missing_placeholders(written, text)]))
    stripped = strip_markup(text, tags=tags)
    return _Unmarked(segment, stripped, replace(segment, protected=Protected(stripped.text)), replace(segment))


def _placed(unmarked: _Unmarked, links: Iterator[list[Link]]) -> list[DecodedText]:
    """Return the texts of a segment with markup.

    Args:
        unmarked: The segment.
        links: The links between the words of its text and of each translation, without markup.
    """
    return [
        replace(
            hypothesis,
            text=unmarked.stripped.placed(hypothesis.text, next(links)),
            has_placed_markup=True,
            unmarked=(unmarked.stripped.text, hypothesis.text, hypothesis.log_prob),
        )
        for hypothesis in unmarked.bare.hypotheses
    ]


def _has_more_markup(changed: Segment, segment: Segment) -> bool:
    """Return whether the best text of a segment is not blank and has more of its markup than before."""
    if not changed.hypotheses or is_blank(changed.hypotheses[0].text):
        return False
    before, after = (missing_placeholders(segment.text, version.hypotheses[0].text) for version in (segment, changed))
    return len(after) < len(before)

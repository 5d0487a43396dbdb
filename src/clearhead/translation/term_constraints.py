"""Terminology constraints: translate as usual, and search again for lines that lack a term.

Most translations contain their terms anyway. So every line is first translated without constraints. A line that lacks a
term is translated again by constrained search, for the best translation with all its terms (`decoding.constrained`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import ModelConfig
from clearhead.decoding import SearchOptions
from clearhead.errors import ConfigError
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import LruCache, cached_property
from clearhead.text.placeholder_masking import Protected
from clearhead.text.placeholders import find_placeholders
from clearhead.text.unicode_forms import TextForm
from clearhead.tokenizers import Vocabulary
from clearhead.translation.search import TextSearch
from clearhead.translation.segment import NO_TERMS, Segment, SegmentedLine, WantedTerms
from clearhead.translation.terminology import Term, Terms, is_in_word

if TYPE_CHECKING:
    from clearhead.decoding import RequiredTerm, TokenSequence, WordEdges

MOST_PRICE = 15.0
"""Nats by which terms may lower the log-probability of a sentence; above, they are met at a price (docs/terms.md)."""

_BEFORE = "a"
"""A word put before a form, to tokenize the form in the middle of a text."""
_MOST_CACHED = 50_000
"""Terms whose tokenizations are cached; bounded because a server receives ever new terms."""
_OPENING = ("(", '"', "„", "“", "«", "-", "/")
"""Signs that may precede a word without a space."""


class TermEncoder:
    """Converts the terms of sources to constraints on target tokens.

    Args:
        tokenizer: Target vocabulary.
        form: Unicode form of the targets.
    """

    def __init__(self, tokenizer: Vocabulary, form: TextForm) -> None:
        self._tokenizer, self._form = tokenizer, form
        self._required = LruCache(self._required_of, _MOST_CACHED)

    def prepare(self) -> None:
        """Decode each token of the vocabulary once, which otherwise the first text with a term waits for."""
        assert self._edges

    def find_terms(
        self, lines: Sequence[SegmentedLine], terms: Terms, options: SearchOptions, config: ModelConfig
    ) -> None:
        """Set the terms that the translation of each segment must contain.

        Args:
            lines: The lines in segments.
            terms: The terminology.
            options: Options of the search.
            config: Configuration of the model.

        Raises:
            ConfigError: If terms cannot be combined with the kind of search or model.
        """
        idle = {
            "samples (sampling, mbr), which are drawn": options.sampling is not None,
            "diverse search": options.diversity > 0,
            "a shortlist, which may lack their tokens": options.config.shortlist,
            "a decoder alone, which continues a text": config.is_decoder_alone,
        }
        if conflict := next((what for what, is_so in idle.items() if is_so), None):
            raise ConfigError(
                f"terms are met by searching the whole vocabulary for translations; they cannot be with {conflict}"
            )
        for line in lines:
            for segment in line.to_translate:
                given, any_case = segment.prefix.given, line.form.in_capitals
                segment.terms = self.required_terms(terms, segment.protected, given, any_case=any_case)

    def required_terms(self, terms: Terms, source: Protected, given: int = 0, *, any_case: bool = False) -> WantedTerms:
        """Return the terms that the translation of a text must contain.

        Args:
            terms: The terminology.
            source: The text as the model reads it.
            given: Number of leading tokens of every translation that are not text.
            any_case: Match terms with capital letters in any case too, as for `Terms.found_in`.
        """
        check_interruption()
        found_terms = terms.found_in(source.text, any_case=any_case)
        if not found_terms:
            return NO_TERMS
        from clearhead.decoding import Required

        encoded = [(term, self._required(term)) for _, term in found_terms]
        terms_of_tokens = [tokens for _, tokens in encoded if tokens is not None]
        unencodable = frozenset(term for term, tokens in encoded if tokens is None)
        required = Required(terms_of_tokens, self._edges, given) if terms_of_tokens else None
        codes = frozenset(code[0] for code in find_placeholders(source.restored(source.text)))
        return WantedTerms(tuple(found_terms), required, unencodable, codes)

    def _required_of(self, term: Term) -> RequiredTerm | None:
        """Return the tokenizations of a term, or None if the vocabulary can write none of its forms."""
        own = list(filter(self._is_encodable, map(self._form, term.forms)))
        if not own:
            return None
        from clearhead.decoding import RequiredTerm

        capital = [form[0].upper() + form[1:] for form in own]
        first = self._behind("", [*capital]) or self._behind("", own)
        later = self._behind(f"{_BEFORE} ", own)
        others = [*self._behind("", own), *self._behind(f"{_BEFORE} ", capital)]
        for sign in _OPENING:
            others += self._behind(f"{_BEFORE} {sign}", [*own, *capital])
        return RequiredTerm(tuple(first), tuple(later or first), tuple(others), len(term.forms))

    def _behind(self, before: str, forms: Sequence[str]) -> list[TokenSequence]:
        """Return how forms are tokenized after a text; a form that changes the tokens of the text is left out."""
        start, *rest = self._tokenizer.encode_prefixes([before.rstrip(), *(before + form for form in forms)])
        if not before:
            start = []
        endings = [tuple(ids[len(start) :]) for ids in rest if ids[: len(start)] == start]
        return [ids for ids in dict.fromkeys(endings) if ids]

    def _is_encodable(self, form: str) -> bool:
        (ids,) = self._tokenizer.encode_prefixes([form])
        return bool(ids) and (self._tokenizer.is_lossless or self._tokenizer.decode(ids).strip() == form)

    @cached_property
    def _edges(self) -> WordEdges:
        """Which tokens begin or end a word, determined by decoding each token after a word."""
        from clearhead.decoding import WordEdges

        (before,) = self._tokenizer.encode_prefixes([_BEFORE])
        texts = self._tokenizer.decode_batch([[*before, token] for token in range(self._tokenizer.vocab_size)])
        behind = [text[len(_BEFORE) :] for text in texts]
        # A token that cannot be decoded alone is part of a character.
        continues = [bool(text) and (is_in_word(text[0]) or text[0] == "\ufffd") for text in behind]
        ends = [bool(text) and (is_in_word(text[-1]) or text[-1] == "\ufffd") for text in behind]
        return WordEdges(np.array(continues), np.array(ends))


def search_with_terms(
    search: TextSearch,
    segments: Sequence[Segment],
    options: SearchOptions,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> None:
    """Set the texts found for segments, with their terms wherever the search can satisfy them.

    A best text whose terms cost more than `MOST_PRICE` carries the text without them.

    Args:
        search: The search.
        segments: The segments.
        options: Options of the search.
        on_progress: Called with the number of segments finished, batch by batch.
    """
    bound = [segment for segment in segments if segment.terms.required is not None]
    search([segment for segment in segments if segment.terms.required is None], options, on_progress=on_progress)
    if not bound:
        return
    scored = replace(options, scores=True)  # prices are compared
    search(bound, scored)
    retried = [segment for segment in bound if not all(segment.terms.are_met(text.text) for text in segment.hypotheses)]
    if on_progress is not None and len(retried) < len(bound):
        on_progress(len(bound) - len(retried))
    unconstrained = {segment: segment.hypotheses for segment in retried}
    search(retried, scored, on_progress=on_progress, with_terms=True)
    for segment, free in unconstrained.items():
        best = segment.hypotheses[0]
        if not segment.terms.are_met(best.text):  # the unconstrained translation is better
            segment.hypotheses = free
        elif free[0].log_prob - best.log_prob > MOST_PRICE:
            best.without_terms = free[0].text

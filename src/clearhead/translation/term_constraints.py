"""Terminology constraints: translate as usual, and search again for lines that lack a term.

Most translations contain their terms anyway. So every line is first translated without constraints. A line that lacks a
term is translated again by constrained search, for the best translation with all its terms (`decoding.constrained`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clearhead.config import ModelConfig
from clearhead.decoding import Prefix, SearchOptions
from clearhead.errors import ConfigError
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import LruCache, cached_property
from clearhead.text.placeholder_masking import Protected
from clearhead.text.placeholders import find_placeholders
from clearhead.text.unicode_forms import TextForm
from clearhead.tokenizers import Vocabulary
from clearhead.translation.preprocessing import PreprocessedLines
from clearhead.translation.result import COSTLY, TermUse
from clearhead.translation.terminology import FoundTerm, Term, Terms, forms_in, is_in_word

if TYPE_CHECKING:
    from clearhead.decoding import Required, RequiredTerm, TokenSequence, WordEdges

MOST_PRICE = 15.0
"""Nats by which terms may lower the log-probability of a sentence; above, they are met at a price (docs/terms.md)."""

_BEFORE = "a"
"""A word put before a form, to tokenize the form in the middle of a text."""
_MOST_CACHED = 50_000
"""Terms whose tokenizations are cached; bounded because a server receives ever new terms."""
_OPENING = ("(", '"', "„", "“", "«", "-", "/")
"""Signs that may precede a word without a space."""


class WantedTerms(NamedTuple):
    """The terms of a source, as constraints for the search."""

    found: tuple[FoundTerm, ...] = ()
    required: Required | None = None
    """None if the vocabulary can write none of them."""
    unencodable: frozenset[Term] = frozenset()
    """Terms of which the vocabulary can write no form."""
    codes: frozenset[str] = frozenset()
    """Placeholders of the source."""

    def are_met(self, text: str) -> bool:
        """Return whether a translation has all terms that the vocabulary can write."""
        forms = forms_in(self.found, text, self.codes) if self.required is not None else []
        return all(form or one.term in self.unencodable for one, form in zip(self.found, forms, strict=False))

    def uses(self, text: str, without_terms: str | None = None) -> tuple[TermUse, ...]:
        """Return for each term how the translation uses it, or why it is missing.

        Args:
            text: The translation.
            without_terms: The translation without its terms, if they were met at a price.
        """
        uses = []
        used = forms_in(self.found, text, self.codes)
        free = [""] * len(self.found) if without_terms is None else forms_in(self.found, without_terms, self.codes)
        for (source, term), form, form_without in zip(self.found, used, free, strict=True):
            is_costly = form and not form_without and without_terms is not None
            reason = COSTLY if is_costly else None if form else "unspellable" if term in self.unencodable else "unmet"
            uses.append(TermUse(source, term.forms[0], form, reason, without_terms if is_costly else None))
        return tuple(uses)


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

    def wanted_in(
        self, read: PreprocessedLines, terms: Terms | None, options: SearchOptions, config: ModelConfig
    ) -> list[WantedTerms]:
        """Return the terms that the translation of each piece must contain.

        Args:
            read: The lines as the model reads them.
            terms: The terminology, if any.
            options: Options of the search.
            config: Configuration of the model.

        Raises:
            ConfigError: If terms cannot be combined with the kind of search or model.
        """
        if terms is None:
            return [WantedTerms()] * len(read.filled)
        idle = {
            "samples (sampling, mbr), which are drawn": options.sampling is not None,
            "diverse search": options.diversity > 0,
            "a shortlist, which may lack their tokens": options.config.shortlist,
            "a decoder alone, which continues a text": config.is_decoder_alone,
        }
        if found := next((what for what, is_so in idle.items() if is_so), None):
            raise ConfigError(
                f"terms are met by searching the whole vocabulary for translations; they cannot be with {found}"
            )
        pieces = zip(read.filled_pieces, read.prefixes, read.are_in_capitals(), strict=True)
        return [
            self.wanted(terms, piece.protected, prefix.given, any_case=in_capitals)
            for piece, prefix, in_capitals in pieces
        ]

    def wanted(self, terms: Terms, source: Protected, given: int = 0, *, any_case: bool = False) -> WantedTerms:
        """Return the terms that the translation of a text must contain.

        Args:
            terms: The terminology.
            source: The text as the model reads it.
            given: Number of leading tokens of every translation that are not text.
            any_case: Match terms with capital letters in any case too, as for `Terms.found_in`.
        """
        check_interruption()
        found = terms.found_in(source.text, any_case=any_case)
        if not found:
            return WantedTerms()
        from clearhead.decoding import Required

        encoded = [(term, self._required(term)) for _, term in found]
        terms_of_tokens = [one for _, one in encoded if one is not None]
        required = Required(terms_of_tokens, self._edges, given) if terms_of_tokens else None
        codes = frozenset(code[0] for code in find_placeholders(source.restored(source.text)))
        return WantedTerms(tuple(found), required, frozenset(term for term, one in encoded if one is None), codes)

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
        found = [tuple(ids[len(start) :]) for ids in rest if ids[: len(start)] == start]
        return [ids for ids in dict.fromkeys(found) if ids]

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
    search: Callable[..., list[list[Any]]],
    wanted: Sequence[WantedTerms],
    sources: list[list[int]],
    prefixes: list[Prefix],
    options: SearchOptions,
    *,
    scores: bool,
    on_progress: Callable[[int], None] | None = None,
) -> list[list[Any]]:
    """Return the texts of each source, with its terms wherever the search can satisfy them.

    A best text whose terms cost more than `MOST_PRICE` carries the text without them.

    Args:
        search: A `TextSearch`, or a function with the same arguments and result.
        wanted: Terms of each source.
        sources: Source ids, no longer than the model reads.
        prefixes: Prefix of each translation.
        options: Options of the search.
        scores: Whether the log-probabilities must be those of the texts.
        on_progress: Called with the number of sources finished, batch by batch.
    """

    def found(rows: Sequence[int], tell: Callable[[int], None] | None, **how: Any) -> dict[int, list[Any]]:
        own = [sources[row] for row in rows], [prefixes[row] for row in rows]
        groups = search(*own, options, on_progress=tell, **how)
        return dict(zip(rows, groups, strict=True))

    bound = [row for row, terms in enumerate(wanted) if terms.required is not None]
    if not bound:
        return search(sources, prefixes, options, scores=scores, on_progress=on_progress)
    free = [row for row in range(len(sources)) if wanted[row].required is None]
    groups = found(free, on_progress, scores=scores, required=[])
    groups |= found(bound, None, scores=True, required=[])  # prices are compared
    again = [row for row in bound if not all(wanted[row].are_met(one.text) for one in groups[row])]
    if on_progress is not None and len(again) < len(bound):
        on_progress(len(bound) - len(again))
    required = [wanted[row].required for row in again]
    for row, group in found(again, on_progress, scores=True, required=required).items():
        if wanted[row].are_met(group[0].text):  # otherwise the unconstrained translation is better
            if groups[row][0].log_prob - group[0].log_prob > MOST_PRICE:
                group[0].without_terms = groups[row][0].text
            groups[row] = group
    return [groups[row] for row in range(len(sources))]

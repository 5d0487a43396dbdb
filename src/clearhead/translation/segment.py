"""A segment: a unit of translation, a whole line or a sentence of one, as a record on its way through the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from clearhead.decoding import NO_PREFIX, Prefix
from clearhead.text.placeholder_masking import Protected
from clearhead.text.placeholders import is_blank
from clearhead.text.word_links import Link
from clearhead.translation.normalization import NormalizedLine
from clearhead.translation.result import COSTLY, TermUse
from clearhead.translation.terminology import FoundTerm, Term, forms_in

if TYPE_CHECKING:
    from clearhead.decoding import Required
    from clearhead.decoding.neighbours import Neighbours


class WantedTerms(NamedTuple):
    """The terms of a source, as constraints for the search."""

    terms: tuple[FoundTerm, ...] = ()
    required: Required | None = None
    """None if the vocabulary can write none of them."""
    unencodable: frozenset[Term] = frozenset()
    """Terms of which the vocabulary can write no form."""
    codes: frozenset[str] = frozenset()
    """Placeholders of the source."""

    def are_met(self, text: str) -> bool:
        """Return whether a translation has all terms that the vocabulary can write."""
        return all(use.form or use.reason == "unspellable" for use in self.uses(text))

    def uses(self, text: str, without_terms: str | None = None) -> tuple[TermUse, ...]:
        """Return for each term how the translation uses it, or why it is missing.

        Args:
            text: The translation.
            without_terms: The translation without its terms, if they were met at a price.
        """
        uses = []
        used = forms_in(self.terms, text, self.codes)
        free = [""] * len(self.terms) if without_terms is None else forms_in(self.terms, without_terms, self.codes)
        for (source, term), form, form_without in zip(self.terms, used, free, strict=True):
            is_costly = form and not form_without and without_terms is not None
            reason = COSTLY if is_costly else None if form else "unspellable" if term in self.unencodable else "unmet"
            uses.append(TermUse(source, term.forms[0], form, reason, without_terms if is_costly else None))
        return tuple(uses)


NO_TERMS = WantedTerms()


@dataclass(slots=True)
class DecodedText:
    """A hypothesis of the search and its text."""

    tokens: tuple[int, ...]
    log_prob: float
    was_ended: bool
    text: str
    utility: float | None = None
    has_placed_markup: bool = False
    """Whether its markup was restored after the search."""
    unmarked: tuple[str, str, float] | None = None
    """Source and text without that markup, and their log-probability if requested; None if none was restored."""
    follows_blank: bool = False
    """Whether a better hypothesis was left out because it is blank."""
    without_terms: str | None = None
    """The text that was found without its terms, if they made it much less probable."""


@dataclass(slots=True, eq=False)
class Segment:
    """A unit of translation: a whole line, or a sentence of a split line."""

    source: str
    """The text, preceded by the language tag if its line has one."""
    text: str
    """The text without the tag, normalized."""
    original: str
    """The text without the tag, not normalized."""
    gap: str
    """White space before it, if another segment of its line precedes it."""
    num_sentences: int
    protected: Protected
    """The text with its placeholders masked, and the originals of the masks."""
    language: str | None = None
    """Target language; None if neither its line nor a setting names one."""
    num_tokens: int = 0
    """Number of its source tokens, before they are cut to the model's limit."""
    ids: list[int] = field(default_factory=list)
    """Source ids that the model reads."""
    is_translated: bool = True
    """Whether it is neither blank nor left as it is (`Preprocessor.translates`)."""
    prefix: Prefix = NO_PREFIX
    """Forced beginning of its translation."""
    neighbours: Neighbours | None = None
    """Similar pairs of a memory, which the search consults."""
    terms: WantedTerms = NO_TERMS
    """Terms that its translation must contain."""
    hypotheses: list[DecodedText] = field(default_factory=list)
    """Its translations, best first."""
    links: Sequence[Link] = ()
    """Word alignment with the best translation, if requested."""

    @property
    def was_cut(self) -> bool:
        """Whether the model reads only a part of it."""
        return self.num_tokens > len(self.ids)

    def makes_blank(self, hypothesis: DecodedText) -> bool:
        """Return whether a translation of it is blank."""
        return is_blank(self.protected.restored(hypothesis.text))


@dataclass(slots=True, eq=False)
class SegmentedLine:
    """A line in segments."""

    source: str
    tag: str
    """The language tag at its beginning, with the white space after it; empty if it has none."""
    language: str | None
    """Target language; None if neither the line nor a setting names one."""
    form: NormalizedLine
    """The line without the tag, as the model reads it."""
    beginning: str = ""
    """Text that the translation must begin with."""
    segments: list[Segment] = field(default_factory=list)

    @property
    def is_split(self) -> bool:
        """Whether it has several segments."""
        return len(self.segments) > 1

    @property
    def to_translate(self) -> list[Segment]:
        """The segments that are not left as they are."""
        return [segment for segment in self.segments if segment.is_translated]

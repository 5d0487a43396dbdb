"""The translation of a line, made in one go or of its sentences."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from clearhead.text.placeholders import change_words
from clearhead.text.quality_flags import Flag, merge_flags
from clearhead.text.sentence_splitting import join_sentences
from clearhead.text.word_links import Link, joined_links

__all__ = [
    "TERM_REASONS",
    "Alternative",
    "MemoryMatch",
    "TermUse",
    "Translation",
    "best_combinations",
    "join_translations",
    "on_one_line",
]

TERM_REASONS = {
    "unspellable": "the model's vocabulary cannot write it",
    "unmet": "no translation within the length limit was found that has it in one piece",
    "left": "its part of the message was left as it was",
}
"""Why a translation lacks a term, and what that means."""

_LINE_END = re.compile("[\n\v\f\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the n best translations of a line."""

    text: str
    score: float | None
    """As of `Translation`."""
    utility: float | None = None
    """As of `Translation`."""


@dataclass(frozen=True, slots=True)
class TermUse:
    """What became of a term of the source in the translation."""

    source: str
    """As it stands in the source."""
    target: str
    """What is to translate it, its first form."""
    form: str
    """The form that the translation has, as it stands there; empty if it has none."""
    reason: str | None = None
    """Why it has none, one of `TERM_REASONS`."""


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """What a translation memory has for a line."""

    source: str
    """The most similar source that it has."""
    target: str
    """Its translation there."""
    similarity: float
    """Of the line and that source; 1 is an exact match, see `translation.memory.similarity`."""
    is_reused: bool = False
    """Whether its translation is that of the line; otherwise the model made one."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one line."""

    source: str
    text: str
    """The translation; empty for an empty line."""
    score: float | None
    """The model's own log-probability of the text given the source (of a source that was cut, the part translated), in
    nats: what `Translator.score` says of them, whatever the precision, with a shortlist, and of samples too. Of a line
    that was split or read in another form, the sum over its `sentences`, which is not what the model says of the line
    itself. 0 for a blank line, None where no scores were asked for."""
    tokens: tuple[str, ...]
    """The pieces of the text, the end token left out; of a line that was split or read in another form, those of
    its `sentences` in a row."""
    alternatives: tuple[Alternative, ...] = ()
    """The n best, this one included, in the order the search (or with `mbr` the utility) ranked them, if more than one
    was asked for. No two have the same text, so there are fewer where the search found fewer texts; of samples, each
    that was drawn is here. Of a line that was split they combine those of its sentences: first the best of each, then
    those in which one has its second best, and so on by the sum of places, the more probable first."""
    source_truncated: bool = False
    """The source, or a sentence of it, was longer than `decode.max_input_tokens`, and only its beginning is
    translated."""
    output_truncated: bool = False
    """The translation, or that of a sentence, was ended by the length limit (`decode.extra_length`, or the end of the
    model's positions) or as a repetition loop (`decode.end_loops`), not by the model."""
    sentences: tuple[Translation, ...] = ()
    """The translations of its sentences if the line was split, in order, each with the line's language tag; of a line
    that was read in another form (`decode.familiar`) that of this form; none if it was translated as it is."""
    utility: float | None = None
    """With `mbr` the mean chrF of the text with all other samples as its references, from 0 to 100; of a line that was
    split, the mean over its `sentences`. None otherwise, and for a blank line."""
    warnings: tuple[Flag, ...] = ()
    """What looks wrong with the translation, or with that of a sentence, each kind once; see `flags`."""
    terms: tuple[TermUse, ...] | None = None
    """What became of the terms of the source, in order; None where no terms were given."""
    memory: MemoryMatch | None = None
    """What a translation memory has for it; None where none was asked, or has nothing similar enough."""

    alignment: tuple[Link, ...] | None = None
    """Which words of the source, a language tag left out, the words of the text stand for: pairs of their numbers,
    counted from 0, ascending; what a word is, `text.word_links.words_of` says. None where it was not asked for."""

    @property
    def truncated(self) -> bool:
        """Whether the source or the translation was cut."""
        return self.source_truncated or self.output_truncated

    @property
    def score_per_token(self) -> float | None:
        """The log-probability by token, the end token of each sentence included, in nats; None without a score.

        The nearer it is to 0, the surer the model.
        """
        return None if self.score is None else self.score / _num_tokens(self)


def join_translations(
    source: str,
    sentences: Sequence[Translation],
    gaps: Sequence[str],
    *,
    num_best: int = 1,
    are_samples: bool = False,
    one_line: bool = False,
    in_capitals: bool = False,
    read: tuple[str, Sequence[str]] | None = None,
) -> Translation:
    """Make the translation of a line of those of its sentences, or of what was read in its place.

    Args:
        source: The line.
        sentences: Their translations.
        gaps: The white space between their sources, as of `CutLine`.
        num_best: Alternatives wanted, if there are that many.
        are_samples: The alternatives of the sentences belong together by their places; none is better than another.
        one_line: Make the ends of lines between sentences spaces.
        in_capitals: Put the texts in capitals.
        read: The line and its sentences as they were read, without a language tag; needed where they are aligned.
    """
    if one_line:
        gaps = list(map(on_one_line, gaps))
    choices = [
        sentence.alternatives or (Alternative(sentence.text, sentence.score, sentence.utility),)
        for sentence in sentences
    ]
    rows = list(zip(*choices, strict=True)) if are_samples else best_combinations(choices, num_best)
    texts = [join_sentences([one.text for one in row], gaps) for row in rows]
    alignment = None
    if read is not None and (links := [one.alignment for one in sentences if one.alignment is not None]):
        alignment = tuple(joined_links(links, read[1], [one.text for one in sentences], read[0], texts[0]))
    terms = [one for sentence in sentences for one in sentence.terms or ()]
    if in_capitals:
        texts = list(map(_in_capitals, texts))
        terms = [replace(one, source=_in_capitals(one.source), form=_in_capitals(one.form)) for one in terms]
    joined = [Alternative(text, _total(row), _mean_utility(row)) for text, row in zip(texts, rows, strict=True)]
    if not are_samples:
        first: dict[str, Alternative] = {}
        for one in joined:
            first.setdefault(one.text, one)
        joined = list(first.values())
    return Translation(
        source=source,
        text=joined[0].text,
        score=joined[0].score,
        utility=joined[0].utility,
        tokens=tuple(token for sentence in sentences for token in sentence.tokens),
        alternatives=tuple(joined) if num_best > 1 else (),
        source_truncated=any(sentence.source_truncated for sentence in sentences),
        output_truncated=any(sentence.output_truncated for sentence in sentences),
        sentences=tuple(sentences),
        warnings=merge_flags([sentence.warnings for sentence in sentences]),
        alignment=alignment,
        terms=None if all(sentence.terms is None for sentence in sentences) else tuple(terms),
    )


def _in_capitals(text: str) -> str:
    return change_words(text, str.upper)


def on_one_line(text: str) -> str:
    """Return a text whose ends of lines, of whatever kind, are spaces."""
    return _LINE_END.sub(" ", text)


def best_combinations(choices: Sequence[Sequence[Alternative]], count: int) -> list[tuple[Alternative, ...]]:
    """Return the first combinations of one choice each, by the sum of their places, the more probable first.

    Args:
        choices: For each sentence of a line its translations, best first.
        count: Combinations wanted; fewer if there are not as many.
    """
    best: list[tuple[int, float, tuple[Alternative, ...]]] = [(0, 0.0, ())]
    for group in choices:
        # Both sums grow by what a choice adds, so what is not among the best so far never will be.
        longer = [
            (places + place, cost - (one.score or 0.0), (*chosen, one))
            for places, cost, chosen in best
            for place, one in enumerate(group)
        ]
        best = heapq.nsmallest(count, longer, key=itemgetter(0, 1))
    return [chosen for _, _, chosen in best]


def _num_tokens(translation: Translation) -> int:
    """Return how many tokens were paid for, the end token of each sentence included."""
    return sum(map(_num_tokens, translation.sentences)) or len(translation.tokens) + 1


def _mean_utility(row: Sequence[Alternative]) -> float | None:
    known = [one.utility for one in row if one.utility is not None]
    return sum(known) / len(known) if known else None


def _total(row: Sequence[Alternative]) -> float | None:
    scores = [one.score for one in row if one.score is not None]
    return sum(scores) if len(scores) == len(row) else None

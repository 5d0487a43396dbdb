"""Translation results: texts, scores, alternatives, warnings; sentences joined into lines; their JSON form.

The JSON form is what `translate --format jsonl` prints and what the server returns.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from clearhead.text.lines import on_one_line, percent, shortened
from clearhead.text.placeholders import change_words
from clearhead.text.quality_flags import KINDS, SEVERITIES, Flag, FlagKind, merge_flags
from clearhead.text.sentence_splitting import join_sentences
from clearhead.text.word_links import Link, joined_links, words_of

MISSED_TERMS = "terms"
"""Kind of problem of a translation that lacks terms, or has some at a price."""

COSTLY = "costly"
"""Reason of a term that is met at a price."""

PROBLEMS = dict(
    sorted(
        {
            "source_truncated": FlagKind("the source is too long, and only its beginning is translated", "serious"),
            "output_truncated": FlagKind("the translation was ended by the length limit or in a repetition", "serious"),
            **KINDS,
            MISSED_TERMS: FlagKind("a term is missing, or its sentence became improbable by it", "moderate"),
        }.items(),
        key=lambda item: SEVERITIES.index(item[1].severity),
    )
)
"""The kinds of `Translation.problems` with their meanings, the most damage first."""

TERM_REASONS = {
    COSTLY: "met at a price: the model finds the sentence without it far more probable",
    "unspellable": "the model's vocabulary cannot write it",
    "unmet": "no translation within the length limit was found that has it in one piece",
    "left": "its part of the message was left as it was",
}
"""Reasons why a translation lacks a term, or has it at a price, with their explanations."""

MOST_OF_A_SOURCE = 80
"""Characters of the source of a memory that a flag shows."""

_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Escapes of characters that do not end a line of JSON, but at which many readers split lines (`str.splitlines`)."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the n-best translations of a line."""

    text: str
    score: float | None
    """Log-probability in nats, as `Translation.score`."""
    utility: float | None = None
    """Mean chrF against the other samples, as `Translation.utility`."""


@dataclass(frozen=True, slots=True)
class TermUse:
    """A source term and its translation."""

    source: str
    """The term as written in the source."""
    target: str
    """The required translation: the first form of the term."""
    form: str
    """The form as written in the translation; empty if the term is missing."""
    reason: str | None = None
    """Why the term is missing or was met at a price, a key of `TERM_REASONS`; None if it was simply met."""
    without: str | None = None
    """Of a term met at a price: the translation of its sentence without it."""


class MemoryUse(NamedTuple):
    """A pair of a translation memory in its place."""

    target: str
    context: str | None
    """As in `SentencePair`."""
    before: str | None
    """Source of the pair before it, in NFC; None if it is the first one."""
    after: str | None
    """Source of the pair behind it."""


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """A translation memory match for a line."""

    source: str
    """The most similar source in the memory."""
    target: str
    """Its translation in the memory."""
    similarity: float
    """Similarity of the line and that source; 1 is an exact match. See `translation.memory`."""
    is_reused: bool = False
    """Whether the memory's translation is used for the line; otherwise the model translated it."""
    repaired: str | None = None
    """The translation with what differs from the line replaced, if it is reused so; see `translation.match_repair`."""
    uses: tuple[MemoryUse, ...] = field(default=(), repr=False, compare=False)
    """Where the memory has the source, if its translations differ."""

    @property
    def reused(self) -> str:
        """The translation that is used for the line."""
        return self.target if self.repaired is None else self.repaired

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The flag of a translation that was repaired."""
        if self.repaired is None:
            return ()
        return (Flag("repaired", f"{percent(self.similarity)} %: {shortened(self.source, MOST_OF_A_SOURCE)}"),)


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one line."""

    source: str
    text: str
    """The translation; empty for an empty line, and the line itself if nothing in it can be translated.

    Not empty for another line, unless it is raw: where the model's best translation is blank, it is the next best one,
    or else the source, with the flag `empty`.
    """
    score: float | None
    """The model's log-probability of the text given the source, in nats.

    It equals the result of `Translator.score`, whatever the precision, with a shortlist, and for samples too. If the
    source was cut, it is the score given the part that was translated. If the line was split or normalized, it is the
    sum over its `sentences`, which differs from the model's score of the whole line. 0 for a blank line; None if scores
    were not requested, or if it or a sentence is not the model's text but the source or that of a memory.
    """
    tokens: tuple[str, ...]
    """The tokens of the text as strings, without the end token; if the line was split or normalized, those of its
    `sentences` concatenated."""
    alternatives: tuple[Alternative, ...] = ()
    """The n-best translations including this one, best first; empty unless more than one was requested.

    They are ordered by the search, or by utility with `mbr`. No two have the same text, so there may be fewer than
    requested; with sampling, every sample drawn is listed. For a line that was split, they combine the alternatives of
    its sentences: first the best of each, then combinations by the sum of their ranks, the more probable first.
    """
    source_truncated: bool = False
    """Whether the source, or a sentence of it, was longer than `decode.max_input_tokens`, so that only its beginning
    was translated."""
    output_truncated: bool = False
    """Whether the translation, or that of a sentence, was ended by the length limit (`decode.extra_length`, or the last
    position of the model) or as a repetition loop (`decode.end_loops`), not by the model."""
    sentences: tuple[Translation, ...] = ()
    """The translations of its sentences in order, each with the line's language tag, if the line was split.

    If the line was normalized (`decode.familiar`), the translation of the normalized line. Empty if the line was
    translated unchanged.
    """
    utility: float | None = None
    """With `mbr`, the mean chrF of the text with all other samples as references, from 0 to 100; for a line that was
    split, the mean over its `sentences`. None otherwise, and for a blank line."""
    warnings: tuple[Flag, ...] = ()
    """What looks wrong with the translation or that of a sentence, each kind once; see `text.quality_flags`."""
    terms: tuple[TermUse, ...] | None = None
    """Each source term and its translation, in order; None if no terms were given."""
    memory: MemoryMatch | None = None
    """The translation memory match; None without a memory, or if nothing in it is similar enough."""

    alignment: tuple[Link, ...] | None = None
    """Word alignment: sorted pairs of source and target word numbers, counted from 0; None if not requested.

    A language tag of the source is not counted. `text.word_links.words_of` defines what a word is.
    """

    quality: float | None = None
    """The model's own estimate of its quality, from 0 to 1, see `translation.quality`.

    For a line that was split, it is the mean over its `sentences`, weighted by their length.
    0 for the source in place of a blank translation. None if not requested, and for what the model did not translate.
    """

    @property
    def truncated(self) -> bool:
        """Whether the source or the translation was cut."""
        return self.source_truncated or self.output_truncated

    def is_below(self, least: float) -> bool:
        """Return whether it has a quality, and that is below `least`."""
        return self.quality is not None and self.quality < least

    def left_out(self) -> Translation:
        """Return a blank translation of the same line, with the quality because of which this one is not used."""
        terms, alignment = None if self.terms is None else (), None if self.alignment is None else ()
        return Translation(self.source, "", None, (), quality=self.quality, terms=terms, alignment=alignment)

    @property
    def problems(self) -> dict[str, str]:
        """What to check, by kind with its detail, in the order of `PROBLEMS`.

        That is the `warnings`, what was cut, and terms that are missing or met at a price.
        """
        problems = {flag.kind: flag.detail for flag in self.warnings}
        problems |= {kind: "" for kind in ("source_truncated", "output_truncated") if getattr(self, kind)}
        missed = [f"{use.source} -> {use.target}" for use in self.terms or () if not use.form]
        costly = [use for use in self.terms or () if use.reason == COSTLY]
        missed += [f"{use.source} -> {use.form} at a price (without it: {use.without})" for use in costly]
        if missed:
            problems[MISSED_TERMS] = ", ".join(missed)
        return {kind: problems[kind] for kind in PROBLEMS if kind in problems}

    @property
    def score_per_token(self) -> float | None:
        """The log-probability per token, in nats, counting the end token of each sentence; None without a score.

        The nearer to 0, the more confident the model.
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
    marker: str = "",
    in_capitals: bool = False,
    read: tuple[str, Sequence[str]] | None = None,
) -> Translation:
    """Join the translations of a line's sentences, or of its normalized form, into the translation of the line.

    Args:
        source: The line.
        sentences: Translations of its sentences.
        gaps: White space between the source sentences, as in `CutLine`.
        num_best: Maximum number of alternatives.
        are_samples: The alternatives are samples: the i-th of every sentence form one sample of the line, unranked.
        one_line: Replace line ends between sentences by spaces.
        marker: List marker at the beginning of the line, which is in none of its sentences.
        in_capitals: Convert the texts to capitals.
        read: The line and its sentences as the model read them, without a language tag; required if they are aligned.
    """
    if one_line:
        gaps = list(map(on_one_line, gaps))
    choices = [
        sentence.alternatives or (Alternative(sentence.text, sentence.score, sentence.utility),)
        for sentence in sentences
    ]
    rows = list(zip(*choices, strict=True)) if are_samples else best_combinations(choices, num_best)
    joined = [
        Alternative(join_sentences([part.text for part in row], gaps), _total(row), _mean_utility(row)) for row in rows
    ]
    alignment = None
    if read is not None and (links := [sentence.alignment for sentence in sentences if sentence.alignment is not None]):
        texts = [sentence.text for sentence in sentences]
        alignment = tuple(joined_links(links, read[1], texts, read[0], joined[0].text))
    terms = [term for sentence in sentences for term in sentence.terms or ()]
    if marker:
        alignment = None if alignment is None else _behind(marker, alignment)
    if in_capitals:
        joined = [replace(alternative, text=_in_capitals(alternative.text)) for alternative in joined]
        terms = [replace(term, source=_in_capitals(term.source), form=_in_capitals(term.form)) for term in terms]
    joined = [replace(alternative, text=marker + alternative.text) for alternative in joined] if marker else joined
    if not are_samples:
        first: dict[str, Alternative] = {}
        for alternative in joined:
            first.setdefault(alternative.text, alternative)
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
        quality=mean_quality(sentences),
        alignment=alignment,
        terms=None if all(sentence.terms is None for sentence in sentences) else tuple(terms),
    )


def _behind(marker: str, alignment: Iterable[Link]) -> tuple[Link, ...]:
    """Return the links of a line with a list marker from those of the line without it; its words are linked too."""
    own = len(words_of(marker))
    return (*((word, word) for word in range(own)), *((left + own, right + own) for left, right in alignment))


def _in_capitals(text: str) -> str:
    return change_words(text, str.upper)


def best_combinations(choices: Sequence[Sequence[Alternative]], count: int) -> list[tuple[Alternative, ...]]:
    """Return the best combinations of one choice from each group, by the sum of their ranks, then by probability.

    Args:
        choices: Translations of each sentence of a line, best first.
        count: Maximum number of combinations.
    """
    best: list[tuple[int, float, tuple[Alternative, ...]]] = [(0, 0.0, ())]
    for group in choices:
        # Both sums can only grow by adding a choice, so a combination outside the best so far cannot return.
        longer = [
            (places + place, cost - (alternative.score or 0.0), (*chosen, alternative))
            for places, cost, chosen in best
            for place, alternative in enumerate(group)
        ]
        best = heapq.nsmallest(count, longer, key=itemgetter(0, 1))
    return [chosen for _, _, chosen in best]


def _num_tokens(translation: Translation) -> int:
    """Return the number of scored tokens, counting the end token of each sentence."""
    return sum(map(_num_tokens, translation.sentences)) or len(translation.tokens) + 1


def _mean_utility(row: Sequence[Alternative]) -> float | None:
    known = [alternative.utility for alternative in row if alternative.utility is not None]
    return sum(known) / len(known) if known else None


def mean_quality(sentences: Sequence[Translation]) -> float | None:
    """Return the quality of translations together, weighted by the lengths of their sources; None if none has any."""
    known = [(len(sentence.source), sentence.quality) for sentence in sentences if sentence.quality is not None]
    total = sum(length for length, _ in known)
    return sum(length * quality for length, quality in known) / total if total else None


def _total(row: Sequence[Alternative]) -> float | None:
    scores = [alternative.score for alternative in row if alternative.score is not None]
    return sum(scores) if len(scores) == len(row) else None


def translation_object(translation: Translation) -> dict[str, object]:
    """Return a translation as a JSON object; its score is null if it is not the model's text."""
    return {
        "source": translation.source,
        **_text_fields(translation),
        **_quality_field(translation),
        "tokens": translation.tokens,
        **({} if translation.alignment is None else {"alignment": translation.alignment}),
        "alternatives": [_text_fields(alternative) for alternative in translation.alternatives],
        "truncated": translation.truncated,
        "source_truncated": translation.source_truncated,
        "output_truncated": translation.output_truncated,
        "sentences": [
            {"source": sentence.source, **_text_fields(sentence), **_quality_field(sentence), **_memory_field(sentence)}
            for sentence in translation.sentences
        ],
        "warnings": [flag.kind for flag in translation.warnings],
        "warning_details": {flag.kind: flag.detail for flag in translation.warnings},
        # Only with --terms or --memory:
        **({} if translation.terms is None else {"terms": [asdict(use) for use in translation.terms]}),
        **_memory_field(translation),
    }


def _quality_field(translation: Translation) -> dict[str, object]:
    return {} if translation.quality is None else {"quality": round(translation.quality, 4)}


def _memory_field(translation: Translation) -> dict[str, object]:
    if (match := translation.memory) is None:
        return {}
    values = {name: getattr(match, name) for name in ("source", "target", "similarity", "is_reused")}
    return {"memory": values if match.repaired is None else {**values, "repaired": match.repaired}}


def json_line(value: object) -> str:
    r"""Return a value as JSON on one line, whichever characters a reader treats as line ends.

    >>> json_line({"text": "é\u2028"})
    '{"text": "é\\u2028"}'
    """
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def digits(score: float | None) -> str:
    """Return a score with the number of digits that `clearhead score` prints; `nan` for a text without one."""
    return f"{math.nan if score is None else score:.6f}"


def _text_fields(result: Translation | Alternative) -> dict[str, object]:
    """Return a text and its score, with its utility only with --mbr."""
    score = None if result.score is None else float(digits(result.score))
    fields: dict[str, object] = {"text": result.text, "score": score}
    return fields if result.utility is None else {**fields, "utility": round(result.utility, 4)}

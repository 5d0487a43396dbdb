"""Translation memory: exact and fuzzy matches in existing translations, and reuse of exact ones for lines.

Similarity is counted in words, as in translators' tools: 1 minus the word edit distance (the fewest words replaced,
added or removed) divided by the number of words of the longer text. A punctuation mark, a symbol or a placeholder is a
word. Case matters; white space does not.

Two texts are at most as similar as the share of words that they have in common. So the words of a line are looked up in
an index, and only sources that share enough of them are compared.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple, Protocol, Self

import numpy as np

from clearhead.decoding.neighbours import NEAR
from clearhead.errors import ConfigError, DataError
from clearhead.text.lines import on_one_line
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import missing_placeholders
from clearhead.text.unicode_forms import normalized
from clearhead.translation.result import MemoryMatch, MemoryUse, Translation
from clearhead.translation.terminology import term_words

Matches = list[MemoryMatch]
Retrieve = Callable[[str], Sequence[MemoryMatch] | None]
"""A function that returns the entries of a memory that are most similar to a text, best first, such as
`TranslationMemory.nearest`."""


class Lookup(Protocol):
    """Looks texts up in a translation memory, such as `TranslationMemory.match`."""

    def __call__(self, text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        """Return the match of a text, if any.

        Args:
            text: A line, or a segment of a document.
            context: As in `DocumentSegment`; given only for a segment that has one.
        """


LEAST_SIMILARITY = 0.75
"""Minimum similarity of a match, unless another one is given."""

MOST_NEIGHBOURS = 7
"""Pairs that the model consults for a sentence, at most."""
POOL = 80
"""The pairs of which these are chosen: those with the most words of the text."""
LONGEST_SEQUENCE = 3
"""Words of the sequences that the chosen pairs shall share with the text, at most."""

MOST_WORDS = 2_000
"""Maximum words of a text for similar matches; longer ones match exactly alone: comparing takes quadratic time."""

MOST_USES = 100
"""Uses of a source that are compared with the neighbours of a segment: the last ones."""

_TOLERATED = 0.01
"""Share of a file's rows that may be defective."""
ROUNDING = 1e-9
"""Similarities that differ by less are equal."""


class Candidate(NamedTuple):
    """A source that may be similar, or is."""

    bound: float
    """Its similarity, at most or exactly."""
    number: int
    words: Sequence[int]
    """The numbers of its words."""


class TranslationMemory:
    """Sources with their translations.

    Args:
        pairs: Source and translation, and their context (as in `SentencePair`) if they have one; of equal sources in
            the same context the last translation is kept. Pairs with a blank side are left out.
    """

    def __init__(self, pairs: Iterable[tuple[str, str] | tuple[str, str, str | None]]) -> None:
        self._targets: dict[str, str] = {}
        """Translation of each source in NFC."""
        self._originals: dict[str, str] = {}
        """Sources as they were given."""
        self._in_context: dict[str, dict[str | None, str]] = {}
        """For each source with a context, its translations by context; also the one without."""
        self._uses: dict[str, deque[MemoryUse]] = {}
        """For each source with different translations, its last pairs in order."""
        order: list[tuple[str, str, str | None]] = []
        for source, target, *rest in pairs:
            if is_useful(source, target):
                key, target, context = comparable(source), target.strip(), rest[0] if rest else None
                self._originals[key] = source.strip()
                if self._targets.get(key, target) != target:
                    self._uses[key] = deque(maxlen=MOST_USES)
                self._add(key, target, context)
                order.append((key, target, context))
        around = [None, *(key for key, _, _ in order), None]
        for before, (key, target, context), after in zip(around, order, around[2:], strict=False):
            if key in self._uses:
                self._uses[key].append(MemoryUse(target, context, before, after))
        self._sources = list(self._targets)
        self._ids: dict[str, int] = {}
        self._words = [
            array("i", (self._ids.setdefault(word.text, len(self._ids)) for word in term_words(source)))
            for source in self._sources
        ]
        self._lengths = np.array(list(map(len, self._words)), dtype=np.int32)
        entries = [array("i") for _ in self._ids]
        for number, words in enumerate(self._words):
            for word in set(words):
                entries[word].append(number)
        self._entries = [np.array(numbers, dtype=np.int32) for numbers in entries]
        """Inverted index: the numbers of the sources that contain each word."""

    def _add(self, source: str, target: str, context: str | None) -> None:
        before, self._targets[source] = self._targets.get(source), target
        if context is not None or source in self._in_context:
            by_context = self._in_context.setdefault(source, {})
            if not by_context and before is not None:
                by_context[None] = before
            by_context[context] = target

    def __len__(self) -> int:
        return len(self._sources)

    @classmethod
    def load(cls, paths: Sequence[str], *, from_lang: str | None = None, to_lang: str | None = None) -> Self:
        """Read files of pairs: a `.tmx`, or any other format of `formats.READERS`.

        Args:
            paths: Files, directories or glob patterns.
            from_lang: Language of the sources in files that name languages.
            to_lang: Language of the translations.

        Raises:
            ConfigError: If a file has several languages and the arguments do not say which to take.
            DataError: If a file cannot be read, more than 1 % of its rows are not pairs, or no translation is found.
        """
        from clearhead.formats import Wanted, expand_paths, read_pairs

        pairs = read_pairs(expand_paths(paths), Wanted(from_lang=from_lang, to_lang=to_lang), tolerated=_TOLERATED)
        memory = cls((pair.source, pair.target, pair.context) for pair in pairs if pair.is_pair)
        if not len(memory):
            raise DataError(f"{', '.join(paths)}: no translation in it; a memory needs pairs of source and translation")
        return memory

    def match(self, text: str, /, least: float = LEAST_SIMILARITY, *, context: str | None = None) -> MemoryMatch | None:
        """Return the most similar entry, the last of equal ones; None if none is similar enough.

        A text of more than `MOST_WORDS` words has exact matches alone.

        Its translation is marked for reuse as in `exact`, if the match is exact.

        Args:
            text: A line.
            least: Minimum similarity, above 0.
            context: As in `exact`.

        Raises:
            ConfigError: If `least` is not above 0 and at most 1.
        """
        require_share(least)
        if (exact := self.exact(text, context=context)) is not None:
            return exact
        best = closest(*self._compared(comparable(text), least), least)
        return self._matches(best)[0] if best else None

    def nearest(self, text: str, /, count: int = MOST_NEIGHBOURS, least: float = NEAR) -> Matches:
        """Return similar entries, best first, an exact match among them, for `Translator.translate`.

        The first is the most similar entry. Each further one has most words and word sequences of the text
        that no earlier entry has.

        Args:
            text: A line, or a sentence.
            count: Maximum number of entries.
            least: Minimum similarity, above 0.
        """
        return self._matches(covering(*self._compared(comparable(text), least), least, count))

    def _matches(self, found: Iterable[Candidate]) -> Matches:
        matches = []
        for similarity, number, _ in found:
            key = self._sources[number]
            uses = tuple(self._uses.get(key, ()))
            matches.append(MemoryMatch(self._originals[key], self._targets[key], round(similarity, 4), uses=uses))
        return matches

    def exact(self, text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        """Return the entry whose source equals a text, apart from white space at its ends; None if there is none.

        Canonically equivalent texts are equal, such as an `ü` of one character and one of two.

        Its translation is marked for reuse if it has the placeholders of the text, and is that of its context, or the
        same in all contexts.

        Args:
            text: A line.
            context: Context of the text, as in `SentencePair`; the translation of the same context comes first.
        """
        key = comparable(text)
        target = self._targets.get(key)
        if target is None:
            return None
        by_context, uses = self._in_context.get(key, {}), tuple(self._uses.get(key, ()))
        return exact_match(text, self._originals[key], target, by_context, context, uses)

    def _compared(self, text: str, least: float) -> tuple[list[int], Iterable[Candidate]]:
        """Return the numbers of the words of a text, and what it is compared with."""
        unknown = len(self._ids)
        words = [self._ids.get(word.text, unknown) for word in term_words(text)]
        if not 0 < len(words) <= MOST_WORDS:
            return [], ()
        common = np.zeros(len(self), dtype=np.int32)
        for word, times in Counter(words).items():
            if word != unknown:
                common[self._entries[word]] += times
        bounds = np.minimum(common, self._lengths) / np.maximum(self._lengths, len(words))
        near = np.flatnonzero(bounds >= least - ROUNDING)
        nearest = near[np.lexsort((-near, -bounds[near]))].tolist()
        return words, (Candidate(bounds[number], number, self._words[number]) for number in nearest)


def require_share(least: float) -> None:
    """Check a minimum similarity.

    Raises:
        ConfigError: If it is not above 0 and at most 1.
    """
    if not 0.0 < least <= 1.0:
        raise ConfigError(f"the least similarity ({least}) must be above 0 and at most 1, such as 0.75")


def closest(words: Sequence[int], candidates: Iterable[Candidate], least: float, count: int = 1) -> list[Candidate]:
    """Return the most similar candidates with their similarity, best first; of equal ones the last number first.

    Args:
        words: The numbers of the words of a text.
        candidates: The candidates, those with the highest bounds first.
        least: Minimum similarity.
        count: Maximum number of candidates returned.
    """
    from rapidfuzz.distance import Levenshtein

    best: list[Candidate] = []
    for bound, number, others in candidates:
        to_beat = best[-1].bound if len(best) == count else least
        if len(best) == count and bound < to_beat:
            break
        longest = max(len(words), len(others))
        least_same = math.ceil((to_beat - ROUNDING) * longest)
        same = Levenshtein.similarity(words, others, score_cutoff=least_same)  # 0 below the cutoff
        if same >= least_same:
            best = sorted([*best, Candidate(same / longest, number, others)], reverse=True)[:count]
    return best


def covering(words: Sequence[int], candidates: Iterable[Candidate], least: float, count: int) -> list[Candidate]:
    """Return similar candidates that together share much with a text, as `closest` returns them.

    The first is the most similar candidate. Each further one, of the `POOL` with the highest bounds, has most words
    and word sequences of the text that no earlier candidate has (as Agrawal et al. 2023 choose examples); of equal ones
    it is the most similar.

    Args:
        words: As in `closest`, like the next two.
        candidates: The candidates.
        least: Minimum similarity.
        count: Maximum number of candidates returned.
    """
    pool = [*islice(candidates := iter(candidates), POOL)]
    chosen = closest(words, chain(pool, candidates), least)
    if not chosen or count <= 1:
        return chosen[:count]
    left = [candidate for candidate in closest(words, pool, least, POOL) if candidate.number != chosen[0].number]
    missing = _sequences(words) - _sequences(chosen[0].words)
    shared = {candidate.number: _sequences(candidate.words) & missing for candidate in left}
    while left and len(chosen) < count:
        best = max(left, key=lambda candidate: len(shared[candidate.number] & missing))
        chosen.append(best)
        left.remove(best)
        missing -= shared[best.number]
    return sorted(chosen, reverse=True)


def _sequences(words: Sequence[int]) -> set[tuple[int, ...]]:
    lengths = range(1, LONGEST_SEQUENCE + 1)
    return {tuple(words[start : start + length]) for length in lengths for start in range(len(words) - length + 1)}


def exact_match(
    text: str,
    source: str,
    last: str,
    by_context: Mapping[str | None, str],
    context: str | None,
    uses: tuple[MemoryUse, ...],
) -> MemoryMatch:
    """Return the match of a text that is in the memory.

    Args:
        text: The text.
        source: The source in the memory.
        last: Its last translation.
        by_context: Its last translation in each context; empty if it has none.
        context: Context of the text, whose translation comes first.
        uses: Where the memory has the source.
    """
    is_clear = context in by_context or len({*by_context.values()}) < 2
    target = by_context.get(context, last)
    return MemoryMatch(source, target, 1.0, is_reused=is_clear and fits(text, target), uses=uses)


def comparable(text: str) -> str:
    """Return a source as it is compared: in NFC, without white space at its ends."""
    return normalized(text.strip())


def is_useful(source: str, target: str) -> bool:
    """Return whether a memory keeps a pair: it has a source, and a translation that is not blank unless its source is.

    Args:
        source: The source.
        target: The translation.
    """
    return bool(source.strip()) and (not is_blank(target) or is_blank(source))


def fits(source: str, target: str) -> bool:
    """Return whether a translation has the placeholders of a source, and no others."""
    return not (missing_placeholders(source, target) or missing_placeholders(target, source))


def in_place(line: str, match: MemoryMatch, context: str | None, around: tuple[str | None, str | None]) -> MemoryMatch:
    """Return a match with the translation that its source has between the same neighbours, if there is exactly one.

    Args:
        line: The line.
        match: Its match.
        context: Its context; where the memory has the source in this context, its other uses do not count.
        around: The texts before and behind the line; None at the ends.
    """
    keys = [None if text is None else comparable(text) for text in around]
    uses = [use for use in match.uses if use.context == context] or match.uses
    shared = [sum(own is not None and own == key for own, key in zip(use[2:], keys, strict=True)) for use in uses]
    targets = {use.target for use, number in zip(uses, shared, strict=True) if number and number == max(shared)}
    if len(targets) != 1:
        return match
    (target,) = targets
    is_exact = comparable(line) == comparable(match.source)
    return replace(match, target=target, is_reused=is_exact and fits(line, target))


def match_of(
    memory: Lookup, line: str, context: str | None = None, around: tuple[str | None, str | None] = (None, None)
) -> MemoryMatch | None:
    """Return the match of a line; None without one, or if its translation alone is blank.

    Args:
        memory: Looks the line up.
        line: A line, or a segment of a document.
        context: Its context, as in `Lookup`.
        around: The segments before and behind it, as for `in_place`.
    """
    match = memory(line) if context is None else memory(line, context=context)
    match = match and in_place(line, match, context, around)
    return None if match and is_blank(match.target) and not is_blank(line) else match


def matches_of(memory: Lookup | None, lines: Sequence[str]) -> dict[int, MemoryMatch]:
    """Return the matches of lines by their index; none without a memory."""
    matches = {} if memory is None else {number: match_of(memory, line) for number, line in enumerate(lines)}
    return {number: match for number, match in matches.items() if match is not None}


def left_to_translate(lines: Sequence[str], matches: Mapping[int, MemoryMatch]) -> list[str]:
    """Return lines with blank ones in place of those whose memory translation is reused.

    Args:
        lines: Source lines.
        matches: Their matches, from `matches_of`.
    """
    reused = {number for number, match in matches.items() if match.is_reused}
    return ["" if number in reused else line for number, line in enumerate(lines)]


def recalled(
    lines: Sequence[str],
    matches: Mapping[int, MemoryMatch],
    translations: Sequence[Translation],
    *,
    one_line: bool = False,
) -> list[Translation]:
    """Return translations with their memory matches attached, and replaced by the match where it is reused.

    Args:
        lines: Source lines.
        matches: Their matches, from `matches_of`.
        translations: The model's translations; those of lines reused without the model are blank.
        one_line: Replace line ends in translations by spaces.
    """
    merged = list(translations)
    for number, match in matches.items():
        translation = replace(translations[number], memory=match)
        if match.is_reused:
            text = on_one_line(match.reused) if one_line else match.reused
            terms, alignment = (None if own is None else () for own in (translation.terms, translation.alignment))
            translation = Translation(
                lines[number], text, None, (), warnings=match.flags, terms=terms, memory=match, alignment=alignment
            )
        merged[number] = translation
    return merged

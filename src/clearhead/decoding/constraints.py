"""What a translation must contain: one form of every term that its source has, in tokens.

A form counts at the borders of words alone: `Hund` is not in `Hundehütte`. Found forms do not overlap; of several that
begin at the same place the longest counts, and each stands for one term.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

__all__ = ["ANOTHER_WORD", "SAME_WORD", "Progress", "Required", "RequiredTerm", "Spelling", "WordEdges"]

Spelling = tuple[int, ...]
"""A form in tokens."""

ANOTHER_WORD, SAME_WORD = -1, -2
"""Stand for any token that is in no form: one that begins another word, and one that goes on with a word. Two less
stands for one that does not end in a word."""
_NO_WORD = ANOTHER_WORD - 2


@dataclass(frozen=True, slots=True)
class WordEdges:
    """Where words begin and end, of each token of a vocabulary."""

    continues: Bool[np.ndarray, " V"]
    """Whether it goes on with the word that the token before it ends in."""
    ends_in_word: Bool[np.ndarray, " V"]
    """Whether its last character is in a word."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far a translation that is not finished has come: a state of `Required`."""

    met: frozenset[int]
    """Numbers of the terms that are met, whatever comes."""
    tail: Spelling
    """The last tokens, from the first on that may begin a form."""
    before: int | None
    """What stands before them: another word, none, or at the beginning of all nothing."""
    remaining: int
    """Tokens that are still to come, at least."""
    next_tokens: tuple[int, ...]
    """Those that begin a form of a term that is missing, or go on with one that has begun."""
    then: dict[int, Progress] = field(default_factory=dict)
    """The states that tokens lead to, as far as they are known."""


@dataclass(frozen=True, slots=True)
class RequiredTerm:
    """The forms of which a translation must contain one, each as often as it may be spelled otherwise."""

    first: tuple[Spelling, ...]
    """To begin a translation with."""
    later: tuple[Spelling, ...]
    """Behind other words; at least one."""
    others: tuple[Spelling, ...] = ()
    """That count, but are never brought up: behind a bracket, or with a capital letter."""

    @property
    def spellings(self) -> frozenset[Spelling]:
        """All of them."""
        return frozenset((*self.first, *self.later, *self.others))


class Required:
    """The terms of a sentence: an automaton that reads translations, whose states are made when first reached.

    Args:
        terms: One for each term of the source.
        edges: Of the vocabulary.
        given: Tokens that every translation begins with, which are no text.
    """

    def __init__(self, terms: Sequence[RequiredTerm], edges: WordEdges, given: int = 0) -> None:
        self.terms = terms
        self.edges = edges
        self._given = given
        self._shortest = [min(map(len, term.later)) for term in terms]
        self.num_tokens = sum(self._shortest)
        """Tokens that the shortest forms of all terms have together."""
        # The longest first; of equal ones that of the term that has fewest others.
        order = sorted(
            (-len(spelling), len(term.spellings), number, spelling)
            for number, term in enumerate(terms)
            for spelling in term.spellings
        )
        self._by_first: dict[int, list[tuple[int, Spelling]]] = {}
        for _, _, number, spelling in order:
            self._by_first.setdefault(spelling[0], []).append((number, spelling))
        self.tokens = frozenset(token for *_, spelling in order for token in spelling)
        """All that stand in a form."""
        self._states: dict[tuple[frozenset[int], Spelling, int | None], Progress] = {}
        self.beginning = self._state(frozenset(), (), None)
        """Before anything is written."""

    def progress(self, written: Sequence[int]) -> Progress:
        """Return how far a translation has come.

        Args:
            written: Target ids, without the end.
        """
        found = self.beginning
        for token in written[self._given :]:
            found = self.after(found, token)
        return found

    def after(self, progress: Progress, token: int) -> Progress:
        """Return how far a translation has come when it goes on with a token."""
        if token not in self.tokens and token >= 0:  # all others are alike, but for the edges of words
            ends, goes_on = self.edges.ends_in_word[token], self.edges.continues[token]
            token = (SAME_WORD if goes_on else ANOTHER_WORD) - 2 * int(not ends)
        found = progress.then.get(token)
        if found is None:
            progress.then[token] = found = self._read(progress, token)
        return found

    def _read(self, progress: Progress, token: int) -> Progress:
        tokens, before, met = (*progress.tail, token), progress.before, set(progress.met)
        place = 0
        while place < len(tokens):
            spelling_found = next(self._forms_at(tokens, place, before, met), None)
            if self._is_open(tokens, place, before, met) or (
                spelling_found is not None and place + len(spelling_found[1]) == len(tokens)
            ):
                break
            if spelling_found is not None:
                met.add(spelling_found[0])
            place += 1 if spelling_found is None else len(spelling_found[1])
        return self._state(frozenset(met), tokens[place:], tokens[place - 1] if place else before)

    def _state(self, met: frozenset[int], tail: Spelling, before: int | None) -> Progress:
        """Return the state in which some terms are met, and the last tokens may be those of a form.

        Args:
            met: Numbers of the terms that are met, whatever comes.
            tail: The last tokens, from the first on that may begin a form.
            before: The token before them, of which only counts how it ends; None at the beginning.
        """
        before = before if before is None else (ANOTHER_WORD if self._ends_in_word(before) else _NO_WORD)
        key = (met, tail, before)
        if key not in self._states:
            self._states[key] = Progress(met, tail, before, *self._outlook(met, tail, before))
        return self._states[key]

    def _outlook(self, met: frozenset[int], tail: Spelling, before: int | None) -> tuple[int, tuple[int, ...]]:
        """Return how many tokens are still to come at least, and which may be next; see `Progress`."""
        found, place, end = set(met), 0, 0
        while place < len(tail):
            number, spelling = next(self._forms_at(tail, place, before, found), (None, tail[place : place + 1]))
            place += len(spelling)
            if number is not None:
                found.add(number)
                end = place
        missing = [number for number in range(len(self.terms)) if number not in found]
        remaining = least = sum(self._shortest[number] for number in missing)
        is_first = before is None and not tail
        next_tokens = {
            spelling[0]
            for number in missing
            for spelling in (self.terms[number].first if is_first else self.terms[number].later)
            if self._may_begin(tail, len(tail), before, spelling)
        }
        for start in range(end, len(tail)):
            begun = len(tail) - start
            for number, spelling in self._begun_at(tail, start, before, found):
                next_tokens.add(spelling[begun])
                least = min(least, remaining - self._shortest[number] + len(spelling) - begun)
        return least, tuple(sorted(next_tokens))

    def _forms_at(
        self, tokens: Spelling, place: int, before: int | None, met: Collection[int]
    ) -> Iterator[tuple[int, Spelling]]:
        """Yield the whole forms of terms that are not met that stand at a place, the best first."""
        for number, spelling in self._by_first.get(tokens[place], ()):
            behind = place + len(spelling)
            if (
                number not in met
                and tokens[place:behind] == spelling
                and self._may_begin(tokens, place, before, spelling)
                and (behind == len(tokens) or self._are_between(spelling[-1], tokens[behind]))
            ):
                yield number, spelling

    def _begun_at(
        self, tokens: Spelling, place: int, before: int | None, met: Collection[int]
    ) -> Iterator[tuple[int, Spelling]]:
        """Yield the forms of terms that are not met of which all tokens from a place on are the beginning."""
        begun = len(tokens) - place
        for number, spelling in self._by_first.get(tokens[place], ()):
            if (
                number not in met
                and begun < len(spelling)
                and spelling[:begun] == tokens[place:]
                and self._may_begin(tokens, place, before, spelling)
            ):
                yield number, spelling

    def _is_open(self, tokens: Spelling, place: int, before: int | None, met: Collection[int]) -> bool:
        return next(self._begun_at(tokens, place, before, met), None) is not None

    def _may_begin(self, tokens: Spelling, place: int, before: int | None, spelling: Spelling) -> bool:
        last = tokens[place - 1] if place else before
        return last is None or self._are_between(last, spelling[0])

    def _are_between(self, before: int, after: int) -> bool:
        """Tell whether a word ends or begins between two tokens."""
        return not (self._ends_in_word(before) and self._continues(after))

    def _ends_in_word(self, token: int) -> bool:
        return bool(self.edges.ends_in_word[token]) if token >= 0 else token in (ANOTHER_WORD, SAME_WORD)

    def _continues(self, token: int) -> bool:
        return bool(self.edges.continues[token]) if token >= 0 else token in (SAME_WORD, SAME_WORD - 2)

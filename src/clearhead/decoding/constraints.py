"""Required terms as a finite automaton over target tokens: found terms, missing tokens, possible next tokens.

For every term of its source, a translation must contain one of the term's token sequences. A term counts only at word
boundaries: `Hund` is not in `Hundehütte`. Matches do not overlap. Of several that begin at the same position the
longest counts, and each match satisfies one term.

Shapes: V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool

TokenSequence = tuple[int, ...]
"""The tokens of one way to write a term."""

ANOTHER_WORD, SAME_WORD = -1, -2
"""Represent any token that is in no term: one that begins a new word, and one that continues a word.

Minus 2, they represent such a token that does not end inside a word.
"""
_NO_WORD = ANOTHER_WORD - 2


@dataclass(frozen=True, slots=True)
class WordEdges:
    """Word boundaries of each token of a vocabulary."""

    continues: Bool[np.ndarray, " V"]
    """Whether the token continues the word in which the previous token ends."""
    ends_in_word: Bool[np.ndarray, " V"]
    """Whether the last character of the token is part of a word."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """A state of the automaton `Required`: the required terms found so far in an unfinished translation."""

    met: frozenset[int]
    """Indices of the terms that are satisfied, whatever tokens follow."""
    tail: TokenSequence
    """The last tokens, from the first one that may begin a term."""
    before: int | None
    """The token before `tail`, reduced to whether it ends in a word; None at the beginning of the translation."""
    remaining: int
    """Minimum number of required tokens still missing."""
    next_tokens: tuple[int, ...]
    """Tokens that begin a missing term, or continue one that has begun."""
    then: dict[int, Progress] = field(default_factory=dict)
    """Cached transitions: the next state for each token."""


@dataclass(frozen=True, slots=True)
class RequiredTerm:
    """The token sequences of a term, of which a translation must contain one; one form may have several."""

    first: tuple[TokenSequence, ...]
    """Sequences at the beginning of a translation."""
    later: tuple[TokenSequence, ...]
    """Sequences after other words; at least one."""
    others: tuple[TokenSequence, ...] = ()
    """Sequences that count if found, but that the search never proposes: after a bracket, or capitalized."""
    num_forms: int = 1
    """Number of the term's forms; a form has several sequences, and those that the vocabulary lacks have none."""

    @property
    def sequences(self) -> frozenset[TokenSequence]:
        """All token sequences of the term."""
        return frozenset((*self.first, *self.later, *self.others))


class Required:
    """The required terms of a sentence, as a lazily built finite automaton over target tokens.

    Args:
        terms: One for each term of the source.
        edges: Word boundaries of the vocabulary.
        given: Number of tokens at the beginning of every translation that are not text.
    """

    def __init__(self, terms: Sequence[RequiredTerm], edges: WordEdges, given: int = 0) -> None:
        self.terms = terms
        self.edges = edges
        self._given = given
        self._shortest = [min(map(len, term.later)) for term in terms]
        self.num_tokens = sum(self._shortest)
        """Total number of tokens in the shortest sequences of all terms."""
        numbers: dict[int, list[int]] = {}
        for number, term in enumerate(terms):
            numbers.setdefault(id(term), []).append(number)
        self._numbers = list(numbers.values())
        """Indices of the occurrences of each term; the first are satisfied first."""
        self._by_first: dict[int, list[tuple[list[int], TokenSequence]]] = {}
        for own in self._numbers:
            for sequence in terms[own[0]].sequences:
                self._by_first.setdefault(sequence[0], []).append((own, sequence))
        self.tokens = frozenset(
            token for begun in self._by_first.values() for _, sequence in begun for token in sequence
        )
        """All tokens that occur in a term."""
        self._states: dict[tuple[frozenset[int], TokenSequence, int | None], Progress] = {}
        self.beginning = self._state(frozenset(), (), None)
        """The state before the first target token."""

    def progress(self, written: Sequence[int]) -> Progress:
        """Return the automaton state after some target tokens.

        Args:
            written: Target ids, without the end token.
        """
        state = self.beginning
        for token in written[self._given :]:
            state = self.after(state, token)
        return state

    def after(self, progress: Progress, token: int) -> Progress:
        """Return the state that follows when a token is written."""
        if token not in self.tokens and token >= 0:  # tokens in no term differ only in their word edges
            ends, goes_on = self.edges.ends_in_word[token], self.edges.continues[token]
            token = (SAME_WORD if goes_on else ANOTHER_WORD) - 2 * int(not ends)
        state = progress.then.get(token)
        if state is None:
            progress.then[token] = state = self._read(progress, token)
        return state

    def _read(self, progress: Progress, token: int) -> Progress:
        tokens, before, met = (*progress.tail, token), progress.before, set(progress.met)
        place = 0
        while place < len(tokens):
            sequence_found = self._form_at(tokens, place, before, met)
            if self._is_open(tokens, place, before, met) or (
                sequence_found is not None and place + len(sequence_found[1]) == len(tokens)
            ):
                break
            if sequence_found is not None:
                met.add(sequence_found[0])
            place += 1 if sequence_found is None else len(sequence_found[1])
        return self._state(frozenset(met), tokens[place:], tokens[place - 1] if place else before)

    def _state(self, met: frozenset[int], tail: TokenSequence, before: int | None) -> Progress:
        """Return the state with the given satisfied terms and unresolved last tokens.

        Args:
            met: Indices of the terms that are satisfied, whatever tokens follow.
            tail: The last tokens, from the first one that may begin a term.
            before: The token before them, of which only its word edge counts; None at the beginning.
        """
        before = before if before is None else (ANOTHER_WORD if self._ends_in_word(before) else _NO_WORD)
        key = (met, tail, before)
        if key not in self._states:
            self._states[key] = Progress(met, tail, before, *self._outlook(met, tail, before))
        return self._states[key]

    def _outlook(self, met: frozenset[int], tail: TokenSequence, before: int | None) -> tuple[int, tuple[int, ...]]:
        """Return `remaining` and `next_tokens` of a state; see `Progress`."""
        satisfied, place, next_tokens = set(met), 0, set[int]()
        remaining = least = sum(tokens for number, tokens in enumerate(self._shortest) if number not in met)
        while place < len(tail):
            # A sequence that is continued counts instead of shorter ones within it, so before those are found.
            for number, sequence in self._begun_at(tail, place, before, satisfied):
                rest = sequence[len(tail) - place :]
                next_tokens.add(rest[0])
                least = min(least, remaining - self._shortest[number] + len(rest))
            form = self._form_at(tail, place, before, satisfied)
            if form is not None:
                satisfied.add(form[0])
                remaining -= self._shortest[form[0]]
            place += 1 if form is None else len(form[1])
        is_first = before is None and not tail
        next_tokens |= {
            sequence[0]
            for numbers in self._numbers
            if (missing := _first_missing(numbers, satisfied)) is not None
            for sequence in (self.terms[missing].first if is_first else self.terms[missing].later)
            if self._may_begin(tail, len(tail), before, sequence)
        }
        return min(least, remaining), tuple(sorted(next_tokens))

    def _form_at(
        self, tokens: TokenSequence, place: int, before: int | None, met: Collection[int]
    ) -> tuple[int, TokenSequence] | None:
        """Return the term and the complete sequence that counts at a position, if any; see `precedence`."""
        matches = []
        for numbers, sequence in self._by_first.get(tokens[place], ()):
            behind = place + len(sequence)
            if (
                tokens[place:behind] == sequence
                and (number := _first_missing(numbers, met)) is not None
                and self._may_begin(tokens, place, before, sequence)
                and (behind == len(tokens) or self._are_between(sequence[-1], tokens[behind]))
            ):
                matches.append((precedence(len(sequence), self.terms[number].num_forms, number), number, sequence))
        return min(matches)[1:] if matches else None

    def _begun_at(
        self, tokens: TokenSequence, place: int, before: int | None, met: Collection[int]
    ) -> Iterator[tuple[int, TokenSequence]]:
        """Yield the sequences of unsatisfied terms that begin with all tokens from a position to the end."""
        begun = len(tokens) - place
        for numbers, sequence in self._by_first.get(tokens[place], ()):
            if (
                begun < len(sequence)
                and sequence[:begun] == tokens[place:]
                and (number := _first_missing(numbers, met)) is not None
                and self._may_begin(tokens, place, before, sequence)
            ):
                yield number, sequence

    def _is_open(self, tokens: TokenSequence, place: int, before: int | None, met: Collection[int]) -> bool:
        return next(self._begun_at(tokens, place, before, met), None) is not None

    def _may_begin(self, tokens: TokenSequence, place: int, before: int | None, sequence: TokenSequence) -> bool:
        last = tokens[place - 1] if place else before
        return last is None or self._are_between(last, sequence[0])

    def _are_between(self, before: int, after: int) -> bool:
        """Return whether there is a word boundary between two tokens."""
        return not (self._ends_in_word(before) and self._continues(after))

    def _ends_in_word(self, token: int) -> bool:
        return bool(self.edges.ends_in_word[token]) if token >= 0 else token in (ANOTHER_WORD, SAME_WORD)

    def _continues(self, token: int) -> bool:
        return bool(self.edges.continues[token]) if token >= 0 else token in (SAME_WORD, SAME_WORD - 2)


def precedence(length: int, num_forms: int, number: int) -> tuple[int, int, int]:
    """Return a sort key of the forms that match at the same position of a translation; the first one counts.

    The longest form comes first; among equal ones, that of the term with the fewest forms, then of the first term.

    Args:
        length: Length of the form, in tokens or words.
        num_forms: Number of forms of its term.
        number: Index of the term in the source.
    """
    return -length, num_forms, number


def _first_missing(numbers: Sequence[int], met: Collection[int]) -> int | None:
    """Return the first of a term's occurrences that is not satisfied; those before it all are."""
    place = bisect_left(numbers, True, key=lambda number: number not in met)
    return numbers[place] if place < len(numbers) else None

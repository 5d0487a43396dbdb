"""What a translation must contain: one form of every term that its source has, in tokens.

A form counts at the borders of words alone: `Hund` is not in `Hundehütte`. Found forms do not overlap; of several that
begin at the same place the longest counts, and each stands for one term.

Shapes: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

__all__ = ["ANOTHER_WORD", "SAME_WORD", "Progress", "Required", "RequiredTerm", "Spelling", "WordEdges"]

Spelling = tuple[int, ...]
"""A form in tokens."""

ANOTHER_WORD, SAME_WORD = -1, -2
"""Stand for any token that is in no form: one that begins a word or is none, and one that goes on with a word."""


@dataclass(frozen=True, slots=True)
class WordEdges:
    """Where words begin and end, of each token of a vocabulary."""

    continues: Bool[np.ndarray, " V"]
    """Whether it goes on with the word that the token before it ends in."""
    ends_in_word: Bool[np.ndarray, " V"]
    """Whether its last character is in a word."""

    def are_between(self, before: int, after: int) -> bool:
        """Tell whether a word ends or begins between two tokens."""
        is_same = after == SAME_WORD or (after >= 0 and self.continues[after])
        return not (is_same and self.ends_in_word[before])


class Progress(NamedTuple):
    """How far a translation that is not finished has come."""

    remaining: int
    """Tokens that are still to come, at least."""
    next_tokens: tuple[int, ...]
    """Those that begin a form of a term that is missing, or go on with one that has begun."""


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
    """The terms of a sentence.

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
        self._longest = -order[0][0]
        self._known: dict[tuple[int, ...], Progress] = {}

    def progress(self, written: Sequence[int]) -> Progress:
        """Return how far a translation has come.

        Args:
            written: Target ids, without the end.
        """
        tokens = tuple(written)
        found = self._known.get(tokens)
        if found is None:
            self._known[tokens] = found = self._progress(tokens)
        return found

    def _progress(self, tokens: tuple[int, ...]) -> Progress:
        met, end = self._met(tokens)
        missing = [number for number in range(len(self.terms)) if number not in met]
        remaining = least = sum(self._shortest[number] for number in missing)
        is_first = len(tokens) <= self._given
        next_tokens = {
            spelling[0]
            for number in missing
            for spelling in (self.terms[number].first if is_first else self.terms[number].later)
            if self._may_begin(tokens, len(tokens), spelling)
        }
        for start in range(max(end, len(tokens) - self._longest + 1), len(tokens)):
            begun = len(tokens) - start
            for number, spelling in self._by_first.get(tokens[start], ()):
                if (
                    number not in met
                    and begun < len(spelling)
                    and spelling[:begun] == tokens[start:]
                    and self._may_begin(tokens, start, spelling)
                ):
                    next_tokens.add(spelling[begun])
                    least = min(least, remaining - self._shortest[number] + len(spelling) - begun)
        return Progress(least, tuple(sorted(next_tokens)))

    def _met(self, tokens: tuple[int, ...]) -> tuple[set[int], int]:
        """Return the terms that are met, and where the last form ends."""
        met: set[int] = set()
        place = end = 0
        while place < len(tokens):
            for number, spelling in self._by_first.get(tokens[place], ()):
                behind = place + len(spelling)
                if (
                    number not in met
                    and tokens[place:behind] == spelling
                    and self._may_begin(tokens, place, spelling)
                    and (behind == len(tokens) or self.edges.are_between(spelling[-1], tokens[behind]))
                ):
                    met.add(number)
                    end = behind
                    break
            place = max(place + 1, end)
        return met, end

    def _may_begin(self, tokens: tuple[int, ...], place: int, spelling: Spelling) -> bool:
        """Tell whether a form may begin behind so many tokens."""
        return place <= self._given or self.edges.are_between(tokens[place - 1], spelling[0])

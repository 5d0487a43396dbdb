"""A sentence to translate, in tokens, and what its translation must begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.decoding.constraints import Required
from clearhead.decoding.repetition import most_times
from clearhead.runtime.lazy import cached_property

__all__ = ["NO_PREFIX", "Prefix", "Sentence", "given_prefix", "sentences_of"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The text that a translation must begin with; see `allowed`."""

    tokens: tuple[int, ...]
    """As the tokenizer spells it."""
    completions: tuple[tuple[int, ...], ...]
    """For each of them, the tokens whose text begins with all of the prefix from there on."""
    given: int = 0
    """How many of them, the first, are no text but told to the model, such as the language to write: they cost
    nothing."""


NO_PREFIX = Prefix((), ())


def given_prefix(given: tuple[int, ...], prefix: Prefix = NO_PREFIX) -> Prefix:
    """Return what a translation begins with: what the model is told, then a prefix."""
    alone = tuple((token,) for token in given)
    return Prefix((*given, *prefix.tokens), (*alone, *prefix.completions), len(given)) if given else prefix


@dataclass(frozen=True)
class Sentence:
    """A sentence to search for."""

    number: int
    source: Sequence[int]
    """Source ids, ended by `eos_id`."""
    max_length: int
    """Most target tokens, the end token included; more than the prefix has."""
    prefix: Prefix = NO_PREFIX
    draws: range = range(0)
    """Which of its samples to draw; none is for a search."""
    required: Required | None = None
    """What its translation must contain; None is anything."""

    @cached_property
    def times_in_source(self) -> int:
        """How many times in a row any tokens of the source stand, at most."""
        return most_times(self.source)


def sentences_of(
    sources: Sequence[Sequence[int]],
    max_lengths: Sequence[int],
    prefixes: Sequence[Prefix] = (),
    required: Sequence[Required] = (),
) -> list[Sentence]:
    """Return sentences numbered as they are given.

    Args:
        sources: Source ids of each, ended by `eos_id`.
        max_lengths: Most target tokens of each.
        prefixes: What the translation of each begins with; none is given for none.
        required: What the translation of each must contain; none is given for none.
    """
    every: Sequence[Required | None] = required or [None] * len(sources)
    given = zip(sources, max_lengths, prefixes or [NO_PREFIX] * len(sources), every, strict=True)
    return [
        Sentence(number, source, most, prefix, required=forms)
        for number, (source, most, prefix, forms) in enumerate(given)
    ]

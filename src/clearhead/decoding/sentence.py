"""A sentence to translate, as tokens, and its forced target prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from clearhead.decoding.repetition import most_times
from clearhead.runtime.lazy import cached_property

if TYPE_CHECKING:
    from clearhead.decoding.constraints import Required


class Prefix(NamedTuple):
    """A forced target prefix; see `token_masks`."""

    tokens: tuple[int, ...]
    """The prefix as the tokenizer encodes it."""
    completions: tuple[tuple[int, ...], ...]
    """For each token, all tokens whose text begins with the rest of the prefix from there on."""
    given: int = 0
    """Number of leading tokens that are control tokens, not text, such as the target language; they cost nothing."""


NO_PREFIX = Prefix((), ())


def given_prefix(given: tuple[int, ...], prefix: Prefix = NO_PREFIX) -> Prefix:
    """Return a prefix with control tokens before its text."""
    alone = tuple((token,) for token in given)
    return Prefix((*given, *prefix.tokens), (*alone, *prefix.completions), len(given)) if given else prefix


@dataclass(frozen=True)
class Sentence:
    """One input of a search."""

    number: int
    source: Sequence[int]
    """Source ids, ended by `eos_id`."""
    max_length: int
    """Maximum target tokens, end token included; more than the prefix has."""
    prefix: Prefix = NO_PREFIX
    draws: range = range(0)
    """Numbers of the samples to draw; empty for a search."""
    required: Required | None = None
    """Required terms of the translation; None if there are none."""

    @cached_property
    def times_in_source(self) -> int:
        """Largest number of consecutive repetitions of any tokens in the source."""
        return most_times(self.source)


def sentences_of(
    sources: Sequence[Sequence[int]],
    max_lengths: Sequence[int],
    prefixes: Sequence[Prefix] = (),
    required: Sequence[Required] = (),
) -> list[Sentence]:
    """Return sentences, numbered in input order.

    Args:
        sources: Source ids of each sentence, ended by `eos_id`.
        max_lengths: Maximum target tokens of each sentence.
        prefixes: Forced target prefix of each sentence; empty if there are none.
        required: Required terms of each sentence; empty if there are none.
    """
    every: Sequence[Required | None] = required or [None] * len(sources)
    given = zip(sources, max_lengths, prefixes or [NO_PREFIX] * len(sources), every, strict=True)
    return [
        Sentence(number, source, most, prefix, required=forms)
        for number, (source, most, prefix, forms) in enumerate(given)
    ]

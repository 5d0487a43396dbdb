"""Examination of a batch of texts by itself: sizes, checks, and the features that are compared with other rows.

It needs no other batch, so several processes share the batches of a corpus. What depends on their order is in
`examination.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.data.clean import normalized_key
from clearhead.data.doctor.checks import Found, Usual, found_in
from clearhead.data.doctor.code_points import Sides, TextBatch, Texts
from clearhead.data.doctor.findings import NUM_EXAMPLES
from clearhead.data.doctor.misalignment import Rows
from clearhead.text.line_statistics import quantile

_SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}


class Lengths:
    """Lengths of some texts, in characters or words."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        """Number of texts by length."""

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Count the lengths of some texts."""
        values, counts = np.unique(lengths, return_counts=True)
        self.counts.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the sum of all lengths and some quantiles."""
        return {
            "total": sum(length * count for length, count in self.counts.items()),
            "shortest": min(self.counts, default=0),
            **{name: quantile(self.counts, share) for name, share in _SHARES.items()},
            "longest": max(self.counts, default=0),
        }


@dataclass
class SideStatistics:
    """Statistics of the texts of one side."""

    characters: Lengths = field(default_factory=Lengths)
    words: Lengths = field(default_factory=Lengths)
    """Words separated by white space."""
    letters: Counter[str] = field(default_factory=Counter)
    """Letters of each script."""

    @classmethod
    def of(cls, texts: Texts) -> SideStatistics:
        """Return the statistics of some texts."""
        own = cls(letters=texts.letters_by_script())
        own.characters.add(texts.lengths)
        own.words.add(texts.words)
        return own

    def add(self, other: SideStatistics) -> None:
        """Add the statistics of other texts."""
        self.characters.counts.update(other.characters.counts)
        self.words.counts.update(other.words.counts)
        self.letters.update(other.letters)

    def script_shares(self) -> dict[str, float]:
        """Return the share of each script among the letters, the largest first."""
        total = self.letters.total()
        return {
            name: count / total for name, count in sorted(self.letters.items(), key=lambda item: (-item[1], item[0]))
        }


class ExaminedBatch(NamedTuple):
    """What a batch of texts is found to be."""

    source: SideStatistics
    target: SideStatistics
    blank: NDArray[np.bool_]
    """Whether a side of each pair is blank."""
    places: dict[str, NDArray[np.int64]]
    """The affected pairs, by finding."""
    details: dict[str, list[str]]
    """Descriptions of the defects of the first of them, or of all."""
    rows: Rows | None
    """Features for the search for misaligned rows; None if they are not needed."""
    keys: Sides | None
    """Both sides as cleaning compares them with other splits; None if they are not needed."""

    def found(self) -> list[tuple[str, Found]]:
        """Return the findings, and the pairs that have them."""
        return [
            (name, Found(places, dict(zip(places.tolist(), self.details[name], strict=False)).__getitem__))
            for name, places in self.places.items()
        ]


@dataclass(frozen=True)
class BatchExaminer:
    """Examines batches; picklable, so that other processes can do it."""

    usual: Usual
    """What is usual in the corpus."""
    kinds: Collection[str]
    """The only findings that are looked for."""
    has_rows: bool
    """Whether to return features for the search for misaligned rows."""
    has_keys: bool
    """Whether to return keys for the search for pairs of other splits."""
    has_all_details: bool
    """Whether to describe every defect, not the examples alone."""

    def __call__(self, shard: tuple[Sides, bool]) -> ExaminedBatch:
        """Examine sources and targets; the flag says whether their meanings are compared."""
        sides, is_compared = shard
        return self.examined(TextBatch.of(sides), is_compared)

    def examined(self, texts: TextBatch, is_compared: bool) -> ExaminedBatch:
        """Examine a batch, and compare the meanings of its sides if that is asked for and possible."""
        usual = self.usual if is_compared else replace(self.usual, meaning="")
        meaning = None if isinstance(usual.meaning, str) else usual.meaning
        found = {name: pairs for name, pairs in found_in(texts, usual, self.kinds) if pairs.places.size}
        described = None if self.has_all_details else NUM_EXAMPLES
        return ExaminedBatch(
            SideStatistics.of(texts.source),
            SideStatistics.of(texts.target),
            texts.blank,
            {name: pairs.places for name, pairs in found.items()},
            {name: list(map(pairs.detail, pairs.places[:described].tolist())) for name, pairs in found.items()},
            Rows.of(texts, meaning) if self.has_rows else None,
            keys_of((texts.source.texts, texts.target.texts)) if self.has_keys else None,
        )


def keys_of(sides: Sides) -> Sides:
    """Return both sides as cleaning compares them with other splits."""
    sources, targets = ([normalized_key(text) for text in texts] for texts in sides)
    return sources, targets

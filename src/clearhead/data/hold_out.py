"""Validation split: hold out training pairs, without leakage into the training text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from clearhead.data.clean import CleaningReport, key_digest
from clearhead.errors import DataError
from clearhead.formats import SentencePair

# At most a tenth of the corpus is held out, and that must be at least one pair.
LEAST_PAIRS = 10


def side_keys(pair: SentencePair) -> tuple[bytes, bytes]:
    """Return the digests of both sides for leakage checks, language tags excluded."""
    return key_digest(pair.text), key_digest(pair.target)


def choose_rows(num_pairs: int, valid_size: int, *, seed: int, what: str = "") -> set[int]:
    """Choose the pairs to hold out: `valid_size`, but at most a tenth of all.

    Args:
        num_pairs: Number of pairs to choose from.
        valid_size: Number of pairs wanted.
        seed: Determines the choice, together with `num_pairs`.
        what: Name of the text for the error message, if it is not the training text.

    Returns:
        Their rows, counted from 0.

    Raises:
        DataError: If there are fewer than ten pairs.
    """
    if num_pairs < LEAST_PAIRS:
        advice = "give more of it"
        if not what:
            advice = "give more text, or validation files (--valid-source F --valid-target F, or --valid-pairs F)"
        raise DataError(
            f"the {what or 'corpus'} has {num_pairs} usable pairs, and {LEAST_PAIRS} are needed to hold some out for "
            f"validation; {advice}"
        )
    return set(drawn_rows(num_pairs, seed=seed)[: min(valid_size, num_pairs // LEAST_PAIRS)])


def drawn_rows(num_pairs: int, *, seed: int) -> list[int]:
    """Return all rows of a corpus, counted from 0, in a random order that depends on the seed and their number."""
    # NumPy guarantees that raw Philox output stays the same in every later version, unlike its shuffling.
    random = np.random.Philox(key=seed).random_raw(num_pairs)
    return np.argsort(random, kind="stable").tolist()


def without(
    pairs: Iterable[SentencePair], rows: set[int], valid: Iterable[SentencePair], *, report: CleaningReport
) -> Iterator[SentencePair]:
    """Yield the remaining training pairs; pairs that share a side with a held-out pair are dropped as leakage.

    Args:
        pairs: Cleaned pairs, counted as kept in `report`.
        rows: Rows of the held-out pairs.
        valid: The held-out pairs.
        report: Counts the pairs held out and dropped.
    """
    keys = {key for pair in valid for key in side_keys(pair)}
    for row, pair in enumerate(pairs):
        if row in rows:
            report.hold_out()
        elif keys.isdisjoint(side_keys(pair)):  # not stored: keys of all pairs fill memory
            yield pair
        else:
            report.drop_kept("leakage", pair.origin)

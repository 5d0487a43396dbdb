"""Setting pairs of the training text aside for validation, such that none of them can be learned by heart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from clearhead.data.clean import CleaningReport, key_digest
from clearhead.errors import DataError
from clearhead.formats import SentencePair

__all__ = ["choose_rows", "drawn_rows", "side_keys", "without"]

# A tenth of the corpus at most is held out, and that must be a pair at least.
LEAST_PAIRS = 10


def side_keys(pair: SentencePair) -> tuple[bytes, bytes]:
    """Return what stands for either side where leakage is looked for; a language tag is no part of it."""
    return key_digest(pair.text), key_digest(pair.target)


def choose_rows(num_pairs: int, valid_size: int, *, seed: int, what: str = "") -> set[int]:
    """Choose the pairs to hold out: `valid_size`, but at most a tenth of all.

    Args:
        num_pairs: Pairs to choose from.
        valid_size: Pairs wanted.
        seed: Decides, together with `num_pairs`, which ones.
        what: What text it is, if not the training text, for the message.

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
    """Return all rows of a corpus, counted from 0, in an order that the seed decides together with their number."""
    # Raw Philox output, unlike NumPy's shuffling, is promised to stay the same in every later version.
    random = np.random.Philox(key=seed).random_raw(num_pairs)
    return np.argsort(random, kind="stable").tolist()


def without(
    pairs: Iterable[SentencePair], rows: set[int], valid: Iterable[SentencePair], *, report: CleaningReport
) -> Iterator[SentencePair]:
    """Stream what is left to train on; pairs that share a side with one held out are dropped as leakage.

    Args:
        pairs: Cleaned pairs, counted as kept in `report`.
        rows: Which of them are held out.
        valid: Those.
        report: Counts what was held out and what was dropped.
    """
    keys = {key for pair in valid for key in side_keys(pair)}
    for row, pair in enumerate(pairs):
        if row in rows:
            report.hold_out()
        elif keys.isdisjoint(side_keys(pair)):  # made anew, for those that cleaning made would fill the memory
            yield pair
        else:
            report.drop_kept("leakage", pair.origin)

"""Validation split: hold out training pairs by file, passage or line, without leakage into the training text.

Neighbours in a text resemble each other, and so do the parts of a file. Held out among the lines that are trained on,
they score as if they were known; text of another file or passage shows what new text will get.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clearhead.config.choices import HoldOut
from clearhead.data.clean import DIGEST_BYTES, key_digest
from clearhead.errors import DataError
from clearhead.formats import SentencePair

# At most a tenth of the corpus is held out, and that must be at least one pair.
LEAST_PAIRS = 10

HELD_OUT: Mapping[str, str] = {"file": "whole files", "passage": "passages", "line": "lines at random"}
"""What is held out, in words."""

_PASSAGE = 20
"""Lines of a passage: more than a paragraph, and so few that a thousand lines are of fifty places."""
_LEAST_PASSAGES = 10
"""Passages of which a small sample is made; their lines are fewer then."""
_LEAST_FILES = 3
"""Whole files that are held out at least, so that a single one does not decide."""
_LEAST_SHARE, _MOST_SHARE = 0.5, 1.2
"""Pairs that whole files must have, as shares of the number wanted."""


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
    return set(drawn_rows(num_pairs, seed=seed)[: min(valid_size, num_pairs // LEAST_PAIRS)].tolist())


def choose_held_out(
    how: HoldOut | None, files: Mapping[str, int], valid_size: int, *, seed: int
) -> tuple[HoldOut, set[int]]:
    """Choose the training pairs to hold out: about `valid_size`, but at most about a tenth of all.

    Args:
        how: `data.hold_out`.
        files: Number of pairs of each file, in the order of the text.
        valid_size: Number of pairs wanted.
        seed: Determines the choice, together with `files`.

    Returns:
        How they were chosen, and their rows, counted from 0.

    Raises:
        DataError: If there are fewer than ten pairs, or whole files are asked for and do not make up such a share.
    """
    num_pairs = sum(files.values())
    by_line = choose_rows(num_pairs, valid_size, seed=seed)  # refuses too small a text
    if how == "line":
        return how, by_line
    if how != "passage":
        if rows := _rows_of_files(list(files.values()), len(by_line), seed=seed):
            return "file", rows
        if how == "file":
            raise DataError(
                f"data.hold_out = 'file': no {_LEAST_FILES} or more of the {len(files):,} files together have about "
                f"{len(by_line):,} of the {num_pairs:,} pairs; hold out passages (--set data.hold_out=passage), or "
                f"name validation files"
            )
    return "passage", _rows_of_passages(num_pairs, len(by_line), seed=seed)


def _rows_of_files(sizes: list[int], wanted: int, *, seed: int) -> set[int]:
    """Return the rows of whole files, drawn at random; empty if they do not make up what is wanted."""
    starts = np.cumsum([0, *sizes]).tolist()
    rows: set[int] = set()
    num_files = 0
    for file in drawn_rows(len(sizes), seed=seed).tolist():
        if sizes[file] and len(rows) < wanted and len(rows) + sizes[file] <= _MOST_SHARE * wanted:
            rows.update(range(starts[file], starts[file + 1]))
            num_files += 1
    return rows if num_files >= _LEAST_FILES and len(rows) >= _LEAST_SHARE * wanted else set()


def _rows_of_passages(num_pairs: int, wanted: int, *, seed: int) -> set[int]:
    """Return the rows of passages, one at a random place of each of equal parts of the text."""
    num_lines = max(1, min(_PASSAGE, wanted // _LEAST_PASSAGES))
    ends = np.linspace(0, num_pairs, -(-wanted // num_lines) + 1).astype(int).tolist()
    places = np.random.Philox(key=seed).random_raw(len(ends) - 1).tolist()
    rows: set[int] = set()
    for (start, end), place in zip(pairwise(ends), places, strict=True):
        length = min(num_lines, wanted - len(rows))
        first = start + place % (end - start - length + 1)
        rows.update(range(first, first + length))
    return rows


def drawn_rows(num_pairs: int, *, seed: int) -> NDArray[np.intp]:
    """Return all rows of a corpus, counted from 0, in a random order that depends on the seed and their number."""
    # NumPy guarantees that raw Philox output stays the same in every later version, unlike its shuffling.
    random = np.random.Philox(key=seed).random_raw(num_pairs)
    return np.argsort(random, kind="stable")


def rows_among(keys_of_rows: bytes, keys: Set[bytes]) -> set[int]:
    """Return the rows of pairs of which a side is among others.

    Args:
        keys_of_rows: The `side_keys` of the pairs, one after the other.
        keys: The keys of the other sides.
    """
    words = DIGEST_BYTES // 8
    starts = np.frombuffer(keys_of_rows, np.uint64)[::words]
    known = np.frombuffer(b"".join(keys), np.uint64)[::words]
    places = np.flatnonzero(np.isin(starts, known)).tolist()
    return {place // 2 for place in places if keys_of_rows[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES] in keys}

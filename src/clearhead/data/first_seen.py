"""Compact hash table for millions of rows: the row in which each text first occurred."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FULLEST = 0.7
"""Highest load factor; above it, probe sequences get long."""
_NOBODY = 2**32 - 1
_MOVED = 2**13
"""Places moved at a time into a larger table, which takes some 50 bytes each."""


def digests_of(texts: list[str]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each text.

    It is Python's own hash, valid in this process only. Among a hundred million different texts, a collision happens in
    one corpus in 4,000.
    """
    return np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)


def mixed(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return digests of the ordered pairs of two digests."""
    digests = first * np.uint64(0x9E3779B97F4A7C15)
    digests ^= digests >> np.uint64(32)
    return (digests + second) * np.uint64(0xD6E8FEB86659FD93)


class FirstRows:
    """The row of first occurrence of each digest, in 17 to 34 bytes each."""

    def __init__(self) -> None:
        self._count = 0
        self._make_room(2**10)

    def find(self, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each digest, or -1 if it has not occurred."""
        rows = np.full(digests.size, -1, dtype=np.int64)
        left, places = np.arange(digests.size), self._first_places(digests)
        while left.size:
            held = self._rows[places]
            is_same = (held != _NOBODY) & (self._digests[places] == digests[left])
            rows[left[is_same]] = held[is_same]
            goes_on = (held != _NOBODY) & ~is_same
            left, places = left[goes_on], (places[goes_on] + 1) & self._mask
        return rows

    def add(self, digests: NDArray[np.uint64], first: int) -> NDArray[np.int64]:
        """Add digests of consecutive rows; return for each the row of an earlier occurrence, or -1.

        Args:
            digests: Digests of the rows.
            first: Number of the first row.
        """
        unique, at, where = np.unique(digests, return_index=True, return_inverse=True)
        known = self.find(unique)
        is_new = known < 0
        while self._count + int(is_new.sum()) > _FULLEST * self._rows.size:
            self._make_room(2 * self._rows.size)
        self._put(unique[is_new], (first + at[is_new]).astype(np.uint32))
        self._count += int(is_new.sum())
        rows = np.where(is_new, first + at, known)[where.reshape(-1)]
        return np.where(rows == first + np.arange(digests.size), -1, rows)

    def _make_room(self, size: int) -> None:
        old = (self._digests, self._rows) if self._count else ()
        self._mask = size - 1
        self._digests: NDArray[np.uint64] = np.zeros(size, dtype=np.uint64)
        self._rows: NDArray[np.uint32] = np.full(size, _NOBODY, dtype=np.uint32)
        for start in range(0, old[1].size if old else 0, _MOVED):
            digests, rows = (column[start : start + _MOVED] for column in old)
            self._put(digests[rows != _NOBODY], rows[rows != _NOBODY])

    def _put(self, digests: NDArray[np.uint64], rows: NDArray[np.uint32]) -> None:
        """Insert new, distinct digests by linear probing."""
        places = self._first_places(digests)
        while digests.size:
            is_free = self._rows[places] == _NOBODY
            free = places[is_free]
            # If several digests compete for one place, the last one written keeps it.
            self._digests[free], self._rows[free] = digests[is_free], rows[is_free]
            is_in = is_free.copy()
            is_in[is_free] = self._digests[free] == digests[is_free]
            digests, rows, places = digests[~is_in], rows[~is_in], (places[~is_in] + 1) & self._mask

    def _first_places(self, digests: NDArray[np.uint64]) -> NDArray[np.int64]:
        spread = digests * np.uint64(0xFF51AFD7ED558CCD)
        return ((spread >> np.uint64(24)) & np.uint64(self._mask)).astype(np.int64)

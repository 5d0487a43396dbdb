"""Sampling weights: how often an epoch contains each pair, by the weight of its file, run-length encoded."""

from __future__ import annotations

from collections.abc import Mapping

from clearhead.formats import SentencePair


class EpochWeights:
    """Weights of the rows of a store, run-length encoded: `runs` has `[weight, rows]` of rows with the same weight.

    Args:
        of_files: Weights of files, by their paths; 1 for others.
    """

    def __init__(self, of_files: Mapping[str, int]) -> None:
        self._of_files = of_files
        self.runs: list[list[int]] = []
        self.num_rows = 0

    @property
    def num_seen(self) -> int:
        """Number of pairs in an epoch, repetitions included."""
        return sum(weight * rows for weight, rows in self.runs)

    def add_of(self, pair: SentencePair) -> None:
        """Add a row with the weight of its file."""
        self.add(self._of_files.get(pair.origin.rpartition(":")[0], 1), 1)

    def add(self, weight: int, rows: int) -> None:
        """Add rows with a weight."""
        if not self.runs or self.runs[-1][0] != weight:
            self.runs.append([weight, 0])
        self.runs[-1][1] += rows
        self.num_rows += rows

"""How often an epoch has each pair."""

from __future__ import annotations

from collections.abc import Mapping

from clearhead.formats import SentencePair

__all__ = ["EpochWeights"]


class EpochWeights:
    """How often an epoch has each row of a store: `runs` of rows with the same weight, `[weight, rows]`.

    Args:
        of_files: The weights of files, by their paths; 1 for others.
    """

    def __init__(self, of_files: Mapping[str, int]) -> None:
        self._of_files = of_files
        self.runs: list[list[int]] = []
        self.num_rows = 0

    @property
    def num_seen(self) -> int:
        """Pairs of an epoch."""
        return sum(weight * rows for weight, rows in self.runs)

    def add_of(self, pair: SentencePair) -> None:
        """Add a row with the weight of the file that it comes from."""
        self.add(self._of_files.get(pair.origin.rpartition(":")[0], 1), 1)

    def add(self, weight: int, rows: int) -> None:
        """Add rows."""
        if not self.runs or self.runs[-1][0] != weight:
            self.runs.append([weight, 0])
        self.runs[-1][1] += rows
        self.num_rows += rows

"""The decoder cache: keys and values of earlier positions, reused at every decoding step.

Shapes: R decoded rows (sentences times beams), B sentences, H heads, T target length so far, S source length,
K key width, V value width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

KeysAndValues = tuple[Float[Tensor, "R H T K"], Float[Tensor, "R H T V"]]


@dataclass
class LayerCache:
    """Projected keys and values of one decoder layer; None before the first step."""

    past: KeysAndValues | None = None
    """Self-attention: one row for each decoded row."""
    memory: KeysAndValues | None = None
    """Cross-attention: one row for each *sentence*, shared by all its beams."""

    @property
    def length(self) -> int:
        """Number of cached target positions."""
        return 0 if self.past is None else self.past[0].size(2)

    def extend(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        """Append the keys and values of new positions and return all of them."""
        if self.past is not None:
            keys = torch.cat([self.past[0], keys], dim=2)
            values = torch.cat([self.past[1], values], dim=2)
        self.past = (keys, values)
        return self.past


@dataclass
class DecoderCache:
    """The caches of all decoder layers."""

    layers: list[LayerCache]

    @property
    def length(self) -> int:
        """Number of cached target positions."""
        return self.layers[0].length

    @classmethod
    def empty(cls, num_layers: int) -> DecoderCache:
        """Return the cache before the first step."""
        return cls([LayerCache() for _ in range(num_layers)])

    def select(self, rows: Int[Tensor, " R"], sentences: Int[Tensor, " B"] | None = None) -> None:
        """Keep and reorder rows after a search step.

        Args:
            rows: For each row to decode next, the row that it continues.
            sentences: Sentences to keep, in order; None for all.
        """
        for layer in self.layers:
            if layer.past is not None:
                layer.past = (layer.past[0][rows], layer.past[1][rows])
            if layer.memory is not None and sentences is not None:
                layer.memory = (layer.memory[0][sentences], layer.memory[1][sentences])

"""Sinusoidal positions (paper section 3.5), and the choice of the positions that are added to embeddings.

Shapes: T length, D d_model.
"""

from __future__ import annotations

from typing import assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.config.choices import SinusoidLayout
from clearhead.model.other_positions import LearnedPositions
from clearhead.model.position_tables import sinusoid_table


def sinusoidal_positions(
    length: int, d_model: int, layout: SinusoidLayout = "sinusoidal", *, first: int = 0
) -> Float[Tensor, "T D"]:
    """Return the sinusoidal encodings of positions, one a row.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)); wavelengths run
    from 2 pi to nearly 10000 * 2 pi.

    Args:
        length: Number of positions.
        d_model: Model width; must be even.
        layout: `sinusoidal`, interleaved as in the paper; `sinusoidal_halves`, all sines and then all cosines, as in
            Marian; `sinusoidal_t2t`, halves with a longest wavelength of exactly 10000 * 2 pi, as in tensor2tensor and
            fairseq.
        first: Position of the first row.

    Raises:
        ConfigError: If the width is odd.
    """
    return torch.as_tensor(sinusoid_table(length, d_model, layout, first=first))


class SinusoidalPositions(nn.Module):
    """The table of `sinusoidal_positions`, extended for longer sequences; it has no parameters.

    Args:
        d_model: Model width; must be even.
        layout: Order and frequencies of the waves.
        first: Position of the first token; models made with fairseq count from 2.
    """

    table: Tensor

    def __init__(self, *, d_model: int, layout: SinusoidLayout = "sinusoidal", first: int = 0) -> None:
        super().__init__()
        self.layout = layout
        self.first = first
        self.register_buffer("table", sinusoidal_positions(512, d_model, layout, first=first), persistent=False)

    def forward(self, start: int | Int[Tensor, " T"], length: int) -> Float[Tensor, "T D"]:
        """Return the encodings of positions start to start + length - 1, or of the given positions.

        Given positions must be in the table, which each longer sequence extends.
        """
        if isinstance(start, Tensor):
            return functional.embedding(start, self.table)
        end = start + length
        table = self.table  # read once: another thread may replace it by a shorter one
        if end > table.size(0):
            rows = max(end, 2 * table.size(0))
            self.table = table = sinusoidal_positions(rows, table.size(1), self.layout, first=self.first).to(table)
        return table[start:end]


def make_positions(config: ModelConfig) -> nn.Module | None:
    """Return the positions added to embeddings; None if there are none, or attention uses them (rotary, relative)."""
    match config.positions:
        case "sinusoidal" | "sinusoidal_halves" | "sinusoidal_t2t" as layout:
            return SinusoidalPositions(d_model=config.d_model, layout=layout, first=config.first_position)
        case "learned":
            return LearnedPositions(d_model=config.d_model, max_positions=config.max_positions)
        case "rotary" | "relative" | "none":
            return None
        case unknown:
            assert_never(unknown)

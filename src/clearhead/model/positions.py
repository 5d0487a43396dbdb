"""Positional encoding (paper section 3.5).

Shapes: T length, D d_model.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["SinusoidalPositions", "sinusoidal_positions"]


def sinusoidal_positions(length: int, d_model: int) -> Float[Tensor, "T D"]:
    """Return sines and cosines of the position, interleaved as the paper prints them.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)); wavelengths run
    from 2 pi to 10000 * 2 pi.

    Args:
        length: Positions, counted from 0.
        d_model: Width; must be even.
    """
    # float64: the angle at position 5000 would lose three digits in float32.
    position = torch.arange(length, dtype=torch.float64)[:, None]  # (T, 1)
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000.0) / d_model))  # (D/2,)
    angle = position * frequency  # (T, D/2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """The table of `sinusoidal_positions`, grown when a longer sequence comes; it holds no parameters.

    Args:
        d_model: Width; must be even.
    """

    table: Tensor

    def __init__(self, *, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(512, d_model), persistent=False)

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Return the encodings of positions start to start + length - 1."""
        end = start + length
        if end > self.table.size(0):
            grown = sinusoidal_positions(max(end, 2 * self.table.size(0)), self.table.size(1))
            self.table = grown.to(self.table)
        return self.table[start:end]

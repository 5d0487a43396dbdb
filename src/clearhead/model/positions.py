"""Sinusoidal positions (paper section 3.5), and the choice of the positions that are added to embeddings.

Shapes: T length, D d_model.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.config.choices import SinusoidLayout
from clearhead.errors import ConfigError
from clearhead.model.other_positions import LearnedPositions


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
    if d_model % 2:
        raise ConfigError(
            f"d_model ({d_model}) must be even: sinusoidal positions come in pairs of sine and cosine (section 3.5)"
        )
    # float64: the angle at position 5000 would lose three digits in float32.
    position = torch.arange(first, first + length, dtype=torch.float64)[:, None]  # (T, 1)
    angle = position * wave_frequencies(d_model, layout)  # (T, D/2)
    if layout == "sinusoidal":
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
    return torch.cat([angle.sin(), angle.cos()], dim=-1).float()


def wave_frequencies(d_model: int, layout: SinusoidLayout = "sinusoidal") -> Float[Tensor, " half"]:
    """Return the angle in radians by which each wave advances from one position to the next, in float64.

    Args:
        d_model: Model width; a wave is a sine and a cosine.
        layout: Layout as for `sinusoidal_positions`.
    """
    num_waves = d_model // 2
    longest = num_waves - 1 if layout == "sinusoidal_t2t" else num_waves
    # A width of 2 has a single wave, of frequency 1.
    step = -math.log(10_000.0) / max(longest, 1)
    return torch.exp(torch.arange(num_waves, dtype=torch.float64) * step)


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

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Return the encodings of positions start to start + length - 1."""
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

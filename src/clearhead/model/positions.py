"""Positions: the paper's sinusoids (section 3.5) and what others put in their place.

Shapes: B batch, H heads, T length, D d_model, K head width.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.choices import PositionKind, SinusoidLayout
from clearhead.errors import ConfigError

__all__ = [
    "LearnedPositions",
    "RotaryPositions",
    "SinusoidalPositions",
    "make_positions",
    "rotary_positions",
    "sinusoidal_positions",
]


def sinusoidal_positions(
    length: int, d_model: int, layout: SinusoidLayout = "sinusoidal", *, first: int = 0
) -> Float[Tensor, "T D"]:
    """Return sines and cosines of the position.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)); wavelengths run
    from 2 pi to nearly 10000 * 2 pi.

    Args:
        length: Positions.
        d_model: Width; must be even.
        layout: `sinusoidal`, interleaved as the paper prints them; `sinusoidal_halves`, all sines and then all cosines,
            as in Marian; `sinusoidal_t2t`, such halves whose longest wavelength is 10000 * 2 pi exactly, as in
            tensor2tensor and fairseq.
        first: The position that stands in the first row.

    Raises:
        ConfigError: If the width is odd.
    """
    if d_model % 2:
        raise ConfigError(
            f"d_model ({d_model}) must be even: sinusoidal positions come in pairs of sine and cosine (section 3.5)"
        )
    # float64: the angle at position 5000 would lose three digits in float32.
    position = torch.arange(first, first + length, dtype=torch.float64)[:, None]  # (T, 1)
    num_waves = d_model // 2
    longest = num_waves - 1 if layout == "sinusoidal_t2t" else num_waves
    # A width of 2 has a single wave, of frequency 1.
    step = -math.log(10_000.0) / max(longest, 1)
    angle = position * torch.exp(torch.arange(num_waves, dtype=torch.float64) * step)  # (T, D/2)
    if layout == "sinusoidal":
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
    return torch.cat([angle.sin(), angle.cos()], dim=-1).float()


def rotary_positions(
    x: Float[Tensor, "B H T K"], cos: Float[Tensor, "T half"], sin: Float[Tensor, "T half"]
) -> Float[Tensor, "B H T K"]:
    """Turn each pair of neighbouring components by its angle (Su et al. 2021, equation 34).

    Args:
        x: Queries or keys; K is even.
        cos: Of the angle of each position and pair.
        sin: Likewise.
    """
    pairs = x.unflatten(-1, (-1, 2))  # (B, H, T, K/2, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    return torch.stack([left * cos - right * sin, left * sin + right * cos], dim=-1).flatten(-2)


class SinusoidalPositions(nn.Module):
    """The table of `sinusoidal_positions`, grown when a longer sequence comes; it holds no parameters.

    Args:
        d_model: Width; must be even.
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
        table = self.table  # another thread may put a shorter one in its place
        if end > table.size(0):
            rows = max(end, 2 * table.size(0))
            self.table = table = sinusoidal_positions(rows, table.size(1), self.layout, first=self.first).to(table)
        return table[start:end]


class LearnedPositions(nn.Module):
    """One trained vector a position (paper section 3.5 and Table 3, row E; Gehring et al. 2017).

    Args:
        d_model: Width.
        max_positions: Vectors; a longer sequence is refused.
    """

    def __init__(self, *, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Return the vectors of positions start to start + length - 1.

        Raises:
            ConfigError: If there are not so many.
        """
        end = start + length
        if end > self.weight.size(0):
            raise ConfigError(
                f"a sequence of {end} tokens does not fit this model, whose learned positions end after "
                f"model.max_positions = {self.weight.size(0)}; cut the text into shorter segments"
            )
        return self.weight[start:end]


class RotaryPositions(nn.Module):
    """Rotary positions: queries and keys are turned, so that their product sees their distance (Su et al. 2021).

    Args:
        head_dim: Width of queries and keys; must be even.
    """

    table: Tensor

    def __init__(self, *, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.register_buffer("table", self._cos_and_sin(512), persistent=False)

    def forward(self, x: Float[Tensor, "B H T K"], start: int) -> Float[Tensor, "B H T K"]:
        """Turn queries or keys that stand at positions start, start + 1, ..."""
        cos, sin = self.cos_and_sin(start + x.size(2))[:, start:].to(x.dtype)
        return rotary_positions(x, cos, sin)

    def cos_and_sin(self, length: int) -> Float[Tensor, "2 T half"]:
        """Return cosine and sine of the angles of the first positions."""
        table = self.table  # another thread may put a shorter one in its place
        if length > table.size(1):
            with torch.inference_mode(False):  # training could not go back through a table made in inference
                self.table = table = self._cos_and_sin(max(length, 2 * table.size(1))).to(table)
        return table[:, :length]

    def _cos_and_sin(self, length: int) -> Float[Tensor, "2 T half"]:
        frequency = 10_000.0 ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        # float64, and not the angles themselves in the table: rounded to bfloat16, one of 300 would be off by 1.
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return torch.stack([angle.cos(), angle.sin()]).float()


def make_positions(kind: PositionKind, *, d_model: int, max_positions: int, first: int) -> nn.Module | None:
    """Return the positions added to the embeddings; None if attention itself sees them (`rotary`) or nothing does.

    Args:
        kind: One of the names above.
        d_model: Width.
        max_positions: Rows of a learned table.
        first: Position of the first token, for sinusoids.
    """
    match kind:
        case "sinusoidal" | "sinusoidal_halves" | "sinusoidal_t2t":
            return SinusoidalPositions(d_model=d_model, layout=kind, first=first)
        case "learned":
            return LearnedPositions(d_model=d_model, max_positions=max_positions)
        case "rotary" | "none":
            return None

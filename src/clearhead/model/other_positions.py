"""Learned positions (paper Table 3, row E), and rotary and relative positions, which the paper does not have.

Shapes: B batch, H heads, T length, S keys, D d_model, K head width, half K / 2.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.errors import ConfigError


class LearnedPositions(nn.Module):
    """Learned positions: one trained vector for each (paper section 3.5 and Table 3, row E; Gehring et al. 2017).

    Args:
        d_model: Model width.
        max_positions: Number of vectors; a longer sequence is rejected.
    """

    def __init__(self, *, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Return the vectors of positions start to start + length - 1.

        Raises:
            ConfigError: If the model has fewer positions.
        """
        end = start + length
        if end > self.weight.size(0):
            raise ConfigError(
                f"a sequence of {end} tokens does not fit this model, whose learned positions end after "
                f"model.max_positions = {self.weight.size(0)}; cut the text into shorter segments"
            )
        return self.weight[start:end]


def rotary_positions(
    x: Float[Tensor, "B H T K"], cos: Float[Tensor, "T half"], sin: Float[Tensor, "T half"]
) -> Float[Tensor, "B H T K"]:
    """Rotate each pair of neighbouring components by its angle (Su et al. 2021, equation 34).

    Args:
        x: Queries or keys; K is even.
        cos: Cosine of the angle of each position and pair.
        sin: Sine of the same angles.
    """
    pairs = x.unflatten(-1, (-1, 2))  # (B, H, T, K/2, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    return torch.stack([left * cos - right * sin, left * sin + right * cos], dim=-1).flatten(-2)


class RotaryPositions(nn.Module):
    """Rotary positions: queries and keys are rotated so that their product depends on their distance (Su et al. 2021).

    Args:
        head_dim: Width of queries and keys; must be even.
    """

    table: Tensor

    def __init__(self, *, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.register_buffer("table", self._cos_and_sin(512), persistent=False)

    def forward(self, x: Float[Tensor, "B H T K"], start: int) -> Float[Tensor, "B H T K"]:
        """Rotate queries or keys at positions start, start + 1, ..."""
        cos, sin = self.cos_and_sin(start + x.size(2))[:, start:].to(x.dtype)
        return rotary_positions(x, cos, sin)

    def cos_and_sin(self, length: int) -> Float[Tensor, "2 T half"]:
        """Return cosine and sine of the angles of the first `length` positions."""
        table = self.table  # read once: another thread may replace it by a shorter one
        if length > table.size(1):
            with torch.inference_mode(False):  # a table made in inference mode could not be used in training
                self.table = table = self._cos_and_sin(max(length, 2 * table.size(1))).to(table)
        return table[:, :length]

    def _cos_and_sin(self, length: int) -> Float[Tensor, "2 T half"]:
        frequency = 10_000.0 ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        # float64, and cosines in the table instead of angles: rounded to bfloat16, an angle of 300 would be off by 1.
        angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
        return torch.stack([angle.cos(), angle.sin()]).float()


def relative_bucket(
    distance: Int[Tensor, "*shape"], *, num_buckets: int, max_distance: int, is_causal: bool
) -> Int[Tensor, "*shape"]:
    """Return the row of a distance in a table of relative positions (Raffel et al. 2020, section 2.1).

    Half of the rows hold one distance each. The others share the larger distances, in ranges of growing width; the last
    row includes everything beyond `max_distance`.

    Args:
        distance: Position of the key minus that of the query.
        num_buckets: Number of rows of the table.
        max_distance: Distance from which on all share the last row.
        is_causal: Keys never follow their query. Otherwise keys after the query use the second half of the table.
    """
    if is_causal:
        first, distance = torch.zeros_like(distance), (-distance).clamp(min=0)
    else:
        num_buckets //= 2
        first, distance = (distance > 0) * num_buckets, distance.abs()
    single = num_buckets // 2
    # In float32 and in this order, as in T5's training: otherwise a distance could cross a boundary between rows.
    log = torch.log(distance.float() / single) / math.log(max_distance / single)  # 0 at `single`, 1 at `max_distance`
    shared = single + (log * (num_buckets - single)).long()
    return first + torch.where(distance < single, distance, shared.clamp(max=num_buckets - 1))


class RelativePositions(nn.Module):
    """Relative positions: a trained bias for each head and distance, added to scores (Raffel et al. 2020, 2.1).

    All layers of a stack share one table.

    Args:
        num_heads: Columns of the table.
        num_buckets: Rows of the table; see `relative_bucket`.
        max_distance: Distance from which on all share the last row.
        is_causal: Keys never follow their query.
    """

    def __init__(self, *, num_heads: int, num_buckets: int, max_distance: int, is_causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        self.max_distance = max_distance
        self.is_causal = is_causal

    def forward(self, length: int, start: int = 0) -> Float[Tensor, "1 H T S"]:
        """Return the biases of queries at positions start, start + 1, ... with all keys up to the last query."""
        position = torch.arange(start + length, device=self.weight.device)
        distance = position - position[start:, None]  # (T, S)
        return self.at(distance).permute(2, 0, 1)[None]

    def at(self, distance: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape H"]:
        """Return the biases of distances, each the position of a key minus that of its query."""
        return functional.embedding(self.rows(distance), self.weight)

    def rows(self, distance: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return the row of the table for each distance."""
        return relative_bucket(
            distance, num_buckets=len(self.weight), max_distance=self.max_distance, is_causal=self.is_causal
        )

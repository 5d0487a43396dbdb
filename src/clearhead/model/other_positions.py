"""Learned positions (paper Table 3, row E), and rotary and relative positions, which the paper does not have.

Shapes: B batch, H heads, T length, S keys, D d_model, K head width, half K / 2.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.model.position_tables import relative_rows, require_positions, rotary_table


class LearnedPositions(nn.Module):
    """Learned positions: one trained vector for each (paper section 3.5 and Table 3, row E; Gehring et al. 2017).

    Args:
        d_model: Model width.
        max_positions: Number of vectors; a longer sequence is rejected.
    """

    def __init__(self, *, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int | Int[Tensor, " T"], length: int) -> Float[Tensor, "T D"]:
        """Return the vectors of positions start to start + length - 1, or of the given positions.

        Raises:
            ConfigError: If the model has fewer positions.
        """
        if isinstance(start, Tensor):
            return functional.embedding(start, self.weight)
        end = start + length
        require_positions(end, self.weight.size(0))
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
    left, right = x.unflatten(-1, (-1, 2)).unbind(-1)  # (B, H, T, K/2) twice
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
        self.register_buffer("table", torch.as_tensor(rotary_table(512, head_dim)), persistent=False)

    def forward(self, x: Float[Tensor, "B H T K"], start: int | Int[Tensor, " T"]) -> Float[Tensor, "B H T K"]:
        """Rotate queries or keys at positions start, start + 1, ..., or at given ones, which the table must have."""
        if isinstance(start, Tensor):
            table = self.table.index_select(1, start)
        else:
            table = self.cos_and_sin(start + x.size(2))[:, start:]
        cos, sin = table.to(x.dtype)
        return rotary_positions(x, cos, sin)

    def cos_and_sin(self, length: int) -> Float[Tensor, "2 T half"]:
        """Return cosine and sine of the angles of the first `length` positions."""
        table = self.table  # read once: another thread may replace it by a shorter one
        if length > table.size(1):
            with torch.inference_mode(False):  # a table made in inference mode could not be used in training
                rows = max(length, 2 * table.size(1))
                self.table = table = torch.as_tensor(rotary_table(rows, self.head_dim)).to(table)
        return table[:, :length]


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
    table = relative_rows(num_buckets, max_distance, is_causal=is_causal)
    edges, rows = (torch.as_tensor(part, device=distance.device) for part in table)
    return rows[torch.bucketize(distance, edges, right=True)]


class RelativePositions(nn.Module):
    """Relative positions: a trained bias for each head and distance, added to scores (Raffel et al. 2020, 2.1).

    All layers of a stack share one table.

    Args:
        num_heads: Columns of the table.
        num_buckets: Rows of the table; see `relative_bucket`.
        max_distance: Distance from which on all share the last row.
        is_causal: Keys never follow their query.
    """

    edges: Tensor
    rows_between: Tensor

    def __init__(self, *, num_heads: int, num_buckets: int, max_distance: int, is_causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        self.max_distance = max_distance
        edges, rows = relative_rows(num_buckets, max_distance, is_causal=is_causal)
        self.register_buffer("edges", torch.as_tensor(edges), persistent=False)
        self.register_buffer("rows_between", torch.as_tensor(rows), persistent=False)

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
        return self.rows_between[torch.bucketize(distance, self.edges, right=True)]

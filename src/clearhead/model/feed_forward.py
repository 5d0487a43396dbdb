"""The position-wise feed-forward network (paper section 3.3).

Shapes: B batch, T length, D d_model.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["FeedForward"]


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position (equation 2).

    Args:
        d_model: Width of input and output.
        d_ff: Width of the hidden layer (paper: 2048).
    """

    def __init__(self, *, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)  # W1, b1
        self.down_proj = nn.Linear(d_ff, d_model)  # W2, b2

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Apply the network to each position separately."""
        return self.down_proj(self.up_proj(x).relu())

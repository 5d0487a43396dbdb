"""Token embeddings and the output projection that shares their matrix (paper section 3.4).

Shapes: B batch, T length, D d_model, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.model.positions import SinusoidalPositions

__all__ = ["Embedding"]


class Embedding(nn.Module):
    """One matrix for source tokens, target tokens and the linear map before the softmax (section 3.4).

    Args:
        vocab_size: Rows, one a token.
        d_model: Width; must be even.
        dropout: Rate on embedding plus position (section 5.4).
    """

    def __init__(self, *, vocab_size: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model)
        self.positions = SinusoidalPositions(d_model=d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Look tokens up, scale by sqrt(d_model) and add their positions.

        Args:
            ids: Token ids.
            start: Position of the first column; above 0 when earlier tokens are in a cache.
        """
        tokens = functional.embedding(ids, self.weight) * self.scale
        return self.dropout(tokens + self.positions(start, ids.size(1)))

    def logits(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """Score every token of the vocabulary with the same matrix."""
        return functional.linear(x, self.weight)

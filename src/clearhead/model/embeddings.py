"""Token embeddings with their positions, and the projection to logits (paper sections 3.4 and 3.5).

Shapes: B batch, T length, D d_model, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config.choices import Activation
from clearhead.kernels.bf16_linear import Linear
from clearhead.kernels.dropout import Dropout
from clearhead.model.feed_forward import ACTIVATIONS


class Embedding(nn.Module):
    """Token embedding plus positions, the input of the first layer of the encoder or decoder (figure 1).

    Its matrix may be shared with the other side and with the linear map before the softmax; `Transformer` ties them.

    Args:
        vocab_size: Number of tokens, the rows of the matrix.
        d_model: Model width.
        dropout: Dropout rate on embedding plus position (section 5.4).
        positions: Called with start and length, returns the vectors to add [T, D]; None adds none.
        scale: Multiply token embeddings by sqrt(d_model), as in section 3.4.
        norm: Applied to embedding plus position, before dropout (BERT, BART); the paper has none.
        num_segments: Number of segment kinds whose vectors are added (BERT's sentence A and B); 0 for none.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        dropout: float,
        positions: nn.Module | None,
        scale: bool = True,
        norm: nn.Module | None = None,
        num_segments: int = 0,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scale else 1.0
        self.positions = positions
        self.segments = nn.Embedding(num_segments, d_model) if num_segments else None
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        start: int | Int[Tensor, " T"] = 0,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return scaled token embeddings with their positions.

        Args:
            ids: Token ids.
            start: Position of the first column, above 0 if earlier tokens are in a cache; of packed rows, the position
                of each column.
            segments: Segment of each token; all 0 if not given.
        """
        return self.placed(self.vectors(ids), start, segments)

    def vectors(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return scaled token embeddings, without positions."""
        return functional.embedding(ids, self.weight) * self.scale

    def placed(
        self,
        x: Float[Tensor, "B T D"],
        start: int | Int[Tensor, " T"] = 0,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Add positions and segments to token embeddings; then apply the norm and dropout."""
        if self.positions is not None:
            x = x + self.positions(start, x.size(1))
        if self.segments is not None:
            x = x + self.segments(x.new_zeros(x.shape[:2], dtype=torch.long) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)


class OutputTransform(nn.Module):
    """A layer between the last states and the linear map before the softmax, as in BERT; the paper has none.

    Args:
        d_model: Width of input and output.
        activation: Applied between the projection and the norm.
        norm: Applied to the result.
    """

    def __init__(self, *, d_model: int, activation: Activation, norm: nn.Module) -> None:
        super().__init__()
        self.proj = Linear(d_model, d_model)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Return the input of the output projection."""
        return self.norm(self.activation(self.proj(x)))


class OutputProjection(nn.Module):
    """The linear map before the softmax, from states to one score for each token.

    `Transformer` ties its matrix to an embedding's by default; in the paper it has no bias.
    """

    def __init__(self, *, vocab_size: int, d_model: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        """Return logits."""
        return functional.linear(x, self.weight, self.bias)

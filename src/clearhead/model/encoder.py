"""The encoder (paper section 3.1, figure 1 left).

Shapes: B batch, S source length, D d_model, H heads.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.sublayers import Sublayers

__all__ = ["Encoder", "EncoderLayer"]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each within a residual connection.

    Args:
        options: The fields of `Sublayers`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        make = Sublayers(**options)
        self.self_attn = make.self_attention()
        self.self_attn_residual = make.residual()
        self.feed_forward = make.feed_forward()
        self.feed_forward_residual = make.residual()

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"], *, return_weights: bool = False
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B H S S"] | None]:
        """Return the layer's output and, if asked for, its attention weights."""
        h = self.self_attn_residual.before(x)
        attended, weights = self.self_attn.attend(
            h, *self.self_attn.keys_and_values(h), mask=mask, return_weights=return_weights
        )
        x = self.self_attn_residual.after(x, attended)
        h = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(h)), weights


class Encoder(nn.Module):
    """A stack of encoder layers: embedded source tokens in, memory out.

    Args:
        num_layers: Layers, N in the paper.
        final_norm: Whether one more norm ends the stack; None is only with norm="pre".
        options: The fields of `Sublayers`.
    """

    def __init__(self, *, num_layers: int, final_norm: bool | None = None, **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(**options) for _ in range(num_layers))
        self.final_norm = Sublayers(**options).final_norm(final_norm)

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"], *, return_weights: bool = False
    ) -> tuple[Float[Tensor, "B S D"], list[Tensor]]:
        """Encode a batch.

        Args:
            x: Embedded source tokens with their positions.
            mask: Which positions hold a token.
            return_weights: Also return what every head attended to.

        Returns:
            The memory, and the attention weights of each layer, [B, H, S, S] (none unless asked for).
        """
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, mask[:, None, None, :], return_weights=return_weights)
            if layer_weights is not None:
                weights.append(layer_weights)
        return self.final_norm(x), weights

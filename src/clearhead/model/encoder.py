"""The encoder (paper section 3.1, figure 1 left).

Shapes: B batch, S source length, D d_model, H heads.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.residual import NormOrder, Residual

__all__ = ["Encoder", "EncoderLayer"]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each within a residual connection.

    Args:
        d_model: Width of the model.
        d_ff: Width inside the feed-forward network.
        num_heads: Attention heads.
        dropout: Rate on each sub-layer's output.
        norm: Where the layer norm stands, see `Residual`.
    """

    def __init__(self, *, d_model: int, d_ff: int, num_heads: int, dropout: float, norm: NormOrder) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model=d_model, num_heads=num_heads)
        self.self_attn_residual = Residual(d_model=d_model, dropout=dropout, norm=norm)
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff)
        self.feed_forward_residual = Residual(d_model=d_model, dropout=dropout, norm=norm)

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
        d_model: Width of the model.
        d_ff: Width inside the feed-forward networks.
        num_heads: Attention heads.
        dropout: Rate on each sub-layer's output.
        norm: Where the layer norms stand; with `pre` the stack ends in one more.
    """

    def __init__(
        self, *, num_layers: int, d_model: int, d_ff: int, num_heads: int, dropout: float, norm: NormOrder
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(d_model=d_model, d_ff=d_ff, num_heads=num_heads, dropout=dropout, norm=norm)
            for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

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

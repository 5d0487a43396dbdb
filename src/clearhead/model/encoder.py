"""The encoder (paper section 3.1, figure 1 left).

Shapes: B batch, S source length, D d_model.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.attention import AttentionWeights
from clearhead.model.residual import keep
from clearhead.model.sublayers import Sublayers


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each as LayerNorm(x + Sublayer(x))."""

    def __init__(self, sublayers: Sublayers) -> None:
        super().__init__()
        self.self_attn = sublayers.self_attention()
        self.self_attn_residual = sublayers.residual()
        self.feed_forward = sublayers.feed_forward()
        self.feed_forward_residual = sublayers.residual()

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"],
        weights: AttentionWeights | None = None,
        bias: Float[Tensor, "1 H S S"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Run the sub-layers; `weights` records attention, and `bias` is added to its scores."""
        seen = None if weights is None else weights.encoder
        x = self.self_attn_residual.add_and_norm(x, partial(self.self_attn, mask=mask, weights=seen, bias=bias))
        return self.feed_forward_residual.add_and_norm(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers: from embedded source tokens to the memory.

    Args:
        sublayers: Makes the sub-layers of its layers.
        num_layers: Number of layers, N in the paper.
    """

    def __init__(self, sublayers: Sublayers, *, num_layers: int) -> None:
        super().__init__()
        self.relative_positions = sublayers.relative_positions(is_causal=False)
        self.layers = nn.ModuleList(EncoderLayer(sublayers) for _ in range(num_layers))
        self.final_norm = sublayers.end_of_stack()

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
        weights: AttentionWeights | None = None,
        hidden: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Encode a batch.

        Args:
            x: Embedded source tokens with their positions.
            mask: True at positions that hold a token.
            weights: Records the attention weights of every head, if given.
            hidden: Records the input of every layer, and the memory, if given.
        """
        bias = None if self.relative_positions is None else self.relative_positions(x.size(1))
        for layer in self.layers:
            keep(x, hidden)
            x = layer(x, mask[:, None, None, :], weights, bias)
        return keep(self.final_norm(x), hidden)

"""The decoder (paper section 3.1, figure 1 right).

Shapes: B sentences, R rows of targets (B times the beams of a sentence), T target length, S source length, D d_model,
H heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.attention import MultiHeadAttention
from clearhead.model.cache import DecoderCache, LayerCache
from clearhead.model.feed_forward import FeedForward
from clearhead.model.residual import NormOrder, Residual

__all__ = ["Decoder", "DecoderLayer", "DecoderWeights"]


@dataclass
class DecoderWeights:
    """What the decoder's heads attended to, one tensor a layer."""

    self_attn: list[Float[Tensor, "R H T T"]] = field(default_factory=list)
    cross_attn: list[Float[Tensor, "R H T S"]] = field(default_factory=list)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the memory, then the feed-forward network.

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
        self.cross_attn = MultiHeadAttention(d_model=d_model, num_heads=num_heads)
        self.cross_attn_residual = Residual(d_model=d_model, dropout=dropout, norm=norm)
        self.feed_forward = FeedForward(d_model=d_model, d_ff=d_ff)
        self.feed_forward_residual = Residual(d_model=d_model, dropout=dropout, norm=norm)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        cache: LayerCache,
        weights: DecoderWeights | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Run the three sub-layers; the cache takes in the new positions, `weights` what each head attended to.

        The rows are either the whole target (T positions, empty cache) or one new position each (T = 1).
        """
        return_weights = weights is not None

        assert x.size(1) == 1 or cache.past is None, "several positions at once need an empty cache"
        h = self.self_attn_residual.before(x)
        keys, values = cache.extend(*self.self_attn.keys_and_values(h))
        # A single new position may see all that came before it; only several at once need the causal mask.
        attended, self_weights = self.self_attn.attend(
            h, keys, values, is_causal=x.size(1) > 1, return_weights=return_weights
        )
        x = self.self_attn_residual.after(x, attended)

        h = self.cross_attn_residual.before(x)
        if cache.memory is None:
            cache.memory = self.cross_attn.keys_and_values(memory)
        # The beams of one sentence ask the same memory, so they are further queries on it rather than copies of it.
        queries = h.reshape(memory.size(0), -1, h.size(-1))  # (B, R/B * T, D)
        attended, cross_weights = self.cross_attn.attend(
            queries, *cache.memory, mask=memory_mask, return_weights=return_weights
        )
        x = self.cross_attn_residual.after(x, attended.reshape(h.shape))

        if weights is not None and self_weights is not None and cross_weights is not None:
            weights.self_attn.append(self_weights)
            weights.cross_attn.append(cross_weights)
        h = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(h))


class Decoder(nn.Module):
    """A stack of decoder layers: embedded target tokens and the memory in, the last layer's states out.

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
            DecoderLayer(d_model=d_model, d_ff=d_ff, num_heads=num_heads, dropout=dropout, norm=norm)
            for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"],
        memory_mask: Bool[Tensor, "B S"],
        cache: DecoderCache,
        weights: DecoderWeights | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Decode a batch.

        Args:
            x: Embedded target tokens with their positions; R is a multiple of B, the rows of a sentence side by side.
            memory: The encoder's output.
            memory_mask: Which positions of the memory hold a token.
            cache: Keys and values of earlier positions; takes in those of the new ones.
            weights: Takes in what every head attended to, if given.
        """
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            x = layer(x, memory, memory_mask[:, None, None, :], layer_cache, weights)
        cache.length += x.size(1)
        return self.final_norm(x)

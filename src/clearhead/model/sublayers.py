"""The sub-layers that encoder and decoder layers are built from, with every choice about them in one place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clearhead.choices import Activation, NormKind, NormOrder
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.norm import make_norm
from clearhead.model.residual import Residual

__all__ = ["Sublayers"]


@dataclass(frozen=True, kw_only=True)
class Sublayers:
    """Makes the parts of a layer; layers take these fields as keywords, and what has a default is as in the paper."""

    d_model: int
    """Width of the model."""
    d_ff: int
    """Width inside the feed-forward network."""
    num_heads: int
    """Attention heads."""
    dropout: float
    """Rate on each sub-layer's output."""
    d_k: int | None = None
    """Width of a query and a key; None is d_model / num_heads."""
    d_v: int | None = None
    """Width of a value; None is d_model / num_heads."""
    attention_dropout: float = 0.0
    """Rate on attention weights."""
    feed_forward_dropout: float = 0.0
    """Rate inside the feed-forward network."""
    norm: NormOrder = "post"
    """Where the norm stands, see `Residual`."""
    norm_kind: NormKind = "layer"
    """Which norm, see `make_norm`."""
    norm_eps: float = 1e-5
    """Added to the variance inside the norm."""
    activation: Activation = "relu"
    """Of the feed-forward network."""
    gated: bool = False
    """Whether the feed-forward network has a gate."""
    attention_bias: bool = False
    """Whether the four projections of attention have biases."""
    feed_forward_bias: bool = True
    """Whether the projections of the feed-forward network have biases."""
    rotary: bool = False
    """Whether self-attention turns queries and keys by their positions."""

    def self_attention(self) -> MultiHeadAttention:
        """Return attention of a sequence to itself."""
        return self._attention(rotary=self.rotary)

    def cross_attention(self) -> MultiHeadAttention:
        """Return attention from target to memory; positions of two sequences have no distance to turn by."""
        return self._attention(rotary=False)

    def _attention(self, *, rotary: bool) -> MultiHeadAttention:
        return MultiHeadAttention(
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_k=self.d_k,
            d_v=self.d_v,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            rotary=rotary,
        )

    def feed_forward(self) -> FeedForward:
        """Return the position-wise network."""
        return FeedForward(
            d_model=self.d_model,
            d_ff=self.d_ff,
            activation=self.activation,
            gated=self.gated,
            bias=self.feed_forward_bias,
            dropout=self.feed_forward_dropout,
        )

    def residual(self) -> Residual:
        """Return what stands around one of them."""
        return Residual(
            d_model=self.d_model,
            dropout=self.dropout,
            norm=self.norm,
            norm_kind=self.norm_kind,
            norm_eps=self.norm_eps,
        )

    def final_norm(self, wanted: bool | None) -> nn.Module:
        """Return what ends a stack of layers.

        Args:
            wanted: Whether that is one more norm; None is as the order of norms needs: with `pre`, where the sum of
                all sub-layers would otherwise leave unnormalised, but not with `post`.
        """
        if wanted is None:
            wanted = self.norm == "pre"
        return make_norm(self.norm_kind, self.d_model, self.norm_eps) if wanted else nn.Identity()

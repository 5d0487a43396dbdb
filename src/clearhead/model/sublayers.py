"""Factory of the sub-layers of encoder and decoder layers, with all of their settings."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from clearhead.config.choices import Activation, NormKind, NormOrder
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import RelativePositions
from clearhead.model.residual import Residual, make_norm


@dataclass(frozen=True, kw_only=True)
class Sublayers:
    """All settings of the sub-layers of a stack, with methods that make them.

    A setting has the meaning of the one of the same name in `ModelConfig`; the defaults here are the paper's.
    """

    d_model: int
    d_ff: int
    num_heads: int
    dropout: float
    d_k: int | None = None
    d_v: int | None = None
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    norm: NormOrder = "post"
    norm_kind: NormKind = "layer"
    norm_eps: float = 1e-5
    final_norm: bool | None = None
    activation: Activation = "relu"
    gated: bool = False
    attention_scale: bool = True
    attention_bias: bool = False
    feed_forward_bias: bool = True
    rotary: bool = False
    """Whether self-attention rotates queries and keys by their positions."""
    relative: bool = False
    """Whether the distance of query and key adds a bias to the scores of self-attention."""
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def self_attention(self) -> MultiHeadAttention:
        """Return self-attention."""
        return self._attention(rotary=self.rotary)

    def cross_attention(self) -> MultiHeadAttention:
        """Return cross-attention; it never rotates, because positions of two sequences have no distance."""
        return self._attention(rotary=False)

    def _attention(self, *, rotary: bool) -> MultiHeadAttention:
        return MultiHeadAttention(
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_k=self.d_k,
            d_v=self.d_v,
            bias=self.attention_bias,
            dropout=self.attention_dropout,
            scale=self.attention_scale,
            rotary=rotary,
        )

    def relative_positions(self, *, is_causal: bool) -> RelativePositions | None:
        """Return the position biases that the layers of a stack share; None without relative positions."""
        if not self.relative:
            return None
        return RelativePositions(
            num_heads=self.num_heads,
            num_buckets=self.relative_attention_num_buckets,
            max_distance=self.relative_attention_max_distance,
            is_causal=is_causal,
        )

    def feed_forward(self) -> FeedForward:
        """Return the position-wise feed-forward network."""
        return FeedForward(
            d_model=self.d_model,
            d_ff=self.d_ff,
            activation=self.activation,
            gated=self.gated,
            bias=self.feed_forward_bias,
            dropout=self.feed_forward_dropout,
        )

    def residual(self) -> Residual:
        """Return the residual connection around a sub-layer."""
        return Residual(
            d_model=self.d_model,
            dropout=self.dropout,
            norm=self.norm,
            norm_kind=self.norm_kind,
            norm_eps=self.norm_eps,
        )

    def end_of_stack(self) -> nn.Module:
        """Return the norm after the last layer, or the identity if there is none; see `final_norm`."""
        has_norm = self.norm == "pre" if self.final_norm is None else self.final_norm
        return make_norm(self.norm_kind, self.d_model, self.norm_eps) if has_norm else nn.Identity()

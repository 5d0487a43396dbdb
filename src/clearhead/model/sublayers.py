"""The parts of encoder and decoder layers, made as `ModelConfig` describes them."""

from __future__ import annotations

from typing import assert_never

from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import RelativePositions
from clearhead.model.residual import Residual
from clearhead.model.weight_shapes import has_final_norm


def self_attention(config: ModelConfig) -> MultiHeadAttention:
    """Return self-attention (paper section 3.2.3)."""
    return _attention(config, rotary=config.positions == "rotary")


def cross_attention(config: ModelConfig) -> MultiHeadAttention:
    """Return cross-attention; it never rotates, because positions of two sequences have no distance."""
    return _attention(config, rotary=False)


def _attention(config: ModelConfig, *, rotary: bool) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_k=config.d_k,
        d_v=config.d_v,
        bias=config.attention_bias,
        dropout=config.attention_dropout,
        scale=config.attention_scale,
        rotary=rotary,
    )


def feed_forward(config: ModelConfig) -> FeedForward:
    """Return the position-wise feed-forward network (paper section 3.3)."""
    return FeedForward(
        d_model=config.d_model,
        d_ff=config.d_ff,
        activation=config.activation,
        gated=config.gated,
        bias=config.feed_forward_bias,
        dropout=config.feed_forward_dropout,
    )


def residual(config: ModelConfig) -> Residual:
    """Return the residual connection around a sub-layer (paper section 3.1)."""
    return Residual(make_norm(config), dropout=config.dropout, is_pre=config.norm == "pre")


def make_norm(config: ModelConfig) -> nn.Module:
    """Return a norm over the features (paper section 3.1)."""
    match config.norm_kind:
        case "layer":  # subtracts the mean, divides by the standard deviation; a gain and a bias
            return nn.LayerNorm(config.d_model, eps=config.norm_eps)
        case "rms":  # divides by the root mean square; a gain alone
            return nn.RMSNorm(config.d_model, eps=config.norm_eps)
        case unknown:
            assert_never(unknown)


def final_norm(config: ModelConfig) -> nn.Module:
    """Return the norm after the last layer, or the identity if there is none, as in the paper."""
    return make_norm(config) if has_final_norm(config) else nn.Identity()


def relative_positions(config: ModelConfig, *, is_causal: bool) -> RelativePositions | None:
    """Return the position biases that the layers of a stack share; None without relative positions."""
    if config.positions != "relative":
        return None
    return RelativePositions(
        num_heads=config.num_heads,
        num_buckets=config.relative_attention_num_buckets,
        max_distance=config.relative_attention_max_distance,
        is_causal=is_causal,
    )

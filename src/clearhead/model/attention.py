"""Attention (paper section 3.2).

Shapes: B batch, H heads, T query length, S key length, D d_model, K key width (d_k), V value width (d_v).
Masks are boolean; True means the query may attend to the key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from clearhead.errors import ConfigError
from clearhead.kernels.bf16_linear import Linear, joined_linear
from clearhead.kernels.dropout import dropout as drop
from clearhead.kernels.packed_attention import KeyRanges, packed_attention
from clearhead.kernels.plain_code import is_plain
from clearhead.model.masks import causal_mask
from clearhead.model.other_positions import RotaryPositions


def scaled_dot_product_attention(
    q: Float[Tensor, "*heads T K"],
    k: Float[Tensor, "*heads S K"],
    v: Float[Tensor, "*heads S V"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    bias: Float[Tensor, "..."] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*heads T V"], Float[Tensor, "*heads T S"]]:
    """Attend each query to the keys it may see: softmax(q k^T / sqrt(d_k)) v (equation 1).

    Without dropout PyTorch's fused kernel runs in its place, and `translate` and `score` run the compiled core; with
    `plain=True`, `--plain` and in `explain`, this function. tests/unit/model/test_attention.py holds it and the kernel
    equal, tests/unit/decoding/test_native.py the core.

    Args:
        q: Queries.
        k: Keys.
        v: Values, one for each key.
        mask: True where a query may attend to a key; must broadcast to [*heads, T, S].
        bias: Added to the scores (`RelativePositions`); must broadcast to [*heads, T, S].
        dropout: Dropout rate on the weights before they multiply the values. Section 5.4 has none there; section 6.3
            mentions one for the parser, without a rate.

    Returns:
        The weighted sums of the values, and the weights before dropout. Each row of weights sums to 1; that of a query
        that may see no key is 0.
    """
    # Dot products grow with K and would push the softmax into flat gradients (footnote 4).
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)  # (*heads, T, S)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)  # (*heads, T, S)
    if mask is not None:
        # A query that may see no key gets NaN from the softmax, but sums nothing, as in PyTorch's kernel.
        weights = torch.where(mask, weights, 0.0)
    return drop(weights, dropout) @ v, weights


class MultiHeadAttention(nn.Module):
    """Multi-head attention: several attentions in parallel, each with its own projections (paper section 3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The paper's
    h projection matrices are the row blocks of one matrix here.

    Args:
        d_model: Width of the inputs and of the output.
        num_heads: Number of heads, h in the paper.
        d_k: Width of a query and a key; None for d_model / num_heads, which must then be an integer.
        d_v: Width of a value; None for d_model / num_heads, likewise.
        bias: Whether the projections have biases; the paper's equation and its parameter counts (Table 3) have none.
        dropout: Dropout rate on the attention weights, see `scaled_dot_product_attention`.
        scale: Whether to divide scores by sqrt(d_k).
        rotary: Rotate queries and keys by their positions (`RotaryPositions`); for self-attention.

    Raises:
        ConfigError: If a width defaults to d_model / num_heads and that is not an integer.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        scale: bool = True,
        rotary: bool = False,
    ) -> None:
        super().__init__()
        if d_model % num_heads and not (d_k and d_v):
            raise ConfigError(f"d_model ({d_model}) must be a multiple of num_heads ({num_heads}), or give d_k and d_v")
        d_k = d_k or d_model // num_heads
        d_v = d_v or d_model // num_heads
        self.num_heads = num_heads
        self.dropout = dropout
        self.scale = scale
        self.q_proj = Linear(d_model, num_heads * d_k, bias=bias)  # W^Q
        self.k_proj = Linear(d_model, num_heads * d_k, bias=bias)  # W^K
        self.v_proj = Linear(d_model, num_heads * d_v, bias=bias)  # W^V
        self.out_proj = Linear(num_heads * d_v, d_model, bias=bias)  # W^O
        self.rotary = RotaryPositions(head_dim=d_k) if rotary else None

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        mask: Bool[Tensor, "..."] | KeyRanges | None = None,
        weights: list[Tensor] | None = None,
        bias: Float[Tensor, "..."] | None = None,
        start: int | Int[Tensor, " T"] = 0,
    ) -> Float[Tensor, "B T D"]:
        """Attend from `query` to `memory`, or to itself if it is None (self-attention); for the rest, see `attend`."""
        if memory is None and isinstance(mask, KeyRanges):
            queries, keys, values = self.joined_projections(query, start)
            return self.attend(queries, keys, values, mask=mask, weights=weights, bias=bias)
        keys, values = self.keys_and_values(query if memory is None else memory, start)
        return self.attend(self.queries(query, start), keys, values, mask=mask, weights=weights, bias=bias)

    def queries(self, x: Float[Tensor, "B T D"], start: int | Int[Tensor, " T"] = 0) -> Float[Tensor, "B H T K"]:
        """Project queries, whose first position is `start`; of packed rows, `start` has the position of each."""
        q = self._split_heads(self.q_proj(x))
        if self.rotary is not None:
            q = self.rotary(q, start)
        return q if self.scale else q * math.sqrt(q.size(-1))  # cancels the division of equation 1

    def keys_and_values(
        self, memory: Float[Tensor, "B S D"], start: int | Int[Tensor, " S"] = 0
    ) -> tuple[Float[Tensor, "B H S K"], Float[Tensor, "B H S V"]]:
        """Project keys and values; `start` as for `queries`. A decoder caches the result between steps."""
        keys = self._split_heads(self.k_proj(memory))
        if self.rotary is not None:
            keys = self.rotary(keys, start)
        return keys, self._split_heads(self.v_proj(memory))

    def joined_projections(
        self, x: Float[Tensor, "1 N D"], start: int | Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "1 H N K"], Float[Tensor, "1 H N K"], Float[Tensor, "1 H N V"]]:
        """Return `queries` and `keys_and_values` of packed rows by one product, for a GPU."""
        q, k, v = map(self._split_heads, joined_linear(x, (self.q_proj, self.k_proj, self.v_proj)))
        if self.rotary is not None:
            q, k = self.rotary(q, start), self.rotary(k, start)
        return q if self.scale else q * math.sqrt(q.size(-1)), k, v  # as in `queries`

    def attend(
        self,
        queries: Float[Tensor, "B H T K"],
        keys: Float[Tensor, "B H S K"],
        values: Float[Tensor, "B H S V"],
        *,
        mask: Bool[Tensor, "..."] | KeyRanges | None = None,
        is_causal: bool = False,
        weights: list[Tensor] | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Attend from projected queries to projected keys and values.

        Args:
            queries: Projected queries, see `queries`.
            keys: Projected keys, see `keys_and_values`.
            values: Projected values.
            mask: True where a query may attend to a key; must broadcast to [B, H, T, S]. For packed rows
                (B = 1), the keys of each query.
            is_causal: Instead of a mask, with T = S: position t may attend to positions up to t.
            weights: If given, equation 1 is computed step by step, and its weights, [B, H, T, S], are appended. If not,
                PyTorch's fused kernel computes the same output without storing them, where it is the faster of the two.
            bias: Added to the scores; must broadcast to [B, H, T, S].
        """
        dropout = self.dropout if self.training else 0.0
        # On a CPU the fused kernel draws random numbers one by one.
        is_slow = dropout > 0.0 and queries.device.type == "cpu"
        is_fused = weights is None and not is_slow and not is_plain()
        if isinstance(mask, KeyRanges):
            if is_fused and dropout == 0.0 and bias is None and values.size(-1) == keys.size(-1):
                q, k, v = (rows.squeeze(0).transpose(0, 1) for rows in (queries, keys, values))
                heads = packed_attention(q, k, v, mask)  # (T, H, K)
                return self.out_proj(heads.flatten(1).unsqueeze(0))
            mask = mask.mask()
        if is_causal and (bias is not None or not is_fused):
            mask = causal_mask(queries.size(2), queries.device)
        if is_fused:
            if bias is not None:  # the kernel takes it in place of a mask
                mask, is_causal = bias if mask is None else bias.masked_fill(~mask, float("-inf")), False
            heads = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
            )
        else:
            heads, attended = scaled_dot_product_attention(queries, keys, values, mask, bias=bias, dropout=dropout)
            if weights is not None:
                weights.append(attended)
        joined = heads.transpose(1, 2).flatten(2)  # (B, T, H * V): Concat(head_1, ..., head_h)
        return self.out_proj(joined)

    def _split_heads(self, x: Float[Tensor, "B T HK"]) -> Float[Tensor, "B H T K"]:
        return x.view(*x.shape[:-1], self.num_heads, -1).transpose(1, 2)


def joined_keys_and_values(
    attentions: Sequence[MultiHeadAttention], memory: Float[Tensor, "1 S D"]
) -> list[tuple[Float[Tensor, "1 H S K"], Float[Tensor, "1 H S V"]]]:
    """Return `keys_and_values` of a packed memory in each attention, by one product, for a GPU; nothing rotates."""
    parts = joined_linear(memory, [projection for attn in attentions for projection in (attn.k_proj, attn.v_proj)])
    of_each = zip(attentions, parts[::2], parts[1::2], strict=True)
    return [(attn._split_heads(keys), attn._split_heads(values)) for attn, keys, values in of_each]


def log_attention_weights(
    q: Float[Tensor, "B T K"], k: Float[Tensor, "B S K"], mask: Bool[Tensor, "B 1 #T S"] | None
) -> Float[Tensor, "B T S"]:
    """Return the logarithms of one head's attention weights, in float32; the arguments are those of equation 1."""
    scores = ((q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)).float()  # (B, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, 0], float("-inf"))
    return scores.log_softmax(dim=-1)

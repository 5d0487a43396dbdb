"""The decoder (paper section 3.1, figure 1 right).

Shapes: B sentences, R rows of targets (B times the beams of a sentence), T target length, S source length, D d_model.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.attention import AttentionWeights, HeadOnSource
from clearhead.model.cache import DecoderCache, LayerCache
from clearhead.model.residual import keep
from clearhead.model.sublayers import Sublayers


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, then the feed-forward network, each as LayerNorm(x + Sublayer(x)).

    Args:
        sublayers: Makes the sub-layers.
        cross_attention: Whether the layer attends to a memory; False for a language model.
    """

    def __init__(self, sublayers: Sublayers, *, cross_attention: bool = True) -> None:
        super().__init__()
        self.self_attn = sublayers.self_attention()
        self.self_attn_residual = sublayers.residual()
        self.cross_attn = sublayers.cross_attention() if cross_attention else None
        self.cross_attn_residual = sublayers.residual() if cross_attention else None
        self.feed_forward = sublayers.feed_forward()
        self.feed_forward_residual = sublayers.residual()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B 1 1 S"] | None = None,
        cache: LayerCache | None = None,
        weights: AttentionWeights | None = None,
        bias: Float[Tensor, "1 H T past"] | None = None,
        seen: HeadOnSource | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Run the sub-layers; `cache` is extended by the new positions, `weights` and `seen` record attention.

        The input is either the whole target (T positions, no cache or an empty one), or one new position in each row
        (T = 1). `bias` is added to the scores of self-attention.
        """
        masked_self_attention = partial(self._masked_self_attention, cache=cache, weights=weights, bias=bias)
        x = self.self_attn_residual.add_and_norm(x, masked_self_attention)
        if self.cross_attn_residual is not None:
            assert memory is not None, "a decoder with cross-attention needs a memory"
            cross_attention = partial(
                self._cross_attention, memory=memory, mask=memory_mask, cache=cache, weights=weights, seen=seen
            )
            x = self.cross_attn_residual.add_and_norm(x, cross_attention)
        return self.feed_forward_residual.add_and_norm(x, self.feed_forward)

    def _masked_self_attention(
        self, x: Tensor, cache: LayerCache | None, weights: AttentionWeights | None, bias: Tensor | None
    ) -> Tensor:
        start = 0 if cache is None else cache.length
        assert x.size(1) == 1 or start == 0, "several positions at once need an empty cache"
        keys, values = self.self_attn.keys_and_values(x, start)
        if cache is not None:
            keys, values = cache.extend(keys, values)
        seen = None if weights is None else weights.decoder
        # A single new position may attend to all earlier ones; only several at once need the causal mask.
        return self.self_attn.attend(x, keys, values, start=start, is_causal=x.size(1) > 1, weights=seen, bias=bias)

    def _cross_attention(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        cache: LayerCache | None,
        weights: AttentionWeights | None,
        seen: HeadOnSource | None,
    ) -> Tensor:
        assert self.cross_attn is not None
        keys_and_values = None if cache is None else cache.memory
        if keys_and_values is None:
            memory = memory.view_as(memory)  # its gradients are then summed layer by layer, as in FSDP2: bitwise equal
            keys_and_values = self.cross_attn.keys_and_values(memory)
        if cache is not None:
            cache.memory = keys_and_values
        of_heads = None if weights is None else weights.cross
        # The beams of one sentence attend to the same memory: they become further queries on it, not copies of it.
        queries = x.reshape(memory.size(0), -1, x.size(-1))  # (B, R/B * T, D)
        attended = self.cross_attn.attend(queries, *keys_and_values, mask=mask, weights=of_heads, seen=seen)
        return attended.reshape(x.shape)


class Decoder(nn.Module):
    """A stack of decoder layers: from embedded target tokens and the memory to the states of the last layer.

    Args:
        sublayers: Makes the sub-layers of its layers.
        num_layers: Number of layers, N in the paper.
        cross_attention: Whether the layers attend to a memory.
    """

    def __init__(self, sublayers: Sublayers, *, num_layers: int, cross_attention: bool = True) -> None:
        super().__init__()
        self.relative_positions = sublayers.relative_positions(is_causal=True)
        self.layers = nn.ModuleList(DecoderLayer(sublayers, cross_attention=cross_attention) for _ in range(num_layers))
        self.final_norm = sublayers.end_of_stack()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B S"] | None = None,
        cache: DecoderCache | None = None,
        weights: AttentionWeights | None = None,
        hidden: list[Tensor] | None = None,
        seen: HeadOnSource | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Decode embedded target tokens; the other arguments are as for `Transformer.states`."""
        mask = None if memory_mask is None else memory_mask[:, None, None, :]  # (B, 1, 1, S)
        start = 0 if cache is None else cache.length
        bias = None if self.relative_positions is None else self.relative_positions(x.size(1), start)
        for index, layer in enumerate(self.layers):
            keep(x, hidden)
            own = seen if seen is not None and seen.layer == index else None
            x = layer(x, memory, mask, None if cache is None else cache.layers[index], weights, bias, own)
        return keep(self.final_norm(x), hidden)

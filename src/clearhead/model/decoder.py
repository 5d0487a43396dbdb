"""The decoder (paper section 3.1, figure 1 right).

Shapes: B sentences, R rows of targets (B times the beams of a sentence), T target length, S source length, D d_model,
H heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.model.cache import DecoderCache, LayerCache
from clearhead.model.sublayers import Sublayers

__all__ = ["Decoder", "DecoderLayer", "DecoderWeights"]


@dataclass
class DecoderWeights:
    """What the decoder's heads attended to, one tensor a layer."""

    self_attn: list[Float[Tensor, "R H T T"]] = field(default_factory=list)
    cross_attn: list[Float[Tensor, "R H T S"]] = field(default_factory=list)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the memory, then the feed-forward network.

    Args:
        cross_attention: Whether there is a memory to attend to; without, the layer is that of a language model.
        options: The fields of `Sublayers`.
    """

    def __init__(self, *, cross_attention: bool = True, **options: Any) -> None:
        super().__init__()
        make = Sublayers(**options)
        self.self_attn = make.self_attention()
        self.self_attn_residual = make.residual()
        self.cross_attn = make.cross_attention() if cross_attention else None
        self.cross_attn_residual = make.residual() if cross_attention else None
        self.feed_forward = make.feed_forward()
        self.feed_forward_residual = make.residual()

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None,
        memory_mask: Bool[Tensor, "B 1 1 S"] | None,
        cache: LayerCache,
        weights: DecoderWeights | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Run the sub-layers; the cache takes in the new positions, `weights` what each head attended to.

        The rows are either the whole target (T positions, empty cache) or one new position each (T = 1).
        """
        return_weights = weights is not None

        assert x.size(1) == 1 or cache.past is None, "several positions at once need an empty cache"
        h = self.self_attn_residual.before(x)
        start = cache.length
        keys, values = cache.extend(*self.self_attn.keys_and_values(h, start))
        # A single new position may see all that came before it; only several at once need the causal mask.
        attended, self_weights = self.self_attn.attend(
            h, keys, values, start=start, is_causal=x.size(1) > 1, return_weights=return_weights
        )
        x = self.self_attn_residual.after(x, attended)
        if weights is not None and self_weights is not None:
            weights.self_attn.append(self_weights)

        if self.cross_attn is not None and self.cross_attn_residual is not None:
            assert memory is not None, "a decoder with cross-attention needs a memory"
            h = self.cross_attn_residual.before(x)
            if cache.memory is None:
                cache.memory = self.cross_attn.keys_and_values(memory)
            # The beams of one sentence ask the same memory, so they are further queries on it, not copies of it.
            queries = h.reshape(memory.size(0), -1, h.size(-1))  # (B, R/B * T, D)
            attended, cross_weights = self.cross_attn.attend(
                queries, *cache.memory, mask=memory_mask, return_weights=return_weights
            )
            x = self.cross_attn_residual.after(x, attended.reshape(h.shape))
            if weights is not None and cross_weights is not None:
                weights.cross_attn.append(cross_weights)

        h = self.feed_forward_residual.before(x)
        return self.feed_forward_residual.after(x, self.feed_forward(h))


class Decoder(nn.Module):
    """A stack of decoder layers: embedded target tokens and the memory in, the last layer's states out.

    Args:
        num_layers: Layers, N in the paper.
        cross_attention: Whether there is a memory to attend to.
        final_norm: Whether one more norm ends the stack; None is only with norm="pre".
        options: The fields of `Sublayers`.
    """

    def __init__(
        self, *, num_layers: int, cross_attention: bool = True, final_norm: bool | None = None, **options: Any
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(cross_attention=cross_attention, **options) for _ in range(num_layers))
        self.final_norm = Sublayers(**options).final_norm(final_norm)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None,
        memory_mask: Bool[Tensor, "B S"] | None,
        cache: DecoderCache,
        weights: DecoderWeights | None = None,
    ) -> Float[Tensor, "R T D"]:
        """Decode a batch.

        Args:
            x: Embedded target tokens with their positions; R is a multiple of B, the rows of a sentence side by side.
            memory: The encoder's output; None without cross-attention.
            memory_mask: Which positions of the memory hold a token; None if all do.
            cache: Keys and values of earlier positions; takes in those of the new ones.
            weights: Takes in what every head attended to, if given.
        """
        mask = None if memory_mask is None else memory_mask[:, None, None, :]  # (B, 1, 1, S)
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            x = layer(x, memory, mask, layer_cache, weights)
        return self.final_norm(x)

"""The decoder (paper section 3.1, figure 1 right).

Shapes: B sentences, R rows of targets (B times the beams of a sentence), T target length, S source length, D d_model.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels.packed_attention import KeyRanges
from clearhead.model.attention import MultiHeadAttention, joined_keys_and_values, log_attention_weights
from clearhead.model.cache import DecoderCache, LayerCache
from clearhead.model.packing import Packing
from clearhead.model.recorder import NOTHING, Recorder
from clearhead.model.sublayers import (
    cross_attention,
    feed_forward,
    final_norm,
    relative_positions,
    residual,
    self_attention,
)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, then the feed-forward network, each as LayerNorm(x + Sublayer(x)).

    Args:
        config: Widths and options of the layer. It has no cross-attention if there is no encoder, as in a language
            model; the rest of a model's settings has no influence.

    >>> layer = DecoderLayer(ModelConfig(d_model=512, d_ff=2048, num_heads=8))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn = self_attention(config)
        self.self_attn_residual = residual(config)
        self.cross_attn = None if config.is_decoder_alone else cross_attention(config)
        self.cross_attn_residual = None if config.is_decoder_alone else residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B 1 1 S"] | Packing | None = None,
        cache: LayerCache | None = None,
        bias: Float[Tensor, "1 H T past"] | None = None,
        recorder: Recorder = NOTHING,
    ) -> Float[Tensor, "R T D"]:
        """Run the sub-layers; `cache` is extended by the new positions.

        The input is either the whole target (T positions, no cache or an empty one), or one new position in each row
        (T = 1). `bias` is added to the scores of self-attention. Packed rows have a packing in place of the mask.
        """
        packing = memory_mask if isinstance(memory_mask, Packing) else None
        masked_self_attention = partial(
            self._masked_self_attention, cache=cache, bias=bias, recorder=recorder, packing=packing
        )
        x = self.self_attn_residual.add_and_norm(x, masked_self_attention)
        if self.cross_attn_residual is not None:
            if memory is None:
                raise ValueError("a decoder with cross-attention needs a memory, from the encoder")
            visible = memory_mask.cross if isinstance(memory_mask, Packing) else memory_mask
            cross_attention = partial(
                self._cross_attention, memory=memory, mask=visible, cache=cache, recorder=recorder
            )
            x = self.cross_attn_residual.add_and_norm(x, cross_attention)
        return self.feed_forward_residual.add_and_norm(x, self.feed_forward)

    def _masked_self_attention(
        self, x: Tensor, cache: LayerCache | None, bias: Tensor | None, recorder: Recorder, packing: Packing | None
    ) -> Tensor:
        past = 0 if cache is None else cache.length
        if x.size(1) > 1 and past > 0:
            raise ValueError(f"after {past} cached positions, give one new position, not {x.size(1)}")
        if packing is None:
            keys, values = self.self_attn.keys_and_values(x, past)
            if cache is not None:
                keys, values = cache.extend(keys, values)
            queries = self.self_attn.queries(x, past)
        else:
            queries, keys, values = self.self_attn.joined_projections(x, packing.target_places)
        weights = None if recorder.weights is None else recorder.weights.decoder
        # A single new position may attend to all earlier ones; only several at once need the causal mask. To
        # torch.compile `in` is a bool, where `>` is a symbol, which the fused kernel refuses.
        is_causal = packing is None and x.size(1) not in (0, 1)
        visible = None if packing is None else packing.decoder
        return self.self_attn.attend(
            queries, keys, values, mask=visible, is_causal=is_causal, weights=weights, bias=bias
        )

    def _cross_attention(
        self, x: Tensor, memory: Tensor, mask: Tensor | KeyRanges | None, cache: LayerCache | None, recorder: Recorder
    ) -> Tensor:
        assert self.cross_attn is not None
        keys_and_values = None if cache is None else cache.memory
        if keys_and_values is None:
            memory = memory.view_as(memory)  # its gradients are then summed layer by layer, as in FSDP2: bitwise equal
            keys_and_values = self.cross_attn.keys_and_values(memory)
        if cache is not None:
            cache.memory = keys_and_values
        keys, values = keys_and_values
        # The beams of one sentence attend to the same memory: they become further queries on it, not copies of it.
        queries = self.cross_attn.queries(x.reshape(memory.size(0), -1, x.size(-1)))  # (B, H, R/B * T, K)
        if (head := recorder.head) is not None:
            seen = mask.mask()[None, None] if isinstance(mask, KeyRanges) else mask
            head.log_weights.append(log_attention_weights(queries[:, head.head], keys[:, head.head], seen))
        weights = None if recorder.weights is None else recorder.weights.cross
        return self.cross_attn.attend(queries, keys, values, mask=mask, weights=weights).reshape(x.shape)


class Decoder(nn.Module):
    """A stack of `num_decoder_layers` layers: from embedded target tokens and the memory to the decoder's states."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.relative_positions = relative_positions(config, is_causal=True)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.final_norm = final_norm(config)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "B S"] | Packing | None = None,
        cache: DecoderCache | None = None,
        recorder: Recorder = NOTHING,
    ) -> Float[Tensor, "R T D"]:
        """Decode embedded target tokens; the other arguments are as for `Transformer.states`."""
        mask = memory_mask[:, None, None, :] if isinstance(memory_mask, Tensor) else memory_mask  # (B, 1, 1, S)
        start = 0 if cache is None else cache.length
        bias = None if self.relative_positions is None else self.relative_positions(x.size(1), start)
        if isinstance(mask, Packing) and memory is not None:
            attentions = [layer.cross_attn for layer in self.layers if isinstance(layer.cross_attn, MultiHeadAttention)]
            cache = DecoderCache([LayerCache(memory=pair) for pair in joined_keys_and_values(attentions, memory)])
        for index, layer in enumerate(self.layers):
            if recorder.hidden is not None:
                recorder.hidden.decoder.append(x)
            is_other = recorder.head is not None and recorder.head.layer != index
            own = Recorder(recorder.weights) if is_other else recorder
            x = layer(x, memory, mask, None if cache is None else cache.layers[index], bias, own)
        x = self.final_norm(x)
        if recorder.hidden is not None:
            recorder.hidden.decoder.append(x)
        return x

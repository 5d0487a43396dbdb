"""The encoder (paper section 3.1, figure 1 left).

Shapes: B batch, S source length, D d_model.
"""

from __future__ import annotations

from functools import partial

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.kernels.packed_attention import KeyRanges
from clearhead.model.packing import Packing
from clearhead.model.recorder import NOTHING, Recorder
from clearhead.model.sublayers import feed_forward, final_norm, relative_positions, residual, self_attention


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each as LayerNorm(x + Sublayer(x)).

    Args:
        config: Widths and options of the layer; the rest of a model's settings has no influence.

    >>> layer = EncoderLayer(ModelConfig(d_model=512, d_ff=2048, num_heads=8))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attn = self_attention(config)
        self.self_attn_residual = residual(config)
        self.feed_forward = feed_forward(config)
        self.feed_forward_residual = residual(config)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B 1 1 S"] | KeyRanges,
        bias: Float[Tensor, "1 H S S"] | None = None,
        recorder: Recorder = NOTHING,
        start: int | Int[Tensor, " S"] = 0,
    ) -> Float[Tensor, "B S D"]:
        """Run the sub-layers; `bias` is added to the scores of attention, `start` has the positions of packed rows."""
        weights = None if recorder.weights is None else recorder.weights.encoder
        self_attention = partial(self.self_attn, mask=mask, weights=weights, bias=bias, start=start)
        x = self.self_attn_residual.add_and_norm(x, self_attention)
        return self.feed_forward_residual.add_and_norm(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of `num_encoder_layers` layers: from embedded source tokens to the memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.relative_positions = relative_positions(config, is_causal=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.final_norm = final_norm(config)

    def forward(
        self, x: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"] | Packing, recorder: Recorder = NOTHING
    ) -> Float[Tensor, "B S D"]:
        """Encode a batch.

        Args:
            x: Embedded source tokens with their positions.
            mask: True at positions that hold a token; or the packing of packed rows.
            recorder: What to record.
        """
        bias = None if self.relative_positions is None else self.relative_positions(x.size(1))
        visible = mask.encoder if isinstance(mask, Packing) else mask[:, None, None, :]
        start = mask.source_places if isinstance(mask, Packing) else 0
        for layer in self.layers:
            if recorder.hidden is not None:
                recorder.hidden.encoder.append(x)
            x = layer(x, visible, bias, recorder, start)
        x = self.final_norm(x)
        if recorder.hidden is not None:
            recorder.hidden.encoder.append(x)
        return x

"""Cross-attention weights of given pairs, as tensors.

Shapes: B pairs, H heads, T target length, S source length.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.model.transformer import Transformer


def cross_attention_weights(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> list[Float[Tensor, "B H T S"]]:
    """Return the cross-attention weights of each layer: one row for each target token, at the step that writes it.

    Args:
        model: An encoder-decoder in evaluation mode.
        source: Source ids, ended by `eos_id` and padded.
        target: Target ids, ended by `eos_id` and padded.
    """
    start = target.new_full((len(target), 1), model.config.bos_id)
    return model.attention_weights(source, torch.cat([start, target[:, :-1]], dim=1)).cross

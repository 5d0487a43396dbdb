"""Where the model looks in the source when it writes: the raw material of alignments.

Shapes: B pairs, T target length, S source length.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.model.transformer import Transformer

__all__ = ["cross_attention_weights"]


def cross_attention_weights(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> Float[Tensor, "B T S"]:
    """Return how much each target token looked at each source token before it was written, over all heads and layers.

    Args:
        model: An encoder-decoder in evaluation mode.
        source: Source ids, ended by `eos_id` and padded.
        target: Target ids, ended by `eos_id` and padded.
    """
    start = target.new_full((len(target), 1), model.config.bos_id)
    cross = model.attention_weights(source, torch.cat([start, target[:, :-1]], dim=1)).cross
    return torch.stack([layer.float().mean(dim=1) for layer in cross]).mean(dim=0)

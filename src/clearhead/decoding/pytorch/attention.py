"""Cross-attention weights of given pairs, as tensors.

Shapes: B pairs, L layers, H heads, T target length, S source length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.decoding.step import pad_batch
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


def cross_attention_of_pairs(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Float[np.ndarray, "L H T S"]]:
    """Return for each pair the cross-attention weights of every head, at the steps that write the target.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids of each sentence, ended by `eos_id`.
        targets: Target ids of each sentence, ended by `eos_id`.
    """
    source, target = (
        pad_batch([list(ids) for ids in side], model.config.pad_id).to(model.device) for side in (sources, targets)
    )
    layers = [layer.float().numpy(force=True) for layer in cross_attention_weights(model, source, target)]
    sizes = zip(map(len, targets), map(len, sources), strict=True)
    return [np.stack([layer[pair, :, :t, :s] for layer in layers]) for pair, (t, s) in enumerate(sizes)]

"""Guided alignment: one head of the decoder learns to look along links of words that are given.

Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models" (arXiv:1909.02074), section 4. There
the decoder runs a second time and sees the whole target; here it runs once, and the head is the one of the step that
reads a target token, which knows that token and those before it.

Shapes: B batch, T target length, S source length.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenLinks
from clearhead.errors import ConfigError

__all__ = ["GUIDED_HEAD", "guided_alignment_loss", "guided_layer"]

GUIDED_HEAD = 0
"""Of the heads of its layer, which are all alike before training."""


def guided_layer(train: TrainConfig, model: ModelConfig) -> int:
    """Return the decoder layer, counted from 0, of the head that learns from links.

    Raises:
        ConfigError: If the decoder has no such layer.
    """
    layer, count = train.guided_alignment_layer, model.num_decoder_layers
    if layer is not None and layer >= count:
        raise ConfigError(
            f"train.guided_alignment_layer ({layer}) counts from 0, and model.num_decoder_layers is {count}; give at "
            f"most {count - 1}"
        )
    return max(0, count - 2) if layer is None else layer


def guided_alignment_loss(log_weights: Float[Tensor, "B T S"], links: TokenLinks) -> Float[Tensor, ""]:
    """Return the cross-entropy between links and what a head attended to, in nats, summed over target tokens.

    Args:
        log_weights: Of the head, at each position that the decoder reads, the start token first.
        links: Of the batch; a target token without any counts nothing.
    """
    row, target, source = links.places.to(log_weights.device, non_blocking=True).unbind(dim=1)
    shares = links.shares.to(log_weights.device, non_blocking=True)
    # The start token is read first, so the token that is written at one step is read at the next.
    return -(log_weights[row, target + 1, source] * shares).sum()

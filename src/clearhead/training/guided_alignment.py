"""Guided alignment loss: one decoder head learns to attend along given word alignment links.

Garg et al. 2019, "Jointly Learning to Align and Translate with Transformer Models" (arXiv:1909.02074), section 4. In
the paper the decoder runs a second time and sees the whole target. Here it runs once: the alignment of a target token
is read at the next step, which takes that token as input and sees only it and earlier ones.

Shapes: B batch, T target length, S source length.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import TokenLinks
from clearhead.errors import ConfigError

GUIDED_HEAD = 0
"""Index of the guided head in its layer. Any index will do: before training all heads are equivalent."""


def guided_layer(train: TrainConfig, model: ModelConfig) -> int:
    """Return the decoder layer, counted from 0, that contains the guided head.

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
    """Return the cross-entropy between links and a head's attention weights, in nats, summed over target tokens.

    Args:
        log_weights: Log attention weights of the head at each decoder input position; position 0 is the start token.
        links: Links of the batch. A target token without links contributes nothing.
    """
    row, target, source = links.places.to(log_weights.device, non_blocking=True).unbind(dim=1)
    shares = links.shares.to(log_weights.device, non_blocking=True)
    # Decoder inputs begin with the start token, so the token predicted at one position is the input of the next.
    return -(log_weights[row, target + 1, source] * shares).sum()

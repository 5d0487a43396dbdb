"""Records of a pass: attention weights (paper section 3.2) and hidden states (figure 1), made on request.

Shapes: B batch, H heads, S source length, T target length, D d_model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass
class AttentionWeights:
    """Attention weights of every head, one tensor a layer; each row of the last axis sums to 1."""

    encoder: list[Float[Tensor, "B H S S"]] = field(default_factory=list)
    decoder: list[Float[Tensor, "B H T T"]] = field(default_factory=list)
    cross: list[Float[Tensor, "B H T S"]] = field(default_factory=list)


@dataclass
class HiddenStates:
    """States of either side: the embedded tokens, then the output of each layer.

    The last one is taken after the final norm, if there is one. It is the memory, or the input of the output projection
    (of the output transform, if the model has one).
    """

    encoder: list[Float[Tensor, "B S D"]] = field(default_factory=list)
    decoder: list[Float[Tensor, "B T D"]] = field(default_factory=list)


@dataclass
class HeadOnSource:
    """Attention of one decoder head to the source, recorded while all heads keep using fused kernels."""

    layer: int
    """Decoder layer, counted from 0."""
    head: int
    """Head of that layer, counted from 0."""
    log_weights: list[Float[Tensor, "B T S"]] = field(default_factory=list)
    """Logarithms of the weights, in float32, one tensor a pass; negative infinity at masked keys."""


@dataclass(frozen=True)
class Recorder:
    """What to record of a pass; give it to `Transformer.encode` and `Transformer.states`. None is not recorded."""

    weights: AttentionWeights | None = None
    """Filled while attention is computed step by step (equation 1) instead of by fused kernels."""
    hidden: HiddenStates | None = None
    head: HeadOnSource | None = None


NOTHING = Recorder()
"""The recorder of an ordinary pass."""

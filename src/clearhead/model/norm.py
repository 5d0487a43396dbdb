"""The normalisation of each position's vector (paper section 3.1, Ba et al. 2016).

Shapes: B batch, T length, D d_model.
"""

from __future__ import annotations

from torch import nn

from clearhead.choices import NormKind

__all__ = ["make_norm"]


def make_norm(kind: NormKind, d_model: int, eps: float) -> nn.Module:
    """Return a norm over the last axis.

    Args:
        kind: `layer` subtracts the mean, divides by the standard deviation, and has a gain and a bias (the paper's);
            `rms` divides by the root mean square and has a gain alone (Zhang and Sennrich 2019).
        d_model: Width of what it normalises.
        eps: Added to the variance or mean square.
    """
    match kind:
        case "layer":
            return nn.LayerNorm(d_model, eps=eps)
        case "rms":
            return nn.RMSNorm(d_model, eps=eps)

"""The residual connection around every sub-layer, with its dropout and norm (paper sections 3.1 and 5.4): "Add & Norm".

Shapes: B batch, S source length, T target length, D d_model.

    post (the paper)                    pre
    x ──┬── Sublayer ── Dropout ─┐      x ──┬── Norm ── Sublayer ── Dropout ─┐
        └────────────────────── (+)         └────────────────────────────── (+)
                                 │                                           │
                                Norm
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config.choices import NormKind, NormOrder
from clearhead.kernels.dropout import Dropout


def make_norm(kind: NormKind, d_model: int, eps: float) -> nn.Module:
    """Return a norm over the last axis.

    Args:
        kind: `layer` subtracts the mean, divides by the standard deviation, and has a gain and a bias (the paper's);
            `rms` divides by the root mean square and has a gain alone (Zhang and Sennrich 2019).
        d_model: Width of the last axis.
        eps: Added to the variance or mean square.
    """
    match kind:
        case "layer":
            return nn.LayerNorm(d_model, eps=eps)
        case "rms":
            return nn.RMSNorm(d_model, eps=eps)


class Residual(nn.Module):
    """The residual connection around a sub-layer, with its dropout and norm.

    Args:
        d_model: Model width.
        dropout: Dropout rate on the sub-layer's output, before it is added (section 5.4).
        norm: `post` or `pre`, see `add_and_norm`.
        norm_kind: Kind of norm, see `make_norm`.
        norm_eps: Added to the variance or mean square.
    """

    def __init__(
        self,
        *,
        d_model: int,
        dropout: float,
        norm: NormOrder = "post",
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.is_pre = norm == "pre"
        self.norm = make_norm(norm_kind, d_model, norm_eps)
        self.dropout = Dropout(dropout)

    def add_and_norm(
        self, x: Float[Tensor, "*batch D"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*batch D"]:
        """Return LayerNorm(x + Sublayer(x)), as in the paper, or with `pre` x + Sublayer(LayerNorm(x))."""
        if self.is_pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


@dataclass
class HiddenStates:
    """Recorded states of either side: the embedded tokens, then the output of each layer.

    The last one is taken after the final norm, if there is one. It is the memory, or the input of the output projection
    (of the output transform, if the model has one).
    """

    encoder: list[Float[Tensor, "B S D"]] = field(default_factory=list)
    decoder: list[Float[Tensor, "B T D"]] = field(default_factory=list)


def keep(x: Tensor, hidden: list[Tensor] | None) -> Tensor:
    """Return x; append it to `hidden`, if given."""
    if hidden is not None:
        hidden.append(x)
    return x

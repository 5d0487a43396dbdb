"""The residual connection around every sub-layer, with its dropout and norm (paper sections 3.1 and 5.4): "Add & Norm".

Shapes: D d_model.

    post (the paper)                    pre
    x ──┬── Sublayer ── Dropout ─┐      x ──┬── Norm ── Sublayer ── Dropout ─┐
        └────────────────────── (+)         └────────────────────────────── (+)
                                 │                                           │
                                Norm
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.kernels.dropout import Dropout


class Residual(nn.Module):
    """The residual connection around a sub-layer, with its dropout and norm.

    Args:
        norm: Norm over the features; LayerNorm in the paper.
        dropout: Dropout rate on the sub-layer's output, before it is added (section 5.4).
        is_pre: Whether the norm is before the sub-layer; in the paper it is after the sum.
    """

    def __init__(self, norm: nn.Module, *, dropout: float, is_pre: bool = False) -> None:
        super().__init__()
        self.is_pre = is_pre
        self.norm = norm
        self.dropout = Dropout(dropout)

    def add_and_norm(
        self, x: Float[Tensor, "*batch D"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*batch D"]:
        """Return LayerNorm(x + Sublayer(x)), as in the paper, or with `is_pre` x + Sublayer(LayerNorm(x))."""
        if self.is_pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

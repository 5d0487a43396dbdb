"""The residual connection around every sub-layer, with its dropout and norm (paper sections 3.1 and 5.4).

Shapes: D d_model.

    post (the paper)                    pre
    x ──┬── Sublayer ── Dropout ─┐      x ──┬── Norm ── Sublayer ── Dropout ─┐
        └────────────────────── (+)         └────────────────────────────── (+)
                                 │                                           │
                                Norm
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.choices import NormKind, NormOrder
from clearhead.model.dropout import Dropout
from clearhead.model.norm import make_norm

__all__ = ["Residual"]


class Residual(nn.Module):
    """What stands before and after a sub-layer.

    `post` is LayerNorm(x + Dropout(Sublayer(x))), as the paper prints it; `pre` is x + Dropout(Sublayer(LayerNorm(x))).

    Args:
        d_model: Width of the model.
        dropout: Rate on the sub-layer's output, before it is added (section 5.4).
        norm: `post` or `pre`.
        norm_kind: `layer` or `rms`, see `make_norm`.
        norm_eps: Added to the variance inside the norm.
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

    def before(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Return what the sub-layer reads."""
        return self.norm(x) if self.is_pre else x

    def after(self, x: Float[Tensor, "*batch D"], update: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Add the sub-layer's output to what came in."""
        x = x + self.dropout(update)
        return x if self.is_pre else self.norm(x)

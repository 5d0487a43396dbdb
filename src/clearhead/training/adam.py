"""Adam's update (paper section 5.3) as a function, for optimisers that keep their own state tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim.adam import adam


def move_by_adam(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor],
    states: Sequence[Mapping[str, Tensor]],
    *,
    rate: float,
    group: Mapping[str, Any],
) -> None:
    """Apply one Adam update to tensors in place, without weight decay.

    Args:
        tensors: Weights of any shapes.
        gradients: One gradient for each tensor, of the same shape.
        states: One state for each tensor: `step` [], and `exp_avg` and `exp_avg_sq` of its shape. Updated in place.
        rate: Learning rate.
        group: Parameter group of the optimiser, from which `betas` and `eps` are read.
    """
    adam(
        list(tensors),
        list(gradients),
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        fused=True,
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=rate,
        weight_decay=0.0,
        eps=group["eps"],
        maximize=False,
    )

"""Adam's update (paper section 5.3) for optimisers of ours, which keep their tensors themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim.adam import adam

__all__ = ["move_by_adam"]


def move_by_adam(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor],
    states: Sequence[Mapping[str, Tensor]],
    *,
    rate: float,
    group: Mapping[str, Any],
) -> None:
    """Move tensors in place by their gradients, without weight decay.

    Args:
        tensors: Of any shape each.
        gradients: Of the same shapes.
        states: Of each, `step` [], and `exp_avg` and `exp_avg_sq` of its shape, which are updated.
        rate: Learning rate.
        group: Of the optimiser; `betas` and `eps` count.
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

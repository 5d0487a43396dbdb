"""Muon optimiser: orthogonalised momentum for matrices inside layers, Adam for other weights (Jordan et al. 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.runtime.device import has_fast_bf16
from clearhead.training.adam import move_by_adam
from clearhead.training.distributed import part_like, whole

_MOMENTUM = 0.95
_ADAM_SIZE = 0.2
"""Root mean square of Adam's usual update, to which Muon's update is scaled (Liu et al. 2025, section 2.2)."""
_ADAM_SHARE = 0.3
"""Factor on the learning rate for the weights that Adam updates.

At Muon's full rate, embeddings keep growing throughout training, and the model becomes overconfident (docs/recipes.md).
"""

# Quintic polynomial that moves every singular value towards 1, quickly rather than exactly (Jordan et al. 2024).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Optimiser that updates each hidden matrix by its momentum with all singular values made nearly equal.

    Args:
        matrices: Hidden weight matrices.
        others: Embeddings, biases and norms, which Adam updates at a fraction of the learning rate.
        betas: Adam's beta_1 and beta_2.
        eps: Adam's epsilon.
        weight_decay: Decoupled weight decay of the matrices, per unit of learning rate.
        rounded: Whether to iterate in bfloat16 where the device supports it. An update direction needs no more digits.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        rounded: bool = True,
    ) -> None:
        self.rounded = rounded
        groups = [{"params": list(matrices), "is_matrix": True}, {"params": list(others), "is_matrix": False}]
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def moves_as_matrix(self, parameter: nn.Parameter) -> bool:
        """Return whether a parameter is one of the hidden matrices."""
        return any(parameter is matrix for matrix in self.param_groups[0]["params"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter from its gradient."""
        assert closure is None, "this optimiser does not evaluate the loss"
        for group in self.param_groups:
            if group["is_matrix"]:
                self._move_matrices(group)
            else:
                self._move_others(group)

    def _move_matrices(self, group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape[parameter.shape].append(parameter)
        for shape, parameters in by_shape.items():
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(parameter)
            momenta = [self.state[parameter]["momentum"] for parameter in parameters]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(momenta, _MOMENTUM)
            torch._foreach_add_(momenta, gradients)
            # Nesterov momentum: look one step ahead.
            looked = torch._foreach_add(gradients, momenta, alpha=_MOMENTUM)
            ahead = torch.stack([whole(matrix) for matrix in looked])  # (count, rows, columns)
            size = _ADAM_SIZE * max(shape) ** 0.5
            straight = orthogonalised(ahead, rounded=self.rounded).unbind()
            updates = [part_like(update, matrix) for update, matrix in zip(straight, parameters, strict=True)]
            torch._foreach_mul_(parameters, 1.0 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-group["lr"] * size)

    def _move_others(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["step"] = torch.zeros((), device=parameter.device)
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        move_by_adam(parameters, gradients, states, rate=_ADAM_SHARE * group["lr"], group=group)


def orthogonalised(
    matrices: Float[Tensor, "count rows columns"], *, rounded: bool = True
) -> Float[Tensor, "count rows columns"]:
    """Return matrices with singular values moved near 1 (0.7 to 1.2) by Newton-Schulz iterations.

    Args:
        matrices: Matrices of one shape; each is orthogonalised separately.
        rounded: Whether to iterate in bfloat16 where the device supports it.
    """
    is_tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.transpose(-2, -1) if is_tall else matrices
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).contiguous()
    if rounded and has_fast_bf16(x.device):
        x = x.bfloat16()  # 2.5 times as fast on a CPU with AVX-512 BF16, for the shapes of every step
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.transpose(-2, -1)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b gram + c gram^2
        x = torch.baddbmm(x, polynomial, x, beta=a)  # a x + polynomial x
    x = x.to(matrices.dtype)
    return x.transpose(-2, -1) if is_tall else x

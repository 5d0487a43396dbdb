"""LoRA (Hu et al. 2021) as an optimiser: Adam on low-rank factors whose product is added to the matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.training.adam import move_by_adam


class LowRankAdam(torch.optim.Optimizer):
    """Adam on two thin matrices A and B for each matrix W = W0 + (alpha / rank) B A.

    The gradients of A and B follow from that of W. After each step W is changed by as much as the product has changed.
    So the model has ordinary weights at every step, and at the end there is nothing to merge.

    Args:
        matrices: The matrices W, each of shape (rows, columns).
        rank: Rank of the update: A is (rank, columns), B is (rows, rank).
        alpha: Scale of the product; it is divided by the rank.
        betas: Adam's beta_1 and beta_2.
        eps: Adam's epsilon.
        seed: Seed of the random initial A. B starts at 0, so W starts at W0.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        rank: int,
        alpha: float,
        betas: tuple[float, float],
        eps: float,
        seed: int,
    ) -> None:
        super().__init__(list(matrices), {"lr": 0.0, "betas": betas, "eps": eps})
        self.scale = alpha / rank
        drawn = torch.Generator().manual_seed(seed)
        for matrix in self.param_groups[0]["params"]:
            rows, columns = matrix.shape
            a = torch.empty(rank, columns).uniform_(-(columns**-0.5), columns**-0.5, generator=drawn)
            thin = torch.cat([a, torch.zeros(rank, rows)], dim=1).to(matrix)  # A and transposed B
            moments = {name: torch.zeros_like(thin) for name in ("exp_avg", "exp_avg_sq")}
            self.state[matrix] = {"thin": thin, **moments, "step": torch.zeros((), device=matrix.device)}

    def state_shapes(self, matrix: nn.Parameter) -> dict[str, torch.Size]:
        """Return the shape of every state tensor of a matrix."""
        return {name: tensor.shape for name, tensor in self.state[matrix].items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix from its gradient."""
        assert closure is None, "this optimiser does not evaluate the loss"
        group = self.param_groups[0]
        moving = [matrix for matrix in group["params"] if matrix.grad is not None]
        states = [self.state[matrix] for matrix in moving]
        thins = [state["thin"] for state in states]
        before = [self._product(thin, matrix) for thin, matrix in zip(thins, moving, strict=True)]
        gradients = [self._thin_gradient(thin, matrix) for thin, matrix in zip(thins, moving, strict=True)]
        move_by_adam(thins, gradients, states, rate=group["lr"], group=group)
        for matrix, thin, product in zip(moving, thins, before, strict=True):
            matrix.add_(self._product(thin, matrix) - product)

    def _product(self, thin: Float[Tensor, "rank both"], matrix: nn.Parameter) -> Float[Tensor, "rows columns"]:
        a, b_transposed = thin.split([matrix.size(1), matrix.size(0)], dim=1)
        return self.scale * b_transposed.t() @ a

    def _thin_gradient(self, thin: Float[Tensor, "rank both"], matrix: nn.Parameter) -> Float[Tensor, "rank both"]:
        """Return the gradients of A and of B transposed, side by side, by the chain rule on W0 + scale B A."""
        assert matrix.grad is not None, "only matrices with a gradient move"
        a, b_transposed = thin.split([matrix.size(1), matrix.size(0)], dim=1)
        return self.scale * torch.cat([b_transposed @ matrix.grad, a @ matrix.grad.t()], dim=1)

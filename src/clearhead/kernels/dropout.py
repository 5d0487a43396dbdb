"""Dropout (paper section 5.4, Srivastava et al. 2014), with masks that cost little on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Dropout", "dropout", "keep_mask", "relu_dropout"]

_LEVELS = 2**16


class Dropout(nn.Module):
    """Set elements to zero at random in training, and scale the others up so that their mean stays.

    Args:
        rate: Probability of zero; on a CPU rounded to a multiple of 2 ** -16.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training; return `x` as it is otherwise."""
        return dropout(x, self.rate) if self.training else x

    def after(self, activation: Callable[[Tensor], Tensor], x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop elements of `activation(x)`; ReLU and dropout on a CPU are one pass, see `relu_dropout`."""
        if activation is functional.relu and self.training and self.rate and x.device.type == "cpu":
            return relu_dropout(x, self.rate)
        return self(activation(x))

    def extra_repr(self) -> str:
        """Show the rate where modules are printed."""
        return f"rate={self.rate}"


def dropout(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Drop elements with probability `rate`."""
    if rate == 0.0:
        return x
    if x.device.type != "cpu":
        return functional.dropout(x, rate)
    return x * keep_mask(x, rate)


def relu_dropout(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return `dropout(relu(x), rate)`, keeping for the gradient nothing but that result.

    An element of it is zero where either function closed, and lets the gradient through anywhere else.
    """
    return _ReluDropout.apply(x, rate)  # type: ignore[no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        mask = keep_mask(x, rate)
        result = functional.relu(x).mul_(mask)
        ctx.save_for_backward(result)
        ctx.scale = _scale(rate)
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(grad_outputs[0], result, 0.0).mul_(ctx.scale), None


def keep_mask(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return a factor for each element: 0 with probability `rate`, else what keeps the mean.

    PyTorch draws one number after the other on a CPU and spends a third of a training step on it. One 64-bit word makes
    four elements here, and comparing them is vectorised: about a tenth of the time.
    """
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform over -2**15 .. 2**15 - 1
    mask = torch.empty_like(x)
    torch.ge(draws, _dropped_levels(rate) - _LEVELS // 2, out=mask)
    return mask.mul_(_scale(rate))


def _dropped_levels(rate: float) -> int:
    return min(round(rate * _LEVELS), _LEVELS - 1)


def _scale(rate: float) -> float:
    return _LEVELS / (_LEVELS - _dropped_levels(rate))

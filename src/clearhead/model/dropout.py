"""Dropout (paper section 5.4, Srivastava et al. 2014), with masks that cost little on a CPU."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Dropout", "keep_mask"]

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
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.rate)
        return x * keep_mask(x, self.rate)

    def extra_repr(self) -> str:
        """Show the rate where modules are printed."""
        return f"rate={self.rate}"


def keep_mask(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return a factor for each element: 0 with probability `rate`, else what keeps the mean.

    PyTorch draws one number after the other on a CPU and spends a third of a training step on it. One 64-bit word makes
    four elements here, and comparing them is vectorised: about a tenth of the time.
    """
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform over -2**15 .. 2**15 - 1
    mask = torch.empty_like(x)
    torch.ge(draws, dropped - _LEVELS // 2, out=mask)
    return mask.mul_(_LEVELS / (_LEVELS - dropped))

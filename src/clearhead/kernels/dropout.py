"""Dropout (paper section 5.4); on a CPU with fast masks, fused with ReLU and, on request, drawn by batch row.

The method is that of Srivastava et al. 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int16, Int64
from torch import Tensor, nn
from torch.nn import functional

from clearhead.kernels.plain_code import is_plain

_LEVELS = 2**16


class Dropout(nn.Module):
    """Zero elements at random in training, and scale up the others to preserve the mean.

    Args:
        rate: Probability of zero; on a CPU rounded to a multiple of 2 ** -16.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Apply dropout in training; return `x` unchanged otherwise."""
        return dropout(x, self.rate) if self.training else x

    def after(self, activation: Callable[[Tensor], Tensor], x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return dropout of `activation(x)`; on a CPU, ReLU and dropout are fused, see `relu_dropout`."""
        if activation is functional.relu and _are_masks_ours(x) and self.training and self.rate:
            return relu_dropout(x, self.rate)
        return self(activation(x))

    def extra_repr(self) -> str:
        """Return the rate, shown when modules are printed."""
        return f"rate={self.rate}"


def dropout(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Zero elements with probability `rate`, and scale up the others."""
    if rate == 0.0:
        return x
    return x * keep_mask(x, rate) if _are_masks_ours(x) else functional.dropout(x, rate)


def _are_masks_ours(x: Tensor) -> bool:
    """Return whether masks are drawn here: on a CPU, where that is faster; a compiler fuses PyTorch's own dropout."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not is_plain()


def relu_dropout(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return `dropout(relu(x), rate)`, saving only the result for the backward pass.

    Where the result is zero, ReLU or dropout zeroed it and the gradient is zero; elsewhere the gradient passes.
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
    """Return a factor for each element: 0 with probability `rate`, else the scale that preserves the mean.

    On a CPU, PyTorch draws one number after another and spends a third of a training step on it. Here one 64-bit word
    serves four elements, with a vectorized comparison: about a tenth of the time.
    """
    rows = _ROWS.get()
    draws = _draws(x.shape) if rows is None else rows.draws(x.shape)
    mask = torch.empty_like(x)
    torch.ge(draws, _dropped_levels(rate) - _LEVELS // 2, out=mask)
    return mask.mul_(_scale(rate))


@contextmanager
def drawn_by_row(seed: int, rows: Sequence[int]) -> Iterator[None]:
    """Make dropout on a CPU depend only on the seed and the number of each batch row.

    The other rows of the batch and the padding have no influence: a row drops the same elements in any process and in
    any part of a step. The operations in the block must run in the same order.

    Args:
        seed: A 64-bit word; use a different one for every step.
        rows: A number for each row of the batches in the block.
    """
    numbers = torch.tensor(rows, dtype=torch.int64)
    token = _ROWS.set(_Rows(_mixed((numbers + 1) * _ODD[0] + _signed(seed))))
    try:
        yield
    finally:
        _ROWS.reset(token)


def _draws(shape: torch.Size) -> Int16[Tensor, "*shape"]:
    """Draw uniformly from -2**15 to 2**15 - 1 with PyTorch's generator."""
    words = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[: shape.numel()].view(shape)


# Odd numbers without a pattern, which spread counters over 64 bits, for the finalizer of SplitMix64 (Steele, Lea and
# Flood 2014), which turns them into pseudorandom words.
_ODD = (-7046029254386353131, -4417276706812531889, -7800511283803183837, -3335678366873096957, -8663945395140668459)
_MULTIPLIERS = (-4658895280553007687, -7723592293110705685)


def _signed(number: int) -> int:
    """Return the lowest 64 bits of a number as a signed word, as PyTorch stores it."""
    return (number + 2**63) % 2**64 - 2**63


def _mixed(words: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
    """Mix the bits of each word, in place."""
    shifted = torch.empty_like(words)
    for shift, multiplier in zip((30, 27, 31), (*_MULTIPLIERS, 1), strict=True):
        torch.bitwise_right_shift(words, shift, out=shifted)
        shifted.bitwise_and_(2 ** (64 - shift) - 1)  # the right shift of int64 copies the sign bit
        words.bitwise_xor_(shifted)
        if multiplier != 1:
            words.mul_(multiplier)
    return words


@dataclass
class _Rows:
    """Random numbers for the rows of a batch, each from its own counter."""

    keys: Int64[Tensor, " B"]
    calls: int = 0

    def draws(self, shape: torch.Size) -> Int16[Tensor, "*shape"]:
        """Draw uniformly from -2**15 to 2**15 - 1 for a tensor whose first axis is the rows."""
        if shape[0] != len(self.keys):
            raise ValueError(f"dropout by row needs {len(self.keys)} rows first, not a tensor of {tuple(shape)}")
        self.calls += 1
        counters = self.keys + _signed(self.calls * _ODD[1])
        *outer, last = shape[1:]
        for odd, size in zip(_ODD[2:], (*outer, -(-last // 4)), strict=False):
            counters = counters[..., None] + torch.arange(size) * odd
        return _mixed(counters).view(torch.int16)[..., :last]


_ROWS: ContextVar[_Rows | None] = ContextVar("_ROWS", default=None)


def _dropped_levels(rate: float) -> int:
    return min(round(rate * _LEVELS), _LEVELS - 1)


def _scale(rate: float) -> float:
    return _LEVELS / (_LEVELS - _dropped_levels(rate))

"""Linear layers, whose matrix products can be rounded on a CPU: inputs in bfloat16, sums and results in float32.

Processors with AMX do that three times as fast as float32. But their library (oneDNN) prepares for every new shape, and
that takes longer than a product. So only whole blocks of rows are rounded, and the few rows left over are not.

Shapes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["ROUNDED_ROWS", "Linear", "are_products_bf16", "bf16_products", "rounding"]

ROUNDED_ROWS = 128
"""Rows in a block."""

_ONEDNN: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # made at run time

_are_bf16 = ContextVar("_are_bf16", default=False)


@contextmanager
def bf16_products() -> Iterator[None]:
    """Round the products of the linear layers and the loss that run inside, and of their gradients later."""
    token = _are_bf16.set(True)
    try:
        yield
    finally:
        _are_bf16.reset(token)


def are_products_bf16() -> bool:
    """Tell whether this runs inside `bf16_products`."""
    return _are_bf16.get()


class Linear(nn.Linear):
    """`torch.nn.Linear`, rounded inside `bf16_products`."""

    def forward(self, x: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch M"]:
        """Return x W^T + b."""
        if are_products_bf16():
            return _RoundedLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return super().forward(x)


class _RoundedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        result = _product(x.flatten(0, -2), weight.t())
        if bias is not None:
            result += bias
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows, grad_rows = x.flatten(0, -2), grad_outputs[0].flatten(0, -2)
        grad_x = _product(grad_rows, weight).view(x.shape)
        cut = len(rows) - len(rows) % ROUNDED_ROWS
        with rounding():
            grad_weight = grad_rows[:cut].t() @ rows[:cut]
        if cut < len(rows):
            grad_weight.addmm_(grad_rows[cut:].t(), rows[cut:])
        return grad_x, grad_weight, grad_rows.sum(dim=0) if ctx.has_bias else None


def _product(rows: Float[Tensor, "N K"], matrix: Float[Tensor, "K M"]) -> Float[Tensor, "N M"]:
    cut = len(rows) - len(rows) % ROUNDED_ROWS
    if cut == 0:
        return rows @ matrix
    result = rows.new_empty(len(rows), matrix.size(1))
    with rounding():
        torch.mm(rows[:cut], matrix, out=result[:cut])
    if cut < len(rows):
        torch.mm(rows[cut:], matrix, out=result[cut:])
    return result


@contextmanager
def rounding() -> Iterator[None]:
    """Round all products on the CPU inside; best with a multiple of `ROUNDED_ROWS` rows."""
    before = _ONEDNN.fp32_precision
    _ONEDNN.fp32_precision = "bf16"
    try:
        yield
    finally:
        _ONEDNN.fp32_precision = before

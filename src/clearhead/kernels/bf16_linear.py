"""Linear layers with optional bfloat16 products on a CPU: inputs and results rounded, sums in float32.

Processors with bfloat16 instructions (AMX, AVX-512 BF16) multiply several times as fast as in float32. But their
library (oneDNN) prepares for every new shape, which takes longer than a product. So only whole blocks of rows are
rounded, and the remaining rows stay in float32.

PyTorch can keep the results in float32 (`torch.backends.mkldnn.matmul.fp32_precision`), but that switch is global:
float32 products of other threads would be rounded too. Rounding the results adds little to a gradient's error
(docs/performance.md): rounding the inputs already costs as much.

Shapes: N rows, C of them in whole blocks, K inputs, M outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor, nn
from torch.nn import functional

from clearhead.runtime.device import can_multiply_bf16

ROUNDED_ROWS = 128
"""Rows per block."""

_are_bf16 = ContextVar("_are_bf16", default=False)


@contextmanager
def bf16_products() -> Iterator[None]:
    """Round the products of the linear layers in this context, and of their gradients later.

    On a CPU without bfloat16 instructions nothing is rounded, because it would take many times as long as float32.
    """
    token = _are_bf16.set(can_multiply_bf16())
    try:
        yield
    finally:
        _are_bf16.reset(token)


def are_products_bf16() -> bool:
    """Return whether products are rounded: inside `bf16_products`, on a CPU with bfloat16 instructions.

    Never inside torch.compile, which `train.precision` excludes on a CPU.
    """
    return not torch.compiler.is_compiling() and _are_bf16.get()


def bf16_product(a: Float[Tensor, "N K"], b: Float[Tensor, "K M"]) -> BFloat16[Tensor, "N M"]:
    """Return the product of a and b, rounded to bfloat16; most efficient with a multiple of `ROUNDED_ROWS` rows."""
    return a.bfloat16() @ b.bfloat16()


class Linear(nn.Linear):
    """A `torch.nn.Linear` whose products are rounded inside `bf16_products`."""

    def forward(self, x: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch M"]:
        """Return x W^T + b."""
        if are_products_bf16():
            return _RoundedLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return super().forward(x)


def joined_linear(x: Float[Tensor, "*batch K"], layers: Sequence[Linear]) -> tuple[Float[Tensor, "*batch _"], ...]:
    """Return the output of each layer by one product of their joined weights, for a GPU; all have biases or none."""
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    weight = torch.cat([layer.weight for layer in layers])
    product = functional.linear(x, weight, torch.cat(biases) if biases else None)
    return product.split([layer.out_features for layer in layers], dim=-1)


class _RoundedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        rows = x.flatten(0, -2)
        result = _product(rows, _rounded(rows), weight.t())  # not kept for the gradient, to save memory
        if bias is not None:
            result += bias
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows, grad_rows = x.flatten(0, -2), grad_outputs[0].flatten(0, -2)
        rounded = _rounded(grad_rows)
        grad_x, cut = _product(grad_rows, rounded, weight).view(x.shape), len(rounded)
        grad_weight = bf16_product(rounded.t(), rows[:cut]).float()
        if cut < len(rows):
            grad_weight.addmm_(grad_rows[cut:].t(), rows[cut:])
        return grad_x, grad_weight, grad_rows.sum(dim=0) if ctx.has_bias else None


def _rounded(rows: Float[Tensor, "N K"]) -> BFloat16[Tensor, "C K"]:
    return rows[: len(rows) - len(rows) % ROUNDED_ROWS].bfloat16()


def _product(
    rows: Float[Tensor, "N K"], rounded: BFloat16[Tensor, "C K"], matrix: Float[Tensor, "K M"]
) -> Float[Tensor, "N M"]:
    cut = len(rounded)
    if cut == 0:
        return rows @ matrix
    result = rows.new_empty(len(rows), matrix.size(1))
    result[:cut] = bf16_product(rounded, matrix)
    if cut < len(rows):
        torch.mm(rows[cut:], matrix, out=result[cut:])
    return result

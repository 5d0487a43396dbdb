"""PyTorch matrix products for decoding: in float32, bfloat16, or 8-bit integers.

bfloat16 halves the memory traffic and is several times as fast on processors with bfloat16 instructions (GPUs, CPUs
with AMX). 8-bit integers need a CPU with VNNI. Both round, so translations may differ slightly from the model's own,
but tokens are always compared in float32. Products of more rows may sum in another order, and rounding can then differ
in the last bit; in the compiled core, each row's result depends on that row alone.

Shapes: R rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from clearhead.config import DecodePrecision
from clearhead.errors import DeviceError
from clearhead.runtime.device import can_multiply_bf16

Product = Callable[[Float[Tensor, "R I"]], Float[Tensor, "R O"]]
"""A function that computes x W^T + b for rows x, in float32."""

SHAPE_ROWS = 32
"""Row counts are padded to multiples of this, because oneDNN prepares for every new one, which takes longer than a
product."""


def make_product(
    weights: Sequence[Float[Tensor, "_ I"]],
    biases: Sequence[Float[Tensor, " _"] | None],
    precision: DecodePrecision,
    *,
    is_output: bool = False,
) -> Product:
    """Return one product that applies several matrices to the same rows and concatenates the results.

    Args:
        weights: The matrices.
        biases: Bias of each matrix; None for matrices without.
        precision: Precision of the factors.
        is_output: Whether the results are logits, from which the best tokens are selected.

    Raises:
        DeviceError: If the device does not support the precision.
    """
    weight = torch.cat([weight.detach() for weight in weights]) if len(weights) > 1 else weights[0].detach()
    if precision in ("int8", "bf16x3") and weight.device.type != "cpu":
        raise DeviceError(
            f"{precision} translation needs a CPU, and the model is on {weight.device}; use --device cpu, or "
            f"--precision bf16"
        )
    given = [bias.detach() for bias in biases if bias is not None]
    bias = torch.cat(given) if given else None
    match precision:
        case "fp32":
            # A transposed large matrix is faster with few rows; for a small one the second copy is not worth it.
            return _Float32Product(weight.t().contiguous() if is_output or len(weights) > 1 else weight.t(), bias)
        case "bf16":
            if not is_output:
                return _BFloat16Product(weight, bias)
            return _BFloat16Logits(weight, bias) if can_multiply_bf16() else _Float32Product(weight.t(), bias)
        case "int8":
            return _Int8Product(weight, bias)
        case "fp16":
            raise DeviceError("fp16 translation needs a GPU; use --device cuda, --precision bf16 or --precision fp32")
        case "bf16x3":
            raise DeviceError(
                "bf16x3 translation needs the compiled core (a C compiler where clearhead was installed) and a model "
                "whose widths are multiples of 32; use --precision fp32"
            )


class _Float32Product:
    def __init__(self, matrix: Float[Tensor, "I O"], bias: Tensor | None) -> None:
        self.matrix = matrix
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.matrix if self.bias is None else torch.addmm(self.bias, x, self.matrix)


class _BFloat16Product:
    """A product with bfloat16 inputs, weights and results."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.bfloat16()
        self.bias = None if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(_whole(x.bfloat16()), self.weight, self.bias)[: len(x)].float()


class _BFloat16Logits:
    """A product with bfloat16 factors and float32 results, because 8 significant bits would make many logits equal.

    PyTorch's bfloat16 products return bfloat16. A second product computes what the first one rounded off. Rows are
    multiplied in blocks of one size, because on some processors oneDNN's order of summation depends on their number.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.matrix = weight.bfloat16().t()
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        blocks = _whole(x.bfloat16()).split(SHAPE_ROWS)
        result = torch.cat([self._logits(rows) for rows in blocks])[: len(x)]
        return result if self.bias is None else result.add_(self.bias)

    def _logits(self, rows: Tensor) -> Tensor:
        high = rows @ self.matrix
        return torch.addmm(high, rows, self.matrix, beta=-1).float().add_(high)


class _Int8Product:
    """A product of 8-bit weights with a scale per output, and 8-bit rows with a scale per row.

    Each row has its own scale, so that other rows do not change a translation.

    Raises:
        DeviceError: If the CPU lacks VNNI: without it, sums of two products in 16 bits overflow.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        if not torch.cpu._is_vnni_supported():
            raise DeviceError("int8 translation without the compiled core needs a CPU with VNNI; use --precision fp32")
        onednn: Any = torch.ops.onednn
        scales = (weight.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        self.weight = onednn.qlinear_prepack((weight / scales[:, None]).round().to(torch.int8), None)
        self.scales = scales
        self.zeros = torch.zeros(len(scales), dtype=torch.int64)
        self.bias = bias
        self.product = onednn.qlinear_pointwise

    def __call__(self, x: Tensor) -> Tensor:
        scale = (x.abs().amax(dim=-1, keepdim=True) / 127).clamp_min_(torch.finfo(torch.float32).tiny)
        # Unsigned, centered at 128; adding a half and truncating rounds to nearest.
        levels = _whole((x / scale).add_(128.5).to(torch.uint8))
        result = self.product(
            levels, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )[: len(x)].mul_(scale)
        return result if self.bias is None else result.add_(self.bias)


def _whole(x: Tensor) -> Tensor:
    """Return `x` padded with zero rows to a multiple of `SHAPE_ROWS` on a CPU."""
    extra = -len(x) % SHAPE_ROWS
    return functional.pad(x, (0, 0, 0, extra)) if extra and x.device.type == "cpu" else x

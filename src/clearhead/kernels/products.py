"""Matrix products as decoding computes them: in float32, bfloat16, or 8-bit integers.

bfloat16 halves what is read and is several times as fast where a processor multiplies in it (GPUs, CPUs with AMX).
8-bit integers need a CPU with VNNI. Both round, so translations may differ a little from the model's own, but tokens
are always compared in float32. A product of more rows may add in another order, and what is then rounded can differ in
the last bit; the compiled core's products depend on their own row alone.

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

__all__ = ["Product", "make_product"]

Product = Callable[[Float[Tensor, "R I"]], Float[Tensor, "R O"]]
"""x W^T + b for rows x, in float32."""

SHAPE_ROWS = 32
"""oneDNN prepares for every new number of rows, and that takes longer than a product; so it sees multiples of this."""


def make_product(
    weights: Sequence[Float[Tensor, "_ I"]],
    biases: Sequence[Float[Tensor, " _"] | None],
    precision: DecodePrecision,
    *,
    is_output: bool = False,
) -> Product:
    """Return the product of the same rows with several matrices, side by side.

    Args:
        weights: The matrices.
        biases: Of each, or None for all.
        precision: What is multiplied.
        is_output: Whether the results are logits, among which the best is sought.

    Raises:
        DeviceError: If the device cannot multiply in that precision.
    """
    weight = torch.cat([weight.detach() for weight in weights]) if len(weights) > 1 else weights[0].detach()
    given = [bias.detach() for bias in biases if bias is not None]
    bias = torch.cat(given) if given else None
    match precision:
        case "fp32":
            # Few rows meet a large matrix faster if it is turned; a small one is not worth the second copy.
            return _Float32Product(weight.t().contiguous() if is_output or len(weights) > 1 else weight.t(), bias)
        case "bf16":
            if not is_output or weight.device.type != "cpu":
                return _BFloat16Product(weight, bias)
            return _BFloat16Logits(weight, bias) if can_multiply_bf16() else _Float32Product(weight.t(), bias)
        case "int8":
            return _Int8Product(weight, bias)
        case "bf16x3":
            raise DeviceError(
                "bf16x3 translation needs a CPU with AMX or AVX-512 BF16, the compiled core (a C compiler where "
                "clearhead was installed) and a model whose widths are multiples of 32; use --precision fp32"
            )


class _Float32Product:
    def __init__(self, matrix: Float[Tensor, "I O"], bias: Tensor | None) -> None:
        self.matrix = matrix
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.matrix if self.bias is None else torch.addmm(self.bias, x, self.matrix)


class _BFloat16Product:
    """Everything rounded, the result too."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.bfloat16()
        self.bias = None if bias is None else bias.bfloat16()

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(_whole(x.bfloat16()), self.weight, self.bias)[: len(x)].float()


class _BFloat16Logits:
    """What is multiplied is rounded, the result is not: with 8 significant bits many logits would be equal.

    PyTorch's products in bfloat16 have results in bfloat16. A second one adds up what the first left out. Rows are
    multiplied in blocks of one size, for on some processors their number decides the order in which oneDNN adds up.
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
    """Weights in 8 bits with a scale for each output, rows in 8 bits with a scale for each row.

    A row's scale is its own, so that no neighbour changes a translation.

    Raises:
        DeviceError: If the CPU lacks VNNI: others sum two products in 16 bits, which overflow.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        if weight.device.type != "cpu" or not torch.cpu._is_vnni_supported():
            raise DeviceError("int8 translation needs a CPU with VNNI; use --precision fp32 or bf16")
        onednn: Any = torch.ops.onednn
        scales = (weight.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        self.weight = onednn.qlinear_prepack((weight / scales[:, None]).round().to(torch.int8), None)
        self.scales = scales
        self.zeros = torch.zeros(len(scales), dtype=torch.int64)
        self.bias = bias
        self.product = onednn.qlinear_pointwise

    def __call__(self, x: Tensor) -> Tensor:
        scale = (x.abs().amax(dim=-1, keepdim=True) / 127).clamp_min_(torch.finfo(torch.float32).tiny)
        # Unsigned around 128; to cut off what is above the point after adding a half is to round.
        levels = _whole((x / scale).add_(128.5).to(torch.uint8))
        result = self.product(
            levels, 1.0, 128, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )[: len(x)].mul_(scale)
        return result if self.bias is None else result.add_(self.bias)


def _whole(x: Tensor) -> Tensor:
    """Return a whole number of `SHAPE_ROWS` rows on a CPU; those added are zeros."""
    extra = -len(x) % SHAPE_ROWS
    return functional.pad(x, (0, 0, 0, extra)) if extra and x.device.type == "cpu" else x

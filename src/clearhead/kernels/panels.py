"""Matrix products of the compiled core, which packs their matrices itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import DTypeLike
from torch import Tensor
from torch.nn import functional

from clearhead.config import DecodePrecision
from clearhead.kernels.library import has_amx, library
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct

__all__ = ["PANEL", "make_product", "uninitialized"]

PANEL = CONSTANTS["PANEL"]
"""Outputs of a matrix, and rows of a result, come in whole blocks of so many."""
_CACHE_LINE = 64
"""Bytes; what does not begin with one takes a second."""


def make_product(
    weight: Float[Tensor, "V I"],
    bias: Float[Tensor, " V"] | None,
    precision: DecodePrecision,
    *,
    rows: Int[Tensor, " O"] | None = None,
    on_amx: bool | None = None,
) -> Struct:
    """Return the product with a matrix, whose outputs are filled up to whole panels.

    Args:
        weight: The matrix, in float32.
        bias: What is added.
        precision: What is multiplied. In 8 bits every output has a scale of its own.
        rows: Of the matrix, in int32; None is all.
        on_amx: Compute rounded precisions on AMX, or else by AVX-512's own instructions; None is AMX where there is.
    """
    core = library()
    assert core is not None
    assert weight.dtype == torch.float32, weight.dtype
    assert weight.is_contiguous()
    assert rows is None or rows.dtype == torch.int32
    count, inputs = len(weight) if rows is None else len(rows), weight.size(1)
    outputs = -(-count // PANEL) * PANEL
    product = STRUCTS["Product"](
        inputs=inputs,
        outputs=outputs,
        precision=CONSTANTS[precision.upper()],
        is_on_amx=precision != "fp32" and (has_amx() if on_amx is None else on_amx),
    )
    panels = uninitialized([core.packed_size(count, inputs, product.precision)], np.uint8)
    scales = uninitialized([outputs]) if precision == "int8" else None
    taken = [None if tensor is None else tensor.data_ptr() for tensor in (weight, rows)]
    made = [None if array is None else array.ctypes.data for array in (panels, scales)]
    core.pack(*taken, count, inputs, product.precision, *made)
    if bias is not None:
        bias = functional.pad(bias.detach() if rows is None else bias.detach()[rows], (0, outputs - count))
    return product.point(panels=panels, scales=scales, bias=bias)


def uninitialized(shape: Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
    """Return memory whose contents are arbitrary; the system gives it page by page, as it is used.

    PyTorch's own would let Python's other threads go first, each time.

    Raises:
        MemoryError: If there is not so much.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        memory = np.empty(size + _CACHE_LINE, np.uint8)
    except ValueError as error:  # more than any address
        raise MemoryError(str(error)) from None
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)

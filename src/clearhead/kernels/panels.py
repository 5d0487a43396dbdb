"""Packing of weights, rounded if asked, for products of the compiled core."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearhead.config import DecodePrecision
from clearhead.kernels.library import has_amx, library
from clearhead.kernels.structs import CONSTANTS, STRUCTS, Struct, as_array, uninitialized

PANEL = CONSTANTS["PANEL"]
"""Block size of the outputs of a matrix and of the rows of a result."""
LANES = CONSTANTS["LANES"]
"""Places of a block of keys and values."""


def make_product(
    weight: Any,
    bias: Any,
    precision: DecodePrecision,
    *,
    rows: Any = None,
    on_amx: bool | None = None,
) -> Struct:
    """Return the structure of a packed matrix product, with the outputs padded to whole panels.

    Args:
        weight: The matrix [V, I], in float32; an array or a tensor, as the others.
        bias: The bias [V] to add; None adds nothing.
        precision: Precision of the factors. In int8 every output has its own scale.
        rows: Rows of the matrix to pack [O], in int32; None packs all.
        on_amx: Whether rounded precisions use AMX; None uses it if the form in use has it.
    """
    core = library()
    assert core is not None
    weight, bias, rows = (None if given is None else as_array(given) for given in (weight, bias, rows))
    assert weight.dtype == np.float32, weight.dtype
    assert weight.flags.c_contiguous
    assert rows is None or rows.dtype == np.int32
    count, inputs = len(weight) if rows is None else len(rows), weight.shape[1]
    outputs = -(-count // PANEL) * PANEL
    product = STRUCTS["Product"](
        inputs=inputs,
        outputs=outputs,
        precision=CONSTANTS[precision.upper()],
        is_on_amx=precision != "fp32" and (has_amx() if on_amx is None else on_amx),
    )
    panels = uninitialized([core.packed_size(count, inputs, product.precision)], np.uint8)
    scales = uninitialized([outputs]) if precision == "int8" else None
    taken, made = (
        [None if array is None else array.ctypes.data for array in arrays]
        for arrays in ((weight, rows), (panels, scales))
    )
    core.pack(product, *taken, count, *made)
    if bias is not None:
        bias = np.pad(bias if rows is None else bias[rows], (0, outputs - count))
    return product.point(panels=panels, scales=scales, bias=bias)

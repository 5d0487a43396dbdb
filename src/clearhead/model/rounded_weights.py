"""Weights stored in 8-bit integers or in bfloat16, and the float32 numbers that they stand for; NumPy alone.

Rounded are the matrices of products and the embeddings; norms, biases and tables of positions stay in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from clearhead.config import ModelConfig
from clearhead.config.choices import StoredPrecision
from clearhead.errors import ModelError
from clearhead.files.arrays import TensorHeader
from clearhead.model.weight_shapes import weight_shapes

MOST_LEVEL = 63
"""Largest 8-bit level, as in kernels/csrc/packing.h: packing the weights again finds the same levels and scales."""

_MOST_SCALE = np.finfo(np.float32).max / np.float32(MOST_LEVEL)
"""Largest scale whose numbers float32 can hold."""

_SCALE = "_scale"
"""End of the name of a matrix' scales: one for each row, with which its levels are multiplied."""


class RoundedWeights(Mapping[str, np.ndarray]):
    """Weights by the names of `weight_shapes`; a matrix is in float32 only as long as the caller keeps it.

    Args:
        precision: Precision of the matrices.
        stored: The arrays of the file: of a matrix in int8 its levels, and its scales under its name and `_scale`; of
            one in bf16 the upper 16 bits of its float32 numbers.
        origin: Where the arrays come from, for error messages.

    Raises:
        ModelError: If a scale or a level is out of bounds.
    """

    def __init__(self, precision: StoredPrecision, stored: Mapping[str, np.ndarray], *, origin: str) -> None:
        self.precision = precision
        self.stored = stored
        self._in_use: WeakValueDictionary[str, np.ndarray] = WeakValueDictionary()
        for name, scales in stored.items():
            if name.endswith(_SCALE):
                _require_sound(stored[name.removesuffix(_SCALE)], scales, f"{origin}: {name}")

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray], precision: StoredPrecision, *, origin: str) -> RoundedWeights:
        """Round float32 weights to the nearest, ties to even.

        Raises:
            ModelError: If a matrix contains a number that is not finite.
        """
        stored = {}
        for name, array in arrays.items():
            if not _is_rounded(name):
                stored[name] = array
            elif not np.isfinite(array).all():
                raise ModelError(f"{origin}: {name} contains numbers that are not finite, and cannot be rounded")
            elif precision == "int8":
                stored[name], stored[name + _SCALE] = _to_int8(array)
            else:
                stored[name] = _to_bf16(array)
        return cls(precision, stored, origin=origin)

    def __getitem__(self, name: str) -> np.ndarray:
        stored = self.stored[name]
        if stored.dtype == np.float32:
            return stored
        weights = self._in_use.get(name)
        if weights is None:
            if self.precision == "int8":
                weights = np.multiply(stored, self.stored[name + _SCALE][:, None], dtype=np.float32)
            else:
                weights = (stored.astype(np.uint32) << 16).view(np.float32)
            self._in_use[name] = weights
        return weights

    def __contains__(self, name: object) -> bool:
        return name in self.stored and not str(name).endswith(_SCALE)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.stored if not name.endswith(_SCALE))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.precision, self.stored)


def stored_headers(config: ModelConfig, precision: StoredPrecision | None = None) -> dict[str, TensorHeader]:
    """Return the names, shapes and types of the tensors of a model's file.

    Args:
        config: The settings of the model.
        precision: Precision of its matrices; None for float32.
    """
    headers = {}
    for name, shape in weight_shapes(config).items():
        is_rounded = precision is not None and _is_rounded(name)
        headers[name] = TensorHeader(shape, "F32" if not is_rounded else "I8" if precision == "int8" else "U16")
        if is_rounded and precision == "int8":
            headers[name + _SCALE] = TensorHeader(shape[:1], "F32")
    return headers


def _is_rounded(name: str) -> bool:
    return name.endswith(("proj.weight", "_embedding.weight"))


def _to_int8(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the levels of a matrix, and the scale of each row."""
    scales = np.maximum(np.abs(matrix).max(axis=1) / np.float32(MOST_LEVEL), np.finfo(np.float32).tiny)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def _to_bf16(matrix: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(matrix).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _require_sound(levels: np.ndarray, scales: np.ndarray, what: str) -> None:
    is_bad = ~((scales > 0) & (scales <= _MOST_SCALE))  # NaN, too
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ModelError(
            f"{what}: the scale of row {row} is {scales[row]}, but must be a positive number of at most {_MOST_SCALE}; "
            f"copy the model again"
        )
    if levels.size and not -MOST_LEVEL <= levels.min() <= levels.max() <= MOST_LEVEL:
        raise ModelError(f"{what}: its levels must be between -{MOST_LEVEL} and {MOST_LEVEL}; copy the model again")


def _restored(precision: StoredPrecision, stored: Mapping[str, np.ndarray]) -> RoundedWeights:
    return RoundedWeights(precision, stored, origin="a copy")

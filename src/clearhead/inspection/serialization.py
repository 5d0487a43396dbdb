"""Values as JSON; arrays as nested lists that anyone reads, or packed for a page, several times smaller."""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["packed", "packed_rows", "packed_weights", "plain", "plain_values"]

_DIGITS = 6


def plain_values(value: Any, *, digits: int | None = None) -> Any:
    """Return dataclasses as objects and tuples as lists, as JSON reads them again.

    Args:
        value: Plain values, and dataclasses and tuples of them.
        digits: Digits behind the point of all that is no whole number; None is all there are.
    """
    if is_dataclass(value):
        return {field.name: plain_values(getattr(value, field.name), digits=digits) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain_values(one, digits=digits) for one in value]
    return round(value, digits) if isinstance(value, float) and digits is not None else value


def plain(values: Float[np.ndarray, "*shape"]) -> list[Any]:
    """Return nested lists, rounded to six digits behind the point."""
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def packed(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `float24`: each number is a float32 without its lowest byte, three bytes, little-endian, in base 64.

    The relative error is at most 2^-16, about 0.000015.
    """
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4").astype(np.uint64) + 0x80  # to the nearest
    three = ((bits >> 8) & 0xFFFFFF).astype("<u4")[..., None].view(np.uint8)[..., :3]
    return {"type": "float24", "shape": list(values.shape), "data": _base64(three)}


def packed_weights(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `root16`: of numbers from 0 to 1 the fourth roots times 65535, two bytes, little-endian, in base 64.

    The error is at most 2^-15 w^(3/4) of a number w: small weights are relatively exact, too, so that their logarithms
    tell scores. A page holds so many of them that the third byte of `float24` counts.
    """
    roots = np.rint(65535 * np.sqrt(np.sqrt(values.astype(np.float64)))).astype("<u2")
    return {"type": "root16", "shape": list(values.shape), "data": _base64(roots)}


def packed_rows(values: Float[np.ndarray, "*shape width"]) -> dict[str, Any]:
    """Return `int8`: rows of signed bytes, each to be multiplied by its row's scale, which `scales` holds as `float24`.

    A row's largest number is 127 times its scale; the others are rounded to a 254th of it.
    """
    scales = np.abs(values).max(axis=-1) / 127
    rows = np.rint(values / np.where(scales > 0, scales, 1.0)[..., None]).astype(np.int8)
    return {"type": "int8", "shape": list(values.shape), "data": _base64(rows), "scales": packed(scales)}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()

"""JSON serialization of values and arrays: nested lists, or compact base-64 encodings for a page."""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

_DIGITS = 6


def plain_values(value: Any, *, digits: int | None = None) -> Any:
    """Return dataclasses as objects and tuples as lists, as they are after a round trip through JSON.

    Args:
        value: Plain values, and dataclasses and tuples of them.
        digits: Decimal places of floats; None keeps all.
    """
    if is_dataclass(value):
        return {field.name: plain_values(getattr(value, field.name), digits=digits) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [plain_values(one, digits=digits) for one in value]
    return round(value, digits) if isinstance(value, float) and digits is not None else value


def plain(values: Float[np.ndarray, "*shape"]) -> list[Any]:
    """Return nested lists, rounded to six decimal places."""
    return np.round(values.astype(np.float64), _DIGITS).tolist()


def packed(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `float24`: each number is a float32 without its lowest byte, three bytes, little-endian, in base 64.

    The relative error is at most 2^-16, about 0.000015.
    """
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4").astype(np.uint64) + 0x80  # round to nearest
    three = ((bits >> 8) & 0xFFFFFF).astype("<u4")[..., None].view(np.uint8)[..., :3]
    return {"type": "float24", "shape": list(values.shape), "data": _base64(three)}


def packed_weights(values: Float[np.ndarray, "*shape"]) -> dict[str, Any]:
    """Return `root16`: 65535 times the fourth root of each number from 0 to 1, in two bytes, little-endian, in base 64.

    The error is at most 2^-15 w^(3/4) for a number w: the relative error of small weights is small, too, so that scores
    can be computed from their logarithms. A page holds so many weights that saving the third byte of `float24` matters.
    """
    roots = np.rint(65535 * np.sqrt(np.sqrt(values.astype(np.float64)))).astype("<u2")
    return {"type": "root16", "shape": list(values.shape), "data": _base64(roots)}


def packed_rows(values: Float[np.ndarray, "*shape width"]) -> dict[str, Any]:
    """Return `int8`: rows of signed bytes, each to be multiplied by its row's scale; `scales` has these as `float24`.

    A row's largest number is 127 times its scale; the others are rounded to a 254th of it.
    """
    scales = np.abs(values).max(axis=-1) / 127
    rows = np.rint(values / np.where(scales > 0, scales, 1.0)[..., None]).astype(np.int8)
    return {"type": "int8", "shape": list(values.shape), "data": _base64(rows), "scales": packed(scales)}


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()

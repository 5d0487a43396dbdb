"""The structures of csrc/types.h, mirrored field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

__all__ = [
    "LayerStruct",
    "NormStruct",
    "ProductStruct",
    "SlotStruct",
    "SourcesStruct",
    "StackStruct",
    "StepStruct",
    "TargetsStruct",
    "TeamStruct",
    "TokensStruct",
    "WorkStruct",
    "layout",
]


AnyStruct = TypeVar("AnyStruct", bound="Struct")


class Floats(c_void_p):
    """The address of numbers in float32."""


class Doubles(c_void_p):
    """The address of numbers in float64."""


class Int32s(c_void_p):
    """The address of numbers in int32."""


DTYPES: dict[type, np.dtype[Any]] = {
    Floats: np.dtype(np.float32),
    Doubles: np.dtype(np.float64),
    Int32s: np.dtype(np.int32),
}


class Struct(ctypes.Structure):
    """A structure that keeps what it and the structures in it point to."""

    _kept: tuple[object, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if isinstance(value, Struct):
            self.keep(value)  # of which only the bytes were copied

    def keep(self, *values: object) -> None:
        """Keep what pointers lead to as long as this lives."""
        super().__setattr__("_kept", (*self._kept, *values))

    def point(self: AnyStruct, **arrays: Tensor | np.ndarray | None) -> AnyStruct:
        """Point fields to arrays, and keep those as long as this lives; None is NULL.

        Raises:
            TypeError: If an array does not hold what the field's type says, side by side.
        """
        kinds = self._kinds()
        for name, given in arrays.items():
            if given is None:
                continue
            array = given.detach().numpy() if isinstance(given, Tensor) else given
            if array.dtype != DTYPES.get(kinds[name], array.dtype) or not array.flags.c_contiguous:
                kind = f"{array.dtype} of strides {array.strides}"
                raise TypeError(f"{type(self).__name__}.{name} cannot point to {kind}")
            setattr(self, name, array.ctypes.data)
            self.keep(array)
        return self

    @classmethod
    @cache
    def _kinds(cls) -> dict[str, type]:
        return {name: kind for name, kind, *_ in cls._fields_}


class ProductStruct(Struct):
    """Product in csrc/types.h."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("precision", c_int64),
        ("is_on_amx", c_int64),
        ("panels", c_void_p),
        ("scales", Floats),
        ("bias", Floats),
    )


class NormStruct(Struct):
    """Norm in csrc/types.h."""

    _fields_ = (("weight", Floats), ("bias", Floats), ("eps", c_double), ("is_rms", c_int64))


class LayerStruct(Struct):
    """Layer in csrc/types.h."""

    _fields_ = (
        ("self_norm", NormStruct),
        ("qkv", ProductStruct),
        ("self_out", ProductStruct),
        ("cross_norm", NormStruct),
        ("query", ProductStruct),
        ("cross_out", ProductStruct),
        ("ff_norm", NormStruct),
        ("up", ProductStruct),
        ("gate", ProductStruct),
        ("down", ProductStruct),
    )


class StackStruct(Struct):
    """Stack in csrc/types.h."""

    _fields_ = (
        ("d_model", c_int64),
        ("num_heads", c_int64),
        ("d_k", c_int64),
        ("d_v", c_int64),
        ("d_ff", c_int64),
        ("num_layers", c_int64),
        ("is_pre", c_int64),
        ("activation", c_int64),
        ("layers", POINTER(LayerStruct)),
        ("final_norm", NormStruct),
        ("output", ProductStruct),
    )


class SlotStruct(Struct):
    """Slot in csrc/types.h."""

    _fields_ = (
        ("past", Floats),
        ("parents", Int32s),
        ("newest", Int32s),
        ("memory", Floats),
        ("source_length", c_int64),
        ("own", ProductStruct),
        ("own_ids", Int32s),
        ("num_own", c_int64),
    )


class TokensStruct(Struct):
    """Tokens in csrc/types.h."""

    _fields_ = (
        ("embedding", Floats),
        ("positions", Floats),
        ("segment", Floats),
        ("cos", Floats),
        ("sin", Floats),
        ("embedding_norm", NormStruct),
        ("ids", Int32s),
        ("num_ids", c_int64),
        ("eos_id", c_int32),
        ("pad_id", c_int32),
        ("bos_id", c_int32),
        ("embedding_scale", c_float),
    )


class WorkStruct(Struct):
    """Work in csrc/types.h."""

    _fields_ = (
        ("product", c_void_p),
        ("x", c_void_p),
        ("rows", c_int64),
        ("first", c_int64),
        ("last", c_int64),
        ("y", c_void_p),
        ("stride", c_int64),
        ("scratch", c_void_p),
    )


class TeamStruct(Struct):
    """Team in csrc/types.h, whose fields are the core's own; zeros are a team that has nothing to do."""

    _fields_ = (
        ("state", c_int64),
        ("inside", c_int64),
        ("next", c_int64),
        ("work", WorkStruct),
        ("delays", c_int64),
    )

    @property
    def is_dismissed(self) -> bool:
        """Whether it was dismissed, so that nobody helps any more."""
        return bool(self.state == 2)  # TO_LEAVE


class SourcesStruct(Struct):
    """Sources in csrc/types.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("longest", c_int64),
        ("token", Int32s),
        ("position", Int32s),
        ("first", Int32s),
        ("length", Int32s),
        ("memory", Floats),
        ("scratch", c_void_p),
        ("team", POINTER(TeamStruct)),
    )


class TargetsStruct(Struct):
    """Targets in csrc/types.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("num_slots", c_int64),
        ("longest", c_int64),
        ("slots", POINTER(SlotStruct)),
        ("slot", Int32s),
        ("position", Int32s),
        ("first", Int32s),
        ("length", Int32s),
        ("token", Int32s),
        ("wanted", Int32s),
        ("log_probs", Floats),
        ("totals", Floats),
        ("scratch", c_void_p),
    )


class StepStruct(Struct):
    """Step in csrc/types.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("num_slots", c_int64),
        ("beam_size", c_int64),
        ("longest", c_int64),
        ("count", c_int64),
        ("num_candidates", c_int64),
        ("slots", POINTER(SlotStruct)),
        ("slot", Int32s),
        ("beam", Int32s),
        ("parent", Int32s),
        ("position", Int32s),
        ("token", Int32s),
        ("is_last", Int32s),
        ("score", Floats),
        ("candidate_score", Floats),
        ("candidate_beam", Int32s),
        ("candidate_token", Int32s),
        ("scratch", c_void_p),
        ("team", POINTER(TeamStruct)),
        ("spent", Doubles),
    )


STRUCTS: tuple[type[ctypes.Structure], ...] = (
    ProductStruct,
    NormStruct,
    LayerStruct,
    StackStruct,
    SlotStruct,
    TokensStruct,
    WorkStruct,
    TeamStruct,
    SourcesStruct,
    TargetsStruct,
    StepStruct,
)
"""In the order of `core_layout` in csrc/layout.h."""


def layout() -> int:
    """Return what `core_layout` in csrc/layout.h returns if the core's structures are these."""
    value = 14695981039346656037

    def mix(number: int) -> None:
        nonlocal value
        value = (value ^ number) * 1099511628211 % 2**64

    for kind in STRUCTS:
        mix(ctypes.sizeof(kind))
        for name, *_ in kind._fields_:
            for letter in name.encode():
                mix(letter)
            field = getattr(kind, name)
            mix(field.offset)
            mix(field.size)
    return value

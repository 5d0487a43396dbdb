"""ctypes structures that keep their arrays alive, and constants of the core, from csrc/types.h; aligned arrays."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_uint8, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

NUMBERS: dict[str, type] = {
    "int64_t": c_int64,
    "int32_t": c_int32,
    "uint8_t": c_uint8,
    "float": c_float,
    "double": c_double,
}
ADDRESSES = {kind: type(f"{kind}_address", (c_void_p,), {}) for kind in NUMBERS}
"""A distinct type for the address of each number type, so that `Struct.point` can check dtypes."""
DTYPES = {ADDRESSES[kind]: np.dtype(number) for kind, number in NUMBERS.items()}

CACHE_LINE = 64
"""Bytes of a cache line; a read that is not aligned to one touches two."""


def as_array(given: Any) -> np.ndarray:
    """Return an array itself, or the array of a tensor on the CPU, not copied."""
    return given if isinstance(given, np.ndarray) else given.detach().numpy()


def uninitialized(shape: Sequence[int], dtype: DTypeLike = np.float32) -> np.ndarray:
    """Return an uninitialized array; its pages are allocated when first used.

    Raises:
        MemoryError: If there is not enough memory.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        memory = np.empty(size + CACHE_LINE, np.uint8)
    except ValueError as error:  # larger than the address space
        raise MemoryError(str(error)) from None
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


class Struct(ctypes.Structure):
    """A C structure that keeps the objects alive to which its fields point."""

    _kinds: dict[str, type]
    _kept: dict[str, object] | None = None

    def point_into(self, array: np.ndarray, **places: int) -> Struct:
        """Point fields to elements of a flat array, given by their numbers, and keep it alive."""
        address = array.ctypes.data
        for name, place in places.items():
            setattr(self, name, address + place * array.itemsize)
            self.keep(name, array)
        return self

    def keep(self, name: str, value: object) -> None:
        """Keep an object alive as long as this structure, or until the field is set again."""
        if self._kept is None:
            self._kept = {}
        self._kept[name] = value

    def point(self, **arrays: Any) -> Struct:
        """Point fields to arrays or tensors and keep these alive; None is skipped: a new structure has NULL there.

        Raises:
            TypeError: If an array has another dtype than the field, or is not contiguous.
        """
        for name, given in arrays.items():
            if given is None:
                continue
            array = as_array(given)
            if array.dtype != DTYPES.get(self._kinds[name], array.dtype) or not array.flags.c_contiguous:
                kind = f"{array.dtype} of strides {array.strides}"
                raise TypeError(f"{type(self).__name__}.{name} cannot point to {kind}")
            setattr(self, name, array.ctypes.data)
            self.keep(name, array)
        return self


class OuterStruct(Struct):
    """A structure that contains others, and keeps alive what they point to."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if isinstance(value, Struct):
            self.keep(name, value)  # only its bytes were copied


def read_structures(text: str, address: type | None = None) -> dict[str, type[Struct]]:
    """Return the untagged structures of a C header, by name and in order.

    Args:
        text: The header.
        address: Type of all addresses, if they are those of another machine; None for typed ones of this machine.
    """
    structures: dict[str, type[Struct]] = {}
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, flags=re.DOTALL):
        fields: list[tuple[str, type]] = []
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, fields_of_kind = re.sub(r"\b(const|struct|_Atomic) ", "", declaration).split(maxsplit=1)
            number, pointer = NUMBERS.get(kind), ADDRESSES.get(kind, c_void_p)
            if kind in structures:
                number, pointer = structures[kind], POINTER(structures[kind])
            for field in map(str.strip, fields_of_kind.split(",")):
                given = number
                if field.startswith("*"):
                    given = address or (POINTER(pointer) if field.startswith("**") else pointer)
                fields.append((field.lstrip("*"), given))  # type: ignore[arg-type]
        base = OuterStruct if any(issubclass(kind, Struct) for _, kind in fields) else Struct
        structures[name] = type(name, (base,), {"_fields_": fields, "_kinds": dict(fields), "__module__": __name__})
    return structures


def read_constants(text: str) -> dict[str, int]:
    """Return the numeric `#define` constants and the enumeration members of a C header."""
    constants = {name: int(number) for name, number in re.findall(r"#define (\w+) (\d+)\b", text)}
    for body in re.findall(r"enum \w+ \{(.*?)\}", text):
        for number, member in enumerate(body.split(",")):
            name, _, given = member.partition("=")
            constants[name.strip()] = int(given or number)
    return constants


HEADER = Path(__file__).with_name("csrc").joinpath("types.h").read_text(encoding="utf-8")
STRUCTS, CONSTANTS = read_structures(HEADER), read_constants(HEADER)
"""Structures and constants, by their names in csrc/types.h."""

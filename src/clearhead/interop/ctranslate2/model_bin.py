"""Reader of CTranslate2's `model.bin`, which holds named tensors and numbers; it does not need CTranslate2.

The file holds the format version, the name of the specification and its revision. Then follow all variables, each
with its name, shape, type and bytes, and then aliases of variables. All integers are little-endian. A string has its
length before it and a zero byte after it (`ctranslate2.specs.model_spec` writes such files).
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.files import os_error_as, require_regular

VERSION = 6
"""Version of the format since CTranslate2 3.0; earlier models have no `config.json`."""

_TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
"""Data types, in the order of their numbers in the file."""
_MOST_AXES = 8
_SCALE = "_scale"
"""Suffix of the variable that holds the scale of a quantized variable."""


@dataclass(frozen=True)
class ModelBin:
    """The content of a `model.bin`."""

    specification: str
    """Name of the specification, such as `TransformerSpec`."""
    tensors: Mapping[str, Tensor]
    """The variables with at least one axis, in float32."""
    attributes: Mapping[str, int | float]
    """The scalar variables, which are settings."""
    stored_in: tuple[str, ...]
    """Data types of the weights in the file, in alphabetical order; all but float32 were rounded."""


def read_model_bin(path: Path) -> ModelBin:
    """Read a `model.bin`; it allocates no more memory than the length of the file.

    Raises:
        ModelError: If the file cannot be read, has another format or version, or is too short or too long.
    """
    with os_error_as(ModelError, f"cannot read {path}"):
        require_regular(path)
        with open(path, "rb") as file:
            return _read(_Reader(file, path), path)


def _read(reader: _Reader, path: Path) -> ModelBin:
    version = reader.number("I")
    if version != VERSION:
        raise ModelError(
            f"{path} is no model of CTranslate2 in version {VERSION} of its format, but begins with {version}; convert "
            f"the model again"
        )
    specification, _ = reader.text(), reader.number("I")
    stored: dict[str, Tensor] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        if name in stored:
            raise reader.damaged(f"it has the variable {name} twice")
        stored[name] = reader.tensor(name)
    whole = _in_float32(stored, reader)
    for _ in range(reader.number("I")):
        alias, name = reader.text(), reader.text()
        if alias in whole or name not in whole:
            raise reader.damaged(f"it calls {name} also {alias}, and {'has both' if name in whole else 'has none'}")
        whole[alias] = whole[name]
    if reader.left:
        raise reader.damaged(f"there are {reader.left:,} bytes behind its end")
    types = {str(tensor.dtype).removeprefix("torch.") for name, tensor in stored.items() if name.endswith("weight")}
    return ModelBin(
        specification,
        {name: tensor for name, tensor in whole.items() if tensor.dim()},
        {name: tensor.item() for name, tensor in whole.items() if not tensor.dim()},
        tuple(sorted(types)),
    )


def _in_float32(stored: Mapping[str, Tensor], reader: _Reader) -> dict[str, Tensor]:
    """Return the variables in float32; quantized ones are divided by their scales, one per row or one for all."""
    whole: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.endswith(_SCALE) and name.removesuffix(_SCALE) in stored:
            continue
        if not tensor.dim():
            whole[name] = tensor
        elif tensor.is_floating_point():
            whole[name] = tensor.float()
        elif (scale := stored.get(name + _SCALE)) is None or tensor.dtype == torch.int32:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise reader.damaged(f"{name} is in {kind}, in a form that is not known here")
        elif scale.dim() and scale.shape != tensor.shape[:1]:
            raise reader.damaged(f"{name} {tuple(tensor.shape)} has scales of the shape {tuple(scale.shape)}")
        else:
            whole[name] = tensor.float() / scale.float().reshape(-1, *[1] * (tensor.dim() - 1))
    return whole


class _Reader:
    """Sequential reader of a `model.bin`.

    Args:
        file: The open file, at its beginning.
        path: Path of the file, for messages.
    """

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self.left = os.fstat(file.fileno()).st_size
        """Bytes not read yet."""

    def damaged(self, what: str) -> ModelError:
        """Return the error for a damaged file, with its reason."""
        return ModelError(f"{self._path} is damaged, or no model of CTranslate2: {what}")

    def number(self, form: str) -> int:
        """Read one number in a `struct` format."""
        return int(struct.unpack(f"<{form}", self._bytes(struct.calcsize(form)))[0])

    def text(self) -> str:
        """Read a string: its length, its bytes and a zero byte."""
        text = self._bytes(self.number("H"))
        if not text.endswith(b"\0"):
            raise self.damaged("a text in it has no end")
        try:
            return text[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged("a text in it is not UTF-8") from None

    def tensor(self, name: str) -> Tensor:
        """Read the shape, type and bytes of a variable, which follow its name."""
        axes = self.number("B")
        if axes > _MOST_AXES:
            raise self.damaged(f"{name} has {axes} axes")
        shape = [self.number("I") for _ in range(axes)]
        kind = self.number("B")
        if kind >= len(_TYPES):
            raise self.damaged(f"{name} is of the unknown type {kind}")
        dtype = _TYPES[kind]
        size = self.number("I")
        if not size or size != math.prod(shape) * dtype.itemsize:
            raise self.damaged(f"{name} {tuple(shape)} has {size:,} bytes")
        return torch.frombuffer(self._bytes(size), dtype=dtype).reshape(shape)

    def _bytes(self, count: int) -> bytearray:
        if count > self.left:
            raise self.damaged(f"it ends where {count:,} bytes more should follow, and there are {self.left:,}")
        content = bytearray(self._file.read(count))
        self.left -= count
        if len(content) != count:  # the file was truncated after it was opened
            raise self.damaged("it has become shorter")
        return content

"""Safetensors files without PyTorch: read and write arrays and headers, check that they fit a model.

The files contain only numbers and text, so that reading never executes code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from clearhead.errors import ModelError
from clearhead.files.reading import require_regular
from clearhead.files.writing import new_file
from clearhead.text.lines import first_few

_MOST_TENSORS = 100_000
"""Maximum number of tensors in a file; a checkpoint of NLLB's mixture of 128 experts has about 12,000."""
_TYPES = {"BOOL", "U8", "I8", "U16", "I16", "F16", "U32", "I32", "F32", "U64", "I64", "F64", "C64"}
"""Names of types in safetensors that NumPy has."""
MOST_AXES = 8
"""Maximum number of axes of a stored tensor; weights of Transformers have at most 3, and PyTorch itself allows 64."""


class TensorHeader(NamedTuple):
    """Header of a tensor in a safetensors file."""

    shape: tuple[int, ...]
    dtype: str
    """The name of the type in safetensors, such as `F32`, `BF16` or `I64`."""


def read_headers(path: str | Path) -> dict[str, TensorHeader]:
    """Read the names, shapes and types of a safetensors file's tensors, without their values.

    Raises:
        ModelError: If the file is missing, is not a regular file or is not a safetensors file.
    """
    with opened(path, framework="numpy") as file:
        return headers_of(file)


def read_arrays(
    path: str | Path, fitting: Mapping[str, TensorHeader] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read arrays and metadata from a safetensors file.

    Args:
        path: The file.
        fitting: The headers of a model's weights, which the file must hold; None reads any file.

    Raises:
        ModelError: If the file is missing, is not a regular file or not a safetensors file, has a type that NumPy
            lacks, or does not fit the model.
    """
    with opened(path, framework="numpy") as file:
        headers = headers_of(file)
        if fitting is not None:
            require_fit(fitting, headers, origin=str(path))
        lacked = [header.dtype for header in headers.values() if header.dtype not in _TYPES]
        if lacked:
            raise ModelError(f"cannot read the weights {path}: it holds {lacked[0]}, a type that NumPy lacks")
        return {name: file.get_tensor(name) for name in headers}, file.metadata() or {}


def require_fit(own: Mapping[str, TensorHeader], headers: Mapping[str, TensorHeader], *, origin: str) -> None:
    """Check that the tensors of a file fit a model.

    Args:
        own: The headers of the model's weights.
        headers: The headers of the file's tensors.
        origin: The file, for error messages.

    Raises:
        ModelError: With a list of tensors that are missing, unknown, or of another shape or type.
    """
    problems = [
        *(f"missing   {name}  {own[name].shape}" for name in own.keys() - headers.keys()),
        *(f"unknown   {name}  {headers[name].shape}" for name in headers.keys() - own.keys()),
        *(
            f"shape     {name}  file {headers[name].shape}, model {own[name].shape}"
            for name in own.keys() & headers.keys()
            if own[name].shape != headers[name].shape
        ),
        *(
            f"type      {name}  file {part.dtype}, model {own[name].dtype}"
            for name, part in headers.items()
            if name in own and part.dtype != own[name].dtype
        ),
    ]
    raise_problems(problems, f"{origin} does not fit this model")


def raise_problems(problems: Sequence[str], headline: str) -> None:
    """Raise a ModelError that lists the first problems, if there are any."""
    if problems:
        raise ModelError(f"{headline}:\n  " + first_few(sorted(problems), 8, "\n  "))


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata to a safetensors file atomically; equal contents give equal bytes.

    Raises:
        OSError: If the file cannot be written.
    """
    write_file(path, partial(save_file, _plain(arrays), metadata=dict(metadata) or None))


def array_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as the contents of a safetensors file."""
    return save(_plain(arrays))


def _plain(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays in C order, because the library writes what their memory has."""
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def write_file(path: str | Path, save: Callable[[Path], None]) -> None:
    """Write a safetensors file atomically; equal contents give equal bytes.

    Args:
        path: The file.
        save: Function of the library that writes to a path.

    Raises:
        OSError: If the file cannot be written.
    """
    with new_file(path) as temporary:
        try:
            save(temporary)
        except SafetensorError as error:  # the library wraps the system's error in its own
            raise OSError(str(error)) from None
        with open(temporary, "r+b") as file:
            _sort_metadata(file)


@contextmanager
def opened(path: str | Path, *, framework: str) -> Iterator[Any]:
    """Open a safetensors file whose header is within bounds; its tensors are of a framework: `numpy` or `pt`.

    Raises:
        ModelError: If the file is missing, is not a regular file or is not a safetensors file.
    """
    try:
        require_regular(path)
        with safe_open(path, framework=framework) as file:
            _require_bounded(file, path)
            yield file
    except OSError as error:
        raise ModelError(f"cannot read the weights {path}: {error.strerror or error}") from None
    except (SafetensorError, RuntimeError) as error:  # PyTorch raises RuntimeError for a truncated file
        raise ModelError(f"cannot read the weights {path}: {error}") from None


def _require_bounded(file: Any, path: str | Path) -> None:
    names = file.keys()
    if len(names) > _MOST_TENSORS:
        raise ModelError(f"{path} holds {len(names):,} tensors, but must hold at most {_MOST_TENSORS:,}")
    for name in names:
        if (axes := len(file.get_slice(name).get_shape())) > MOST_AXES:
            raise ModelError(f"{path}: the tensor {name:.100} has {axes:,} axes, but must have at most {MOST_AXES}")


def headers_of(file: Any) -> dict[str, TensorHeader]:
    """Return the headers of an open file."""
    slices = {name: file.get_slice(name) for name in sorted(file.keys())}
    return {name: TensorHeader(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def _sort_metadata(file: BinaryIO) -> None:
    """Sort the metadata, because the library writes them in varying order, which changes the checksum."""
    size = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(size))
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(text) <= size, (len(text), size)
    file.seek(8)
    file.write(text.ljust(size))

"""Safetensors files without PyTorch: read and write NumPy arrays.

The files contain only numbers and text, so that reading never executes code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from clearhead.errors import ModelError
from clearhead.files.reading import require_regular
from clearhead.files.writing import new_file

_MOST_TENSORS = 100_000
"""Maximum number of tensors in a file; a checkpoint of NLLB's mixture of 128 experts has about 12,000."""
MOST_AXES = 8
"""Maximum number of axes of a stored tensor; weights of Transformers have at most 3, and PyTorch itself allows 64."""


def read_arrays(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read arrays and metadata from a safetensors file.

    Args:
        path: The file.

    Raises:
        ModelError: If the file is missing, is not a regular file or not a safetensors file, or has a type that NumPy
            lacks.
    """
    with opened(path, framework="numpy") as file:
        names = file.keys()
        try:
            arrays = {name: file.get_tensor(name) for name in names}
        except (AttributeError, TypeError) as error:  # such as bfloat16
            raise ModelError(f"cannot read the weights {path}: {error}") from None
        return arrays, file.metadata() or {}


def write_arrays(path: str | Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata to a safetensors file atomically; equal contents give equal bytes.

    Raises:
        OSError: If the file cannot be written.
    """
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # the library writes what lies there
    write_file(path, partial(save_file, plain, metadata=dict(metadata) or None))


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

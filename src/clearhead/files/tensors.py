"""Safetensors files as tensors of PyTorch: read, write and average them, and load them into a module.

The files contain only numbers and text, so that reading never executes code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from clearhead.errors import ModelError
from clearhead.files.arrays import TensorHeader, headers_of, opened, require_fit, write_file


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights by name; a matrix shared by several modules is listed once, under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Load the tensors of a file into a model, one at a time, and return the file's metadata.

    Args:
        model: The model whose weights are overwritten.
        path: The file.

    Raises:
        ModelError: With a list of tensors that are missing, unknown, of another shape, or not in float32.
    """
    own = model_tensors(model)
    with opened(path, framework="pt") as file:
        require_fit(_headers(own), headers_of(file), origin=str(path))  # also if checked before: it may have changed
        for name, weight in own.items():
            weight.copy_(file.get_tensor(name))
        return file.metadata() or {}


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Copy tensors into a model's weights, see `model_tensors`.

    Args:
        model: The model whose weights are overwritten.
        tensors: Tensors by name.
        origin: Where the tensors come from, for error messages.

    Raises:
        ModelError: With a list of tensors that are missing, unknown, or of another shape.
    """
    own = model_tensors(model)
    # Tensors in memory may be of any type; only our own files are always in float32.
    require_fit(_headers(own), _headers(tensors), origin=origin)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def read_weights(
    path: str | Path, *, float32: bool = False, rows: Callable[[str, tuple[int, ...]], slice] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata from a safetensors file.

    Args:
        path: The file.
        float32: Whether to reject tensors of another type.
        rows: Returns the rows to read of a tensor, from its name and shape; the others are not read. Without it, all.

    Raises:
        ModelError: If the file is missing, is not a regular file or not a safetensors file, or has a rejected type.
    """
    with opened(path, framework="pt") as file:
        tensors = {
            name: file.get_slice(name)[rows(name, header.shape)] if rows and header.shape else file.get_tensor(name)
            for name, header in headers_of(file).items()
        }
        metadata = file.metadata() or {}
    if float32 and (other := [name for name, tensor in tensors.items() if tensor.dtype != torch.float32]):
        raise ModelError(f"{path} must hold float32 tensors, but {other[0]} is in {tensors[other[0]].dtype}")
    return tensors, metadata


def write_weights(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata to a safetensors file atomically; equal contents give equal bytes.

    Raises:
        OSError: If the file cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_file(path, lambda temporary: save_file(plain, temporary, dict(metadata) or None))


def float32_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, which must be in float32; see `read_weights`."""
    return read_weights(path, float32=True)[0]


def average_weights(
    paths: Iterable[str | Path], read: Callable[[Any], dict[str, Tensor]] = float32_weights
) -> dict[str, Tensor]:
    """Return the mean of several files' tensors (paper section 6.1), summed in float64.

    Args:
        paths: The files, or what else `read` takes.
        read: Returns the tensors of one of them.

    Raises:
        ModelError: If there is no file, the files do not contain the same tensors, or one is not in float32.
    """
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        tensors = read(path)
        if total and _headers(tensors) != _headers(total):
            raise ModelError(
                f"{path} does not hold the same tensors as the checkpoints before it; they cannot be averaged"
            )
        total = {name: total[name] + t.double() if total else t.double() for name, t in tensors.items()}
        count += 1
    if not count:
        raise ModelError("there are no checkpoints to average")
    return {name: (tensor / count).float() for name, tensor in total.items()}


def _headers(tensors: Mapping[str, Tensor]) -> dict[str, TensorHeader]:
    return {name: TensorHeader(tuple(tensor.shape), "F32") for name, tensor in tensors.items()}

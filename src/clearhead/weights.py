"""Tensors on disk: safetensors files, which hold numbers and text and never run anything when read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearhead.errors import ModelError
from clearhead.files import new_file

__all__ = [
    "average_weights",
    "load_tensors",
    "load_weights",
    "model_tensors",
    "read_weights",
    "write_weights",
]

_FORMER_NAME, _NAME = "embedding.weight", "source_embedding.weight"
"""What the shared embedding was called in models and checkpoints of format 1, and what it is called now."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights by name; a matrix that several modules share comes once, under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Put the tensors of a file into a model and return the file's metadata.

    Args:
        model: Takes them in.
        path: The file.

    Raises:
        ModelError: Listing every tensor that is missing, unknown, or of another shape.
    """
    tensors, metadata = read_weights(path)
    load_tensors(model, tensors, origin=str(path))
    return metadata


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, origin: str) -> None:
    """Copy tensors into a model's weights, see `model_tensors`.

    Args:
        model: Takes them in.
        tensors: Name to value.
        origin: Where they came from, for the error message.

    Raises:
        ModelError: Listing every tensor that is missing, unknown, or of another shape.
    """
    own = model_tensors(model)
    problems = [
        *(f"missing   {name}  {tuple(own[name].shape)}" for name in own.keys() - tensors.keys()),
        *(f"unknown   {name}  {tuple(tensors[name].shape)}" for name in tensors.keys() - own.keys()),
        *(
            f"shape     {name}  file {tuple(tensors[name].shape)}, model {tuple(own[name].shape)}"
            for name in own.keys() & tensors.keys()
            if own[name].shape != tensors[name].shape
        ),
    ]
    if problems:
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise ModelError(f"{origin} does not fit this model:\n  " + "\n  ".join(sorted(problems)[:8]) + more)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata from a safetensors file; tensors of an older format come under their present names.

    Raises:
        ModelError: If the file is missing or is not a safetensors file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            return {_present_name(name): file.get_tensor(name) for name in names}, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read the weights {path}: {error}") from None


def write_weights(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata to a safetensors file, whole or not at all; the same ones give the same bytes.

    Raises:
        OSError: If the file cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with new_file(path) as temporary:
        try:
            save_file(plain, temporary, dict(metadata) or None)
        except SafetensorError as error:  # the library wraps the system's error in its own
            raise OSError(str(error)) from None
        with open(temporary, "r+b") as file:
            _sort_metadata(file)


def average_weights(paths: Iterable[str | Path]) -> dict[str, Tensor]:
    """Return the mean of several files' tensors (paper section 6.1), summed in float64.

    Raises:
        ModelError: If there is no file, or the files do not hold the same tensors.
    """
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        tensors, _ = read_weights(path)
        if total and {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in total.items()}:
            raise ModelError(
                f"{path} does not hold the same tensors as the checkpoints before it; they cannot be averaged"
            )
        total = {name: total[name] + t.double() if total else t.double() for name, t in tensors.items()}
        count += 1
    if not count:
        raise ModelError("there are no checkpoints to average")
    return {name: (tensor / count).float() for name, tensor in total.items()}


def _present_name(name: str) -> str:
    is_former = name == _FORMER_NAME or name.startswith(_FORMER_NAME + ".")  # the optimiser's: embedding.weight.exp_avg
    return _NAME + name.removeprefix(_FORMER_NAME) if is_former else name


def _sort_metadata(file: BinaryIO) -> None:
    """Put the metadata in order; the library writes them in another one each time, and so another checksum."""
    size = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(size))
    if "__metadata__" in header:
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    assert len(text) <= size, (len(text), size)
    file.seek(8)
    file.write(text.ljust(size))

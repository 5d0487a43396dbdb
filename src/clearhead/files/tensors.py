"""Safetensors files: read, write and average tensors, check that they fit a model, and load them into it.

The files contain only numbers and text, so that reading never executes code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearhead.errors import ModelError
from clearhead.files.reading import require_regular
from clearhead.files.writing import new_file
from clearhead.text.shortening import first_few

_FORMER_NAME, _NAME = "embedding.weight", "source_embedding.weight"
"""Name of the shared embedding in models and checkpoints of format 1, and its present name."""
_MOST_TENSORS = 100_000
"""Maximum number of tensors in a file; a checkpoint of NLLB's mixture of 128 experts has about 12,000."""
MOST_AXES = 8
"""Maximum number of axes of a stored tensor; weights of Transformers have at most 3, and PyTorch itself allows 64."""


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's weights by name; a matrix shared by several modules is listed once, under its first name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Header of a tensor in a safetensors file."""

    shape: tuple[int, ...]
    dtype: str
    """The name of the type in safetensors, such as `F32`, `BF16` or `I64`."""


def read_headers(path: str | Path) -> dict[str, TensorHeader]:
    """Read the names, shapes and types of a safetensors file's tensors, without their values.

    Tensors of an older format are returned under their present names.

    Raises:
        ModelError: If the file is missing, is not a regular file or is not a safetensors file.
    """
    with _opened(path) as file:
        return _headers(file)


def load_weights(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Load the tensors of a file into a model, one at a time, and return the file's metadata.

    Args:
        model: The model whose weights are overwritten.
        path: The file.

    Raises:
        ModelError: With a list of tensors that are missing, unknown, of another shape, or not in float32.
    """
    own = model_tensors(model)
    with _opened(path) as file:
        require_fit(own, _headers(file), origin=str(path))  # also if checked before: the file may have changed
        for name, there in _present_names(file).items():
            own[name].copy_(file.get_tensor(there))
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
    require_fit(own, {name: TensorHeader(tuple(t.shape), "F32") for name, t in tensors.items()}, origin=origin)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def require_fit(own: Mapping[str, Tensor], headers: Mapping[str, TensorHeader], *, origin: str) -> None:
    """Check that the tensors of a file fit a model.

    Args:
        own: The model's weights, see `model_tensors`; their values do not matter.
        headers: The headers of the file's tensors.
        origin: The file, for error messages.

    Raises:
        ModelError: With a list of tensors that are missing, unknown, of another shape, or not in float32.
    """
    problems = [
        *(f"missing   {name}  {tuple(own[name].shape)}" for name in own.keys() - headers.keys()),
        *(f"unknown   {name}  {headers[name].shape}" for name in headers.keys() - own.keys()),
        *(
            f"shape     {name}  file {headers[name].shape}, model {tuple(own[name].shape)}"
            for name in own.keys() & headers.keys()
            if tuple(own[name].shape) != headers[name].shape
        ),
        *(f"type      {name}  file {part.dtype}, model F32" for name, part in headers.items() if part.dtype != "F32"),
    ]
    raise_problems(problems, f"{origin} does not fit this model")


def raise_problems(problems: Sequence[str], headline: str) -> None:
    """Raise a ModelError that lists the first problems, if there are any."""
    if problems:
        raise ModelError(f"{headline}:\n  " + first_few(sorted(problems), 8, "\n  "))


def read_weights(path: str | Path, *, float32: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata from a safetensors file; tensors of an older format get their present names.

    Args:
        path: The file.
        float32: Whether to reject tensors of another type.

    Raises:
        ModelError: If the file is missing, is not a regular file or not a safetensors file, or has a rejected type.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(there) for name, there in _present_names(file).items()}
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
        ModelError: If there is no file, the files do not contain the same tensors, or one is not in float32.
    """
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        tensors, _ = read_weights(path, float32=True)
        if total and {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in total.items()}:
            raise ModelError(
                f"{path} does not hold the same tensors as the checkpoints before it; they cannot be averaged"
            )
        total = {name: total[name] + t.double() if total else t.double() for name, t in tensors.items()}
        count += 1
    if not count:
        raise ModelError("there are no checkpoints to average")
    return {name: (tensor / count).float() for name, tensor in total.items()}


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    try:
        require_regular(path)
        with safe_open(path, framework="pt") as file:
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


def _headers(file: Any) -> dict[str, TensorHeader]:
    slices = {name: file.get_slice(there) for name, there in _present_names(file).items()}
    return {name: TensorHeader(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}


def _present_names(file: Any) -> dict[str, str]:
    """Return a mapping from the present name of each tensor to its name in an open file."""
    there = set(file.keys())
    names = {}
    for name in there:
        is_former = f"{name}.".startswith(f"{_FORMER_NAME}.")  # also the optimizer's, such as embedding.weight.exp_avg
        present = _NAME + name.removeprefix(_FORMER_NAME) if is_former else name
        names[name if present in there else present] = name
    return names


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

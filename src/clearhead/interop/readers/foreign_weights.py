"""Tensors of other libraries' files; nothing that stands in such a file is run."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.files import read_json, require_regular
from clearhead.files.tensors import read_weights

__all__ = [
    "WEIGHT_FILES",
    "ZIP_START",
    "float32",
    "read_their_weights",
    "require_finite",
    "require_tensors",
    "require_unpacked",
]

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""The first that is there counts, as in their library."""
ZIP_START = b"PK\x03\x04"
_MOST_UNPACKED = 16
"""Times that an archive may be longer unpacked; neither PyTorch nor Marian packs."""


def read_their_weights(directory: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """Read all tensors of a directory of Hugging Face transformers, in float32, and say from which files.

    Raises:
        ModelError: If there are none, a shard is missing, a file is damaged or holds more than tensors, or a number is
            not finite.
    """
    for name in WEIGHT_FILES:
        if (path := directory / name).exists():
            tensors, files = _read_shards(path) if path.suffix == ".json" else (_read(path), [path])
            return require_finite(float32(tensors), path), files
    raise ModelError(f"{directory} holds no weights: none of {', '.join(WEIGHT_FILES)}")


def require_finite(tensors: Mapping[str, Tensor], origin: Path | str) -> dict[str, Tensor]:
    """Return tensors all of whose numbers are finite.

    Raises:
        ModelError: Naming the first that is not.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ModelError(f"{origin}: the tensor {name} has numbers that are not finite; the file is damaged")
    return dict(tensors)


def _read_shards(index: Path) -> tuple[dict[str, Tensor], list[Path]]:
    weight_map = read_json(index, ModelError).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelError(f"{index} is damaged: its weight_map must give every tensor its file")
    tensors: dict[str, Tensor] = {}
    names = sorted(set(weight_map.values()))
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"{index} names a file outside its directory: {name!r:.100}")
        tensors |= _read(index.parent / name)
    if missing := sorted(weight_map.keys() - tensors.keys()):
        raise ModelError(f"{index} names tensors that its files do not hold: {', '.join(missing[:5])}")
    return tensors, [index.parent / name for name in names]


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_weights(path)[0]
    try:
        require_regular(path)
        require_unpacked(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"cannot read the weights {path}: {error.strerror or error}") from None
    except ModelError:
        raise
    except pickle.UnpicklingError:
        raise ModelError(f"{path} is no file of tensors alone: it would run code when read, and is not") from None
    except Exception as error:  # what a damaged zip archive raises can be anything
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"cannot read the weights {path}: {said}") from None
    return require_tensors(state, path)


def require_unpacked(path: Path) -> None:
    """Make sure that an archive, if the file is one, is not much longer unpacked: a small one could fill the memory.

    Raises:
        ModelError: If it is.
        BadZipFile: If it is damaged.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(ZIP_START)) != ZIP_START:
            return
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_UNPACKED * path.stat().st_size:
            raise ModelError(f"{path} is damaged: it would be more than {_MOST_UNPACKED} times as long unpacked")


def require_tensors(state: object, origin: Path | str) -> dict[str, Tensor]:
    """Return what was read from a pickle as tensors by name.

    Raises:
        ModelError: If it is anything else, or a tensor has more numbers than are stored of it.
    """
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_meta
        for name, tensor in state.items()
    ):
        raise ModelError(f"{origin} must hold tensors by name, and holds something else")
    for name, tensor in state.items():
        # Strides of zero repeat a number; what is computed of such a tensor is as large as it says it is.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            shape = tuple(tensor.shape)
            raise ModelError(f"{origin}: the tensor {name} is of shape {shape}, and the file holds fewer numbers of it")
    return dict(state)


def float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors whose floating-point numbers are in float32."""
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}

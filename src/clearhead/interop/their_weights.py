"""Tensors of other libraries' files; nothing that stands in such a file is run."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.files import read_json, require_regular
from clearhead.weights import read_weights

__all__ = ["read_their_weights", "require_finite"]

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_SHARDED = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def read_their_weights(directory: Path) -> dict[str, Tensor]:
    """Read all tensors of a directory of Hugging Face transformers, in float32.

    Raises:
        ModelError: If there are none, a shard is missing, a file is damaged or holds more than tensors, or a number is
            not finite.
    """
    for name in _SINGLE:
        if (path := directory / name).exists():
            return require_finite(_float32(_read(path)), path)
    for name in _SHARDED:
        if (path := directory / name).exists():
            return require_finite(_float32(_read_shards(path)), path)
    raise ModelError(f"{directory} holds no weights: none of {', '.join((*_SINGLE, *_SHARDED))}")


def require_finite(tensors: Mapping[str, Tensor], origin: Path) -> dict[str, Tensor]:
    """Return tensors all of whose numbers are finite.

    Raises:
        ModelError: Naming the first that is not.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ModelError(f"{origin}: the tensor {name} has numbers that are not finite; the file is damaged")
    return dict(tensors)


def _read_shards(index: Path) -> dict[str, Tensor]:
    weight_map = read_json(index, ModelError).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ModelError(f"{index} is damaged: its weight_map must give every tensor its file")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name:
            raise ModelError(f"{index} names a file outside its directory: {name!r:.100}")
        tensors |= _read(index.parent / name)
    if missing := sorted(weight_map.keys() - tensors.keys()):
        raise ModelError(f"{index} names tensors that its files do not hold: {', '.join(missing[:5])}")
    return tensors


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_weights(path)[0]
    try:
        require_regular(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"cannot read the weights {path}: {error.strerror or error}") from None
    except pickle.UnpicklingError:
        raise ModelError(f"{path} is no file of tensors alone: it would run code when read, and is not") from None
    except Exception as error:  # what a damaged zip archive raises can be anything
        raise ModelError(f"cannot read the weights {path}: {str(error).splitlines()[0]}") from None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ModelError(f"{path} must hold tensors by name, and holds something else")
    return state


def _float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}

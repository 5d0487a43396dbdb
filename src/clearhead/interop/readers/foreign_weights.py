"""Readers of weight files of Hugging Face transformers and of pickled checkpoints of toolkits; no code in them is run.

A pickle is a program that calls the functions it names. PyTorch's weights-only loader builds tensors and containers,
and refuses every other name. But toolkits store their settings as objects, such as argparse's Namespace. For names
in those modules the loader is given stand-ins: a `Record` keeps the state of such an object. No class or function
that a file names is looked up, imported or called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.files import read_json
from clearhead.files.arrays import MOST_AXES
from clearhead.files.tensors import read_weights
from clearhead.interop.readers.pickles import Record, read_pickle

WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of weight files; the first that exists is read, as in transformers."""
_MOST_SHARED = 16
"""Largest ratio of the size of all tensors to that of the stored numbers; a matrix may have four names."""


def read_their_weights(directory: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """Read all tensors of a transformers directory in float32; return them and their files.

    Raises:
        ModelError: If there are no weights, a shard is missing, a file is damaged or holds more than tensors, or a
            number is not finite.
    """
    for name in WEIGHT_FILES:
        if (path := directory / name).exists():
            tensors, files = _read_shards(path) if path.suffix == ".json" else (_read(path), [path])
            tensors = {_today(name): tensor for name, tensor in tensors.items()}
            return require_finite(float32(tensors), path), files
    raise ModelError(f"{directory} holds no weights: none of {', '.join(WEIGHT_FILES)}")


def _today(name: str) -> str:
    """Return today's name of a tensor, as transformers does: the norms of BERT's first files have gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def require_finite(tensors: Mapping[str, Tensor], origin: Path | str) -> dict[str, Tensor]:
    """Return the tensors, whose numbers must all be finite.

    Raises:
        ModelError: Naming the first tensor that is not finite.
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
    return require_tensors(read_pickle(path, "weights"), path)


def require_tensors(state: object, origin: Path | str) -> dict[str, Tensor]:
    """Return the content of a pickle as tensors by name.

    Raises:
        ModelError: If it is anything else, or a tensor has more elements than the file stores.
    """
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided and not tensor.is_meta
        for name, tensor in state.items()
    ):
        raise ModelError(f"{origin} must hold tensors by name, and holds something else")
    for name, tensor in state.items():
        if tensor.dim() > MOST_AXES:
            raise ModelError(
                f"{origin}: the tensor {name:.100} has {tensor.dim():,} axes, but must have at most {MOST_AXES}"
            )
        # Strides of zero repeat a number; a result computed from such a tensor takes the memory of its full shape.
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            shape = tuple(tensor.shape)
            raise ModelError(f"{origin}: the tensor {name} is of shape {shape}, and the file holds fewer numbers of it")
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in state.values()}
    if sum(tensor.nbytes for tensor in state.values()) > _MOST_SHARED * sum(storages.values()):
        raise ModelError(f"{origin} is damaged: its tensors share their numbers more than {_MOST_SHARED} times")
    return dict(state)


def float32(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with floating-point numbers converted to float32."""
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


_STOOD_IN_FOR = ("argparse", "enum", "fairseq", "functools", "joeynmt", "numpy", "omegaconf", "onmt", "torchtext")
"""Packages whose objects occur in checkpoints beside the tensors."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a PyTorch file, with a `Record` for every object that is neither a tensor nor a plain value.

    Raises:
        ModelError: If the file cannot be read, would run code, or holds no values by name.
    """
    values = read_pickle(path, "checkpoint", stood_in_for=_STOOD_IN_FOR)
    if not isinstance(values, dict):
        raise ModelError(f"{path} must hold values by name, and holds something else")
    return values


def settings_in(values: object) -> dict[str, Any] | None:
    """Return the settings in an object of a checkpoint, by name; None if it holds no named settings."""
    if isinstance(values, Record):
        values = values.state
    return dict(values) if isinstance(values, dict) and all(isinstance(name, str) for name in values) else None


def tensors_in(checkpoint: Mapping[str, Any], key: str, path: Path) -> dict[str, Tensor]:
    """Return the tensors under a key of a checkpoint, in float32.

    Raises:
        ModelError: If the key is missing, holds anything but tensors, or a number is not finite.
    """
    if key not in checkpoint:
        raise ModelError(f"{path} has no {key!r} with tensors; it has {', '.join(map(str, checkpoint)):.100}")
    origin = f"{path}: {key}"
    return require_finite(float32(require_tensors(checkpoint[key], origin)), origin)

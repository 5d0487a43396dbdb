"""Sharded checkpoints: each worker writes and reads its own rows of the tensors.

The number of workers may differ between writing and reading.

Beside `state.json` and `manifest.json`, the directory of such a checkpoint has, for two workers:

    model-00001-of-00002.safetensors      rows of the weights that the first worker holds
    optimizer-00001-of-00002.safetensors  the same of the optimiser's state
    model-00002-of-00002.safetensors, optimizer-00002-of-00002.safetensors
    index.json                            number of shares, and the shape of every tensor

A tensor is its rows in the order of the files. One without rows, such as a step count, is in the first file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.bundle import require_fitting_weights
from clearhead.config import ModelConfig
from clearhead.errors import CheckpointError, ModelError
from clearhead.files import file_sha256, read_json, write_json
from clearhead.files.arrays import TensorHeader
from clearhead.files.tensors import model_tensors, read_weights, write_weights
from clearhead.training.distributed import Workers, own_rows, with_own_rows

INDEX = "index.json"
KINDS = "model", "optimizer"
"""What a checkpoint has tensors of; in the present form each is one file, `model.safetensors`."""


def is_sharded(directory: Path) -> bool:
    """Return whether a checkpoint is made of shares."""
    return (directory / INDEX).exists()


def tensor_files(directory: Path) -> set[str]:
    """Return the names of the files that make up the tensors of a checkpoint, with the index of a sharded one.

    Raises:
        CheckpointError: If the index cannot be read.
    """
    if not is_sharded(directory):
        return {f"{kind}.safetensors" for kind in KINDS}
    count = _index(directory)["shares"]
    return {INDEX, *(_name(kind, number, count) for kind in KINDS for number in range(count))}


def read_tensors(
    directory: Path, kind: str, wanted: Callable[[str], range | None] = lambda _: None
) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint, sharded or not.

    Args:
        directory: The checkpoint.
        kind: One of `KINDS`.
        wanted: Returns the rows to read of a tensor, from its name, or None to read all. Without it, all are read.

    Raises:
        CheckpointError: If they cannot be read, or differ from the index.
    """
    before: dict[str, list[tuple[int, ...]]] = {}  # shapes of a tensor's parts so far

    def rows_of_part(name: str, shape: tuple[int, ...]) -> slice:
        parts = before.setdefault(name, [])
        first = sum(part[0] for part in parts)
        parts.append(shape)
        if (rows := wanted(name)) is None:
            return slice(None)
        start, stop = (min(max(row - first, 0), shape[0]) for row in (rows.start, rows.stop))
        return slice(start, stop)

    try:
        if not is_sharded(directory):
            return read_weights(directory / f"{kind}.safetensors", float32=True, rows=rows_of_part)[0]
        index = _index(directory)
        count, shapes = index["shares"], index[kind]
        parts: dict[str, list[Tensor]] = {name: [] for name in shapes}
        for number in range(count):
            path = directory / _name(kind, number, count)
            tensors, metadata = read_weights(path, float32=True, rows=rows_of_part)
            if (step := metadata.get("step")) != str(index["step"]):
                raise CheckpointError(f"{path} is of step {step}, and its checkpoint of step {index['step']}")
            if unknown := tensors.keys() - parts.keys():
                raise CheckpointError(f"{path} holds {min(unknown)}, which {INDEX} does not list")
            for name, tensor in tensors.items():
                parts[name].append(tensor)
    except ModelError as error:
        raise CheckpointError(str(error)) from None
    for name, shape in shapes.items():
        written = before.get(name) or [(1,) for _ in parts[name]]  # one without rows
        rows, widths = sum(part[0] for part in written), {part[1:] for part in written}
        axes = {part.dim() for part in parts[name]}
        if rows != (shape[0] if shape else 1) or widths != {tuple(shape[1:])} or axes != {len(shape)}:
            raise CheckpointError(f"the shares in {directory} do not make up {name} of shape {shape}")
    return {name: torch.cat(parts.pop(name)) if shape else parts[name][0] for name, shape in shapes.items()}


def read_own_tensors(directory: Path, kind: str, model: nn.Module) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint that belong to a model's weights; of sharded ones this worker's rows alone.

    Args:
        directory: The checkpoint.
        kind: One of `KINDS`; a tensor of an optimiser has the name of its weight and one more word.
        model: The model.
    """
    weights = model_tensors(model)

    def weight_of(name: str) -> Tensor | None:
        return weights.get(name if kind == "model" else name.rpartition(".")[0])

    found = read_tensors(directory, kind, lambda name: own_rows(weight_of(name)))
    return {name: with_own_rows(rows, weight_of(name)) for name, rows in found.items()}


def require_fitting_checkpoint(config: ModelConfig, directory: Path, run: Path) -> None:
    """Require that the weights of a checkpoint, sharded or not, fit the configured model.

    Raises:
        CheckpointError: If the index of a sharded one cannot be read.
        ModelError: If the weights are others, or cannot be read.
    """
    path, headers = directory / "model.safetensors", None
    if is_sharded(directory):
        path = directory / INDEX
        headers = {name: TensorHeader(tuple(shape), "F32") for name, shape in _index(directory)["model"].items()}
    require_fitting_weights(config, path, origin=str(run / "config.toml"), headers=headers)


def _index(directory: Path) -> dict[str, Any]:
    index = read_json(directory / INDEX, CheckpointError)
    shapes = [shape for kind in KINDS if isinstance(index.get(kind), dict) for shape in index[kind].values()]
    is_whole = all(isinstance(index.get(kind), dict) for kind in KINDS) and type(index.get("step")) is int
    has_sizes = all(isinstance(shape, list) and all(type(size) is int for size in shape) for shape in shapes)
    if not is_whole or not has_sizes or type(index.get("shares")) is not int or not 0 < index["shares"] < 100_000:
        raise CheckpointError(f"{directory / INDEX} is not an index of shares")
    return index


def _name(kind: str, number: int, count: int) -> str:
    return f"{kind}-{number + 1:05d}-of-{count:05d}.safetensors"


class Shares:
    """The shares of all workers in the checkpoints of a run, each written by a thread of its worker.

    All workers write the same checkpoints, one after another. The first worker tells the others the directory, and
    their threads leave in the workers' store what they have written, or why they could not.

    Args:
        workers: The workers, over which the weights are sharded.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers, self._messages, self._begun = workers, workers.messages(), 0
        self.ended = threading.Event()
        """Set when this worker ends early; it then waits for no others."""

    def begin(self, directory: Path | None) -> Path:
        """Return the new checkpoint's temporary directory, which is given on the first worker and None on the others.

        Raises:
            LostWorkerError: If another worker is lost.
        """
        self._begun += 1
        return Path(self.workers.tell(f"directory {self._begun}", None if directory is None else str(directory)))

    def write(
        self, directory: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], shapes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write this worker's rows; on the first worker also the index, and wait until all have written theirs.

        Args:
            directory: The temporary directory.
            step: Optimiser steps.
            tensors: This worker's rows of the tensors, by kind and name.
            shapes: Shapes of all tensors, by kind and name.

        Returns:
            On the first worker, the entries of all tensor files for the manifest.

        Raises:
            OSError: If this worker's share cannot be written.
            CheckpointError: If another worker could not write its share.
            LostWorkerError: If the store does not answer, or this worker ends.
        """
        rank, count, entries = self.workers.rank, self.workers.count, dict[str, Any]()
        told: dict[str, Any] = {"error": "it ended"}
        try:
            for kind, rows in tensors.items():
                path = directory / _name(kind, rank, count)
                write_weights(path, rows, {"format": "pt", "step": str(step)})
                entries[path.name] = entry(path)
            told = {"entries": entries}
        except OSError as error:
            told = {"error": f"{error.strerror or error}"}
            raise
        finally:
            self._messages.put(f"share {self._begun} of {rank}", json.dumps(told))
        if not self.workers.is_first:
            return {}
        write_json(directory / INDEX, {"step": step, "shares": count, **shapes})
        for other in range(1, count):
            told = json.loads(self._messages.get(f"share {self._begun} of {other}", self.ended))
            if "error" in told:
                raise CheckpointError(f"worker {other} could not write its share: {told['error']}")
            entries |= told["entries"]
        return entries


def entry(path: Path) -> dict[str, Any]:
    """Return the entry of a file in a manifest."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}

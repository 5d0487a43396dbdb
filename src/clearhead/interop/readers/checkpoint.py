"""Reader of pickled toolkit checkpoints: tensors and plain settings; no code in them is run.

A pickle is a program that calls the functions it names. PyTorch's weights-only loader builds tensors and containers,
and refuses every other name. But toolkits store their settings as objects, such as argparse's Namespace. For names
in those modules the loader is given stand-ins: a `Record` keeps the state of such an object. No class or function
that a file names is looked up, imported or called.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import ModelError
from clearhead.interop.readers.foreign_weights import float32, require_finite, require_tensors
from clearhead.interop.readers.pickles import Record, read_pickle

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

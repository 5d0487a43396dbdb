"""Reader of pickled toolkit checkpoints: tensors and plain settings; no code in them is run.

A pickle is a program that calls the functions it names. PyTorch's weights-only loader builds tensors and containers,
and refuses every other name. But toolkits store their settings as objects, such as argparse's Namespace. For names
in those modules the loader is given stand-ins: a `Record` keeps the state of such an object. No class or function
that a file names is looked up, imported or called.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from clearhead.errors import ModelError
from clearhead.files import require_regular
from clearhead.interop.readers.foreign_weights import (
    ZIP_START,
    float32,
    require_finite,
    require_tensors,
    require_unpacked,
)

_STOOD_IN_FOR = ("argparse", "enum", "fairseq", "functools", "joeynmt", "numpy", "omegaconf", "onmt", "torchtext")
"""Packages whose objects occur in checkpoints beside the tensors."""
_PICKLES_BEFORE_STORAGES = 4
"""Pickles before the data in files of PyTorch before 1.6: magic number, version, system information, object."""


class Record:
    """Stand-in for an object whose class is not looked up."""

    state: Any = None
    """State of the object, usually its attributes by name."""

    def __new__(cls, *_arguments: Any) -> Record:
        """Accept any arguments, like the class that it stands in for."""
        return super().__new__(cls)

    def __init__(self, *_arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a PyTorch file, with a `Record` for every object that is neither a tensor nor a plain value.

    Raises:
        ModelError: If the file cannot be read, would run code, or holds no values by name.
    """
    named: set[tuple[str, str]] = set()
    try:
        require_regular(path)
        require_unpacked(path)
        named = _named(path)
        stand_ins: list[Any] = [
            type(name, (Record,), {"__module__": module})
            for module, name in sorted(named)
            if module.split(".")[0] in _STOOD_IN_FOR
        ]
        with torch.serialization.safe_globals(stand_ins):
            values = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"cannot read the checkpoint {path}: {error.strerror or error}") from None
    except ModelError:
        raise
    except pickle.UnpicklingError:
        known = (*_STOOD_IN_FOR, "_codecs", "builtins", "__builtin__", "collections", "torch")
        others = sorted(f"{module}.{name}" for module, name in named if module.split(".")[0] not in known)
        what = f" ({', '.join(others[:3]):.100})" if others else ""
        raise ModelError(
            f"{path} holds more than tensors and settings{what}: it would run code when read, and is not"
        ) from None
    except Exception as error:  # a damaged archive or pickle may raise any exception
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ModelError(f"cannot read the checkpoint {path}: {said:.200}") from None
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


def _named(path: Path) -> set[tuple[str, str]]:
    """Return the module and name of every class and function that a file refers to."""
    with path.open("rb") as file:
        if file.read(len(ZIP_START)) != ZIP_START:
            file.seek(0)
            return _globals(file, _PICKLES_BEFORE_STORAGES)
    with zipfile.ZipFile(path) as archive:
        inside = next(info for info in archive.infolist() if Path(info.filename).name == "data.pkl")
        return _globals(io.BytesIO(archive.read(inside)), 1)


def _globals(file: BinaryIO | io.BytesIO, pickles: int) -> set[tuple[str, str]]:
    found = (
        argument.split(" ", 1)
        for _ in range(pickles)
        for opcode, argument, _ in pickletools.genops(file)
        if opcode.name == "GLOBAL" and argument is not None
    )
    return {(module, name) for module, name in found}

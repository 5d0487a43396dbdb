"""Checkpoints that survive a crash at any moment.

A checkpoint is written into a hidden directory, flushed to the disk, given a manifest with the checksum of every file
last, and renamed into place. One without a valid manifest does not count; the one before it is used, and that is said.

checkpoints/step-00001000/
    model.safetensors      weights
    optimizer.safetensors  moments of Adam
    state.json             everything else: step, time used, best validation, patience
    manifest.json          size and SHA-256 of the three
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from clearhead.errors import CheckpointError, ModelError
from clearhead.json_files import read_json
from clearhead.training.log import Amount, Count, Window
from clearhead.weights import file_sha256, read_weights, write_weights

__all__ = ["Best", "Checkpoints", "TrainingState", "disk_trouble"]

_NAME = re.compile(r"step-\d{8,}")


@dataclass
class Best:
    """The best validation so far."""

    step: Count
    bleu: Amount
    nll: Amount


@dataclass
class TrainingState:
    """What a run knows beside its tensors; random numbers need no entry, they follow from (seed, step)."""

    step: Count = 0
    """Optimiser steps done."""
    elapsed: Amount = 0.0
    """Seconds of training so far, over all resumed parts and with data preparation."""
    target_tokens: Count = 0
    """Target tokens trained on so far."""
    best: Best | None = None
    stale_validations: Count = 0
    """Validations since the best one."""
    validated_step: Count = 0
    """Step of the last validation."""
    device: str = ""
    """Kind of device, such as `cpu`; another one rounds otherwise."""
    threads: Count = 0
    """CPU threads; another number adds floats in another order."""
    window: Window = field(default_factory=Window)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingState:
        """Read what `to_dict` wrote.

        Raises:
            CheckpointError: If the fields are not those of a state, or one has a value that none can have.
        """
        try:
            best, window = values["best"], values["window"]
            for part, kind in ((values, cls), (window, Window), *(((best, Best),) if best is not None else ())):
                if part.keys() != kind.__dataclass_fields__.keys():
                    raise TypeError(f"its fields must be {', '.join(kind.__dataclass_fields__)}")
            state = _STATE.validate_python(values)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
            raise CheckpointError(f"state.json is not a training state: {'; '.join(problems)}") from None
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"state.json is not a training state: {error}") from None
        last = max(state.validated_step, state.best.step if state.best else 0)
        if last > state.step:
            raise CheckpointError(f"state.json is not a training state: step {last} after the last one, {state.step}")
        return state

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


_STATE = TypeAdapter(TrainingState)


@dataclass
class Checkpoints:
    """The checkpoints of one run."""

    directory: Path
    notice: Callable[[str], None]
    """Told when a damaged checkpoint is passed over."""
    _verified: set[Path] = field(default_factory=set)

    def paths(self) -> list[Path]:
        """Return the checkpoint directories, oldest first."""
        return sorted(path for path in self.directory.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir())

    def path(self, step: int) -> Path:
        """Return where the checkpoint of a step stands."""
        return self.directory / f"step-{step:08d}"

    def save(self, state: TrainingState, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> Path:
        """Write a checkpoint, whole or not at all.

        Raises:
            CheckpointError: If it cannot be written; older checkpoints are untouched.
        """
        final = self.path(state.step)
        partial = self.directory / f".{final.name}.partial"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            metadata = {"format": "pt", "step": str(state.step)}
            write_weights(partial / "model.safetensors", model, metadata)
            write_weights(partial / "optimizer.safetensors", optimizer, metadata)
            (partial / "state.json").write_text(json.dumps(state.to_dict(), indent=2) + "\n", encoding="utf-8")
            manifest = {
                file.name: {"bytes": file.stat().st_size, "sha256": file_sha256(file)} for file in partial.iterdir()
            }
            _flush(partial)
            (partial / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            _flush(partial)
            aside = self.directory / f".{final.name}.old"
            if final.exists():  # never a moment without either: `newest` brings the old one back
                os.replace(final, aside)
            os.replace(partial, final)
            _flush_directory(self.directory)
            shutil.rmtree(aside, ignore_errors=True)
            for later in self.paths():
                if later > final:  # damaged ones that the run went back behind
                    shutil.rmtree(later, ignore_errors=True)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            kept = (
                f"the last good checkpoint is {self.paths()[-1]}" if self.paths() else "there is no earlier checkpoint"
            )
            raise CheckpointError(f"cannot write the checkpoint {final}: {disk_trouble(error)}; {kept}") from None
        self._verified.add(final)
        return final

    def newest(self) -> tuple[Path, TrainingState] | None:
        """Return the newest undamaged checkpoint, or None if there is no checkpoint at all.

        Raises:
            CheckpointError: If there are checkpoints, and all of them are damaged.
        """
        for aside in self.directory.glob(".step-*.old"):  # killed while replacing it
            final = aside.with_name(aside.name[1 : -len(".old")])
            if not final.exists():
                os.replace(aside, final)
        paths = self.paths()
        for path in reversed(paths):
            if trouble := self.trouble(path):
                self.notice(f"checkpoint {path.name} is damaged ({trouble}); trying the one before it")
                continue
            return path, _read_state(path)
        if paths:
            raise CheckpointError(
                f"all {len(paths)} checkpoints in {self.directory} are damaged; restore one from a backup, "
                f"or start over with --fresh"
            )
        return None

    def trouble(self, path: Path) -> str | None:
        """Return what is wrong with a checkpoint, or None."""
        if path in self._verified:
            return None
        try:
            manifest = read_json(path / "manifest.json", CheckpointError)
            if set(manifest) != {"model.safetensors", "optimizer.safetensors", "state.json"}:
                return "manifest.json does not name all files"
            for name, entry in manifest.items():
                if (path / name).stat().st_size != entry["bytes"] or file_sha256(path / name) != entry["sha256"]:
                    return f"{name} is not what its checksum says"
            state = _read_state(path)
        except OSError as error:
            return f"{Path(error.filename or path).name}: {error.strerror}"
        except (KeyError, TypeError):
            return "manifest.json is not readable"
        except CheckpointError as error:
            return str(error)
        if self.path(state.step) != path:
            return f"state.json is of step {state.step}"
        self._verified.add(path)
        return None

    def last(self, count: int, *, multiple_of: int) -> list[Path]:
        """Return the newest undamaged checkpoints, oldest first: the regular ones, and the very newest.

        What an interruption or the clock added in between is left out, so that an average does not depend on it.

        Args:
            count: How many at most.
            multiple_of: Steps between regular checkpoints.
        """
        good = []
        for path in self._regular(multiple_of):
            if trouble := self.trouble(path):
                self.notice(f"checkpoint {path.name} is damaged ({trouble}) and is left out of the average")
            else:
                good.append(path)
        return good[-count:]

    def prune(self, keep: int, *, best_step: int | None, multiple_of: int) -> None:
        """Delete all but the newest `keep` checkpoints that `last` counts, and the best one."""
        kept = self._regular(multiple_of)[-keep:]
        for path in self.paths():
            if path not in kept and (best_step is None or path != self.path(best_step)):
                shutil.rmtree(path, ignore_errors=True)

    def _regular(self, multiple_of: int) -> list[Path]:
        paths = self.paths()
        return [path for path in paths if path == paths[-1] or int(path.name[5:]) % multiple_of == 0]

    @staticmethod
    def tensors(path: Path, name: str) -> dict[str, Tensor]:
        """Read one tensor file of a checkpoint.

        Raises:
            CheckpointError: If it cannot be read.
        """
        try:
            return read_weights(path / name, float32=True)[0]
        except ModelError as error:
            raise CheckpointError(str(error)) from None


def _read_state(path: Path) -> TrainingState:
    return TrainingState.from_dict(read_json(path / "state.json", CheckpointError))


def disk_trouble(error: OSError) -> str:
    """Say in plain words what the disk refused."""
    text = str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text or "os error 28" in text:
        return "the disk is full; free some space and run the same command again to resume"
    return f"{error.strerror or text}; put that right and run the same command again to resume"


def _flush(directory: Path) -> None:
    for path in directory.iterdir():
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    _flush_directory(directory)


def _flush_directory(directory: Path) -> None:
    if os.name != "posix":
        return  # only POSIX lets a directory be flushed
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

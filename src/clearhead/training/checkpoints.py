"""State of a training run, and its checkpoints: written whole or not at all, verified by checksum, pruned.

A checkpoint is a directory made by `files.new_directory`; its manifest of checksums is written last. A checkpoint
without a valid manifest is ignored with a notice, and the one before it is used.

checkpoints/step-00001000/
    model.safetensors      weights
    optimizer.safetensors  optimiser state (moments)
    state.json             everything else: format, step, elapsed time, best validation, patience
    manifest.json          size and SHA-256 of the other files

Where weights are sharded over workers, `shards` has the tensor files.
"""

from __future__ import annotations

import errno
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from clearhead.config import TrainConfig
from clearhead.errors import CheckpointError
from clearhead.files import file_sha256, new_directory, read_json, write_json
from clearhead.files.tensors import write_weights
from clearhead.runtime.version import full_version
from clearhead.training.divergence import Divergence
from clearhead.training.log import Amount, Count, Window
from clearhead.training.shards import Shares, entry, read_tensors, tensor_files

CHECKPOINT_FORMAT = 4
"""Format number of checkpoints. Increased when another clearhead could misread a checkpoint."""

_NAME = re.compile(r"step-\d{8,}")


class _OtherFormatError(CheckpointError):
    """The checkpoint was written by another clearhead. It is not damaged, so the one before it is not used instead."""


@dataclass
class Best:
    """The best validation so far."""

    step: Count
    bleu: Amount
    nll: Amount
    chrf: Amount
    measured_on: str
    """What the scores were measured on, as `validation.measured_on` returns it."""


@dataclass
class TrainingState:
    """State of a run other than its tensors. Random-number state is not saved: it follows from (seed, step)."""

    step: Count = 0
    """Optimiser steps done."""
    elapsed: Amount = 0.0
    """Seconds of training so far, including data preparation, over all resumed parts of the run."""
    target_tokens: Count = 0
    """Target tokens trained on so far."""
    best: Best | None = None
    least_nll: Amount | None = None
    """Lowest negative log-likelihood of any validation; not always that of the best validation."""
    stale_validations: Count = 0
    """Consecutive validations that improved neither the best score nor the lowest negative log-likelihood."""
    validated_step: Count = 0
    """Step of the last validation."""
    device: str = ""
    """Device type, such as `cpu`. Another type rounds differently."""
    threads: Count = 0
    """Number of CPU threads. Another number adds floating-point numbers in a different order."""
    precision: str = ""
    """Precision in which matrix products were computed, `fp32` or `bf16`."""
    window: Window = field(default_factory=Window)
    divergence: Divergence = field(default_factory=Divergence)
    micro_batch_tokens: Count | None = None
    """Target tokens computed at once since the device ran out of memory; None if it never did."""
    imported_from: dict[str, Any] | None = None
    """What the initial model records about the library it was imported from; None if it was not imported."""

    def ended_by(self, train: TrainConfig) -> str | None:
        """Return the reason why training ends now, or None if it continues."""
        if train.max_steps is not None and self.step >= train.max_steps:
            return "max_steps"
        if train.max_minutes is not None and self.elapsed >= 60 * train.max_minutes:
            return "max_minutes"
        if self.stale_validations >= train.patience:
            return "patience"
        return None

    def progress(self, train: TrainConfig) -> float:
        """Return the completed fraction of the training: of its steps or of its time, whichever is larger."""
        of_steps = 0.0 if train.max_steps is None else self.step / train.max_steps
        of_time = 0.0 if train.max_minutes is None else self.elapsed / (60 * train.max_minutes)
        return min(1.0, max(of_steps, of_time))

    def seconds_left(self, train: TrainConfig, per_step: float) -> float:
        """Return the seconds until the configured end, if a step takes `per_step`; patience may end it earlier."""
        of_steps = math.inf if train.max_steps is None else (train.max_steps - self.step) * per_step
        return min(of_steps, math.inf if train.max_minutes is None else 60 * train.max_minutes - self.elapsed)

    def computed_otherwise(self, now: TrainingState) -> Iterator[str]:
        """Yield what a run that resumes from this state, in a process of the state `now`, computes otherwise."""
        if self.threads != now.threads:
            yield f"the run used {self.threads} threads and now has {now.threads}: sums may differ in the last bit"
        if self.device != now.device:
            yield f"the run was on {self.device} and now is on {now.device}: it continues, but not bit for bit"
        if self.precision != now.precision:
            yield (
                f"the run's matrix products were in {self.precision} and now are in {now.precision}: "
                f"it continues, but not bit for bit"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingState:
        """Restore a state from the values that `to_dict` returned.

        Raises:
            CheckpointError: If fields are missing or unknown, or a value is invalid.
        """
        try:
            fields = dict(values)
            version = fields.pop("format_version", None)
            if version != CHECKPOINT_FORMAT:
                raise TypeError(f"format_version = {version!r}")
            fields = {**dict.fromkeys(_RARE), **fields}
            fields.setdefault("divergence", asdict(Divergence()))  # older clearheads ended at the first wrong step
            best, window, divergence = fields["best"], fields["window"], fields["divergence"]
            parts = (fields, cls), (window, Window), (divergence, Divergence)
            for part, kind in (*parts, *(((best, Best),) if best is not None else ())):
                if part.keys() != kind.__dataclass_fields__.keys():
                    raise TypeError(f"its fields must be {', '.join(kind.__dataclass_fields__)}")
            state = _STATE.validate_python(fields)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
            raise CheckpointError(f"state.json is not a training state: {'; '.join(problems)}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"state.json is not a training state: {error}") from None
        last = max(state.validated_step, state.best.step if state.best else 0)
        if last > state.step:
            raise CheckpointError(f"state.json is not a training state: step {last} after the last one, {state.step}")
        return state

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain values for JSON."""
        values = {"format_version": CHECKPOINT_FORMAT, **asdict(self)}
        return {name: value for name, value in values.items() if value is not None or name not in _RARE}


_RARE = "imported_from", "micro_batch_tokens"
"""Fields that `state.json` has only where they are set."""
_STATE = TypeAdapter(TrainingState)


@dataclass
class Checkpoints:
    """The checkpoints of one run."""

    directory: Path
    notice: Callable[[str], None]
    """Called with a message when a damaged checkpoint is skipped."""
    is_background: bool = False
    """Whether a thread writes checkpoints, from copies of the tensors; `wait` waits for it."""
    shares: Shares | None = None
    """The workers' shares, if the weights are sharded; then all workers save, and a thread of each writes."""
    _verified: set[Path] = field(default_factory=set)
    _damaged: set[Path] = field(default_factory=set)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))  # starts with its first task
    _tasks: list[Future[None]] = field(default_factory=list)
    _has_failed: bool = False  # to write one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self.shares is not None:
            self.shares.ended.set()
        self._thread.shutdown()
        if kind is None:  # another error is not replaced
            self.wait()

    def wait(self) -> None:
        """Wait until the thread has written and deleted what `save` and `prune` gave it.

        Raises:
            CheckpointError: If a checkpoint could not be written.
        """
        if self._tasks and self.shares is not None:
            self.shares.workers.begin("")  # no time limit: that of a checkpoint follows from how long it takes to copy
        while self._tasks:
            self._tasks.pop(0).result()

    def _do(self, function: Callable[..., None], *arguments: Any) -> None:
        if self.is_background:
            self._tasks.append(self._thread.submit(function, *arguments))
        else:
            function(*arguments)

    def paths(self) -> list[Path]:
        """Return the checkpoint directories, oldest first."""
        self.wait()
        return self._paths()

    def _paths(self) -> list[Path]:
        paths = (path for path in self.directory.glob("step-*") if _NAME.fullmatch(path.name) and path.is_dir())
        return sorted(paths, key=_step)  # names of more than eight digits do not sort as text

    def path(self, step: int) -> Path:
        """Return the path of the checkpoint for a step."""
        return self.directory / f"step-{step:08d}"

    def save(self, state: TrainingState, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> Path:
        """Write a checkpoint, completely or not at all; in the background, once the previous one is written.

        Raises:
            CheckpointError: If it, or the previous one, cannot be written, or could not be read back. Older checkpoints
                are untouched.
            LostWorkerError: If the weights are sharded, and another worker is lost.
        """
        self.wait()
        final, values, copied = self.path(state.step), state.to_dict(), None
        tensors, shapes = {"model": model, "optimizer": optimizer}, dict[str, Any]()
        with ExitStack() as stack, self._described(final):
            directory = stack.enter_context(new_directory(final)) if self._is_first else None
            if self.shares is not None:
                directory = self.shares.begin(directory)
                shapes = {kind: {name: list(one.shape) for name, one in of.items()} for kind, of in tensors.items()}
                tensors = {kind: self.shares.workers.own_rows(of) for kind, of in tensors.items()}
            if self.is_background:
                device = next(iter(model.values())).device
                tensors = {kind: _copies(of) for kind, of in tensors.items()}
                copied = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None
            opened = stack.pop_all()
        assert directory is not None, "the first worker has made it"
        self._do(self._write, final, values, directory, tensors, shapes, copied, opened)
        return final

    @property
    def _is_first(self) -> bool:
        return self.shares is None or self.shares.workers.is_first

    def _write(
        self,
        final: Path,
        values: dict[str, Any],
        directory: Path,
        tensors: Mapping[str, Mapping[str, Tensor]],
        shapes: Mapping[str, Any],
        copied: torch.cuda.Event | None,
        stack: ExitStack,
    ) -> None:
        if copied is not None:
            copied.synchronize()
        with self._described(final):
            with stack:  # the directory gets its name at the end
                state = TrainingState.from_dict(values)
                if self.shares is None:
                    metadata = {"format": "pt", "step": str(state.step)}
                    for kind, own in tensors.items():
                        write_weights(directory / f"{kind}.safetensors", own, metadata)
                    manifest = {}
                else:
                    manifest = self.shares.write(directory, state.step, tensors, shapes)
                if not self._is_first:
                    return
                write_json(directory / "state.json", values)
                own_files = [file for file in directory.iterdir() if file.name not in manifest]
                manifest |= {file.name: entry(file) for file in own_files}
                write_json(directory / "manifest.json", manifest)
            for later in self._paths():
                if _step(later) > state.step:  # damaged checkpoints, newer than the one from which the run resumed
                    shutil.rmtree(later, ignore_errors=True)
        self._verified.add(final)
        self._damaged.discard(final)

    @contextmanager
    def _described(self, final: Path) -> Iterator[None]:
        """Say in errors of writing which checkpoint they are of, and which one is good."""
        try:
            yield
        except (OSError, CheckpointError) as error:
            self._has_failed = True
            earlier = self._paths()
            kept = f"the last good checkpoint is {earlier[-1]}" if earlier else "there is no earlier checkpoint"
            trouble = disk_trouble(error) if isinstance(error, OSError) else error
            raise CheckpointError(f"cannot write the checkpoint {final}: {trouble}; {kept}") from None

    def newest(self) -> tuple[Path, TrainingState] | None:
        """Return the newest undamaged checkpoint, or None if there are no checkpoints.

        Raises:
            CheckpointError: If there are checkpoints and all are damaged.
        """
        paths = self.paths()
        for path in reversed(paths):
            if trouble := self.trouble(path):
                self.notice(f"checkpoint {path.name} is damaged ({trouble}); trying the one before it")
                continue
            return path, self.state(path)  # read again: a run changes its state in place
        if paths:
            raise CheckpointError(
                f"all {len(paths)} checkpoints in {self.directory} are damaged; restore one from a backup, "
                f"or start over with --fresh"
            )
        return None

    @staticmethod
    def state(path: Path) -> TrainingState:
        """Return the state of an undamaged checkpoint.

        Raises:
            CheckpointError: If it is of another format or cannot be read.
        """
        values = read_json(path / "state.json", CheckpointError)
        version = values.get("format_version")
        if type(version) is int and version != CHECKPOINT_FORMAT:
            raise _OtherFormatError(
                f"{path} is of format {version}; this is clearhead {full_version()}, which reads format "
                f"{CHECKPOINT_FORMAT}: "
                + ("upgrade with pip" if version > CHECKPOINT_FORMAT else "start the run over with --fresh")
            )
        return TrainingState.from_dict(values)

    def trouble(self, path: Path) -> str | None:
        """Return what is wrong with a checkpoint, or None if it is undamaged."""
        self.wait()
        if path in self._verified:
            return None
        trouble = self._trouble_on_disk(path)
        (self._damaged if trouble else self._verified).add(path)
        return trouble

    def _trouble_on_disk(self, path: Path) -> str | None:
        try:
            manifest = read_json(path / "manifest.json", CheckpointError)
            if set(manifest) != {*tensor_files(path), "state.json"}:
                return "manifest.json does not name all files"
            for name, entry in manifest.items():
                if (path / name).stat().st_size != entry["bytes"] or file_sha256(path / name) != entry["sha256"]:
                    return f"{name} is not what its checksum says"
            state = self.state(path)
        except OSError as error:
            return f"{Path(error.filename or path).name}: {error.strerror}"
        except (KeyError, TypeError):
            return "manifest.json is not readable"
        except _OtherFormatError:
            raise
        except CheckpointError as error:
            return str(error)
        if self.path(state.step) != path:
            return f"state.json is of step {state.step}"
        return None

    def last(self, count: int, *, multiple_of: int) -> list[Path]:
        """Return the newest undamaged checkpoints, oldest first: regular ones, and the newest of all.

        Checkpoints that an interruption or the time limit added between regular ones are left out, so that an average
        of checkpoints does not depend on them.

        Args:
            count: Maximum number of checkpoints.
            multiple_of: Optimiser steps between regular checkpoints.
        """
        good = []
        for path in _regular(self.paths(), multiple_of):
            if trouble := self.trouble(path):
                self.notice(f"checkpoint {path.name} is damaged ({trouble}) and is left out of the average")
            else:
                good.append(path)
        return good[-count:]

    def good(self, step: int, *, last: int) -> int:
        """Return the step of the best checkpoint, or of the last if that is damaged."""
        if trouble := self.trouble(self.path(step)):
            self.notice(f"the best checkpoint, of step {step:,}, is damaged ({trouble}); using the last one")
            return last
        return step

    def good_before(self, step: int, best: Best | None, *, multiple_of: int) -> tuple[int, bool] | None:
        """Return the step of the newest undamaged checkpoint up to a step, and whether the best as of then exists.

        None if there is no such checkpoint. Checkpoints that an interruption or the time limit added are left out, as
        in `last`.

        Args:
            step: Optimiser steps.
            best: The best validation, whose checkpoint counts as a regular one.
            multiple_of: Optimiser steps between regular checkpoints.
        """
        for path in reversed(self.paths()):
            number = _step(path)
            is_regular = number % multiple_of == 0 or (best is not None and number == best.step)
            if 0 < number <= step and is_regular and self.trouble(path) is None:
                then = self.state(path).best
                return number, then is None or self.path(then.step).exists()
        return None

    def prune(self, keep: int, *, best_step: int | None, multiple_of: int) -> None:
        """Delete all checkpoints except the best one and the newest `keep` checkpoints counted by `last`.

        Checkpoints found damaged do not count; otherwise they would displace the one from which a run resumed. No file
        is read for this: `newest` has checked all checkpoints newer than that one, and this process wrote the others.

        Args:
            keep: Number of newest checkpoints to keep.
            best_step: Step of the best checkpoint, which is kept too; None if there is none.
            multiple_of: Optimiser steps between regular checkpoints.
        """
        self._do(self._prune, keep, best_step, multiple_of)

    def _prune(self, keep: int, best_step: int | None, multiple_of: int) -> None:
        if self._has_failed:  # the run ends, and the state to resume from may name another best one
            return
        kept = _regular([path for path in self._paths() if path not in self._damaged], multiple_of)[-keep:]
        for path in self._paths():
            if path not in kept and (best_step is None or path != self.path(best_step)):
                shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def weights(path: Path) -> dict[str, Tensor]:
        """Read the weights of a checkpoint.

        Raises:
            CheckpointError: If they cannot be read.
        """
        return read_tensors(path, "model")


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies in CPU memory; those of GPU tensors are made asynchronously, in the order of its stream."""
    hosts = {name: torch.empty_like(one, device="cpu", pin_memory=one.is_cuda) for name, one in tensors.items()}
    return {name: host.copy_(tensors[name], non_blocking=True) for name, host in hosts.items()}


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _regular(paths: Sequence[Path], multiple_of: int) -> list[Path]:
    """Return the newest checkpoint and the regular ones, without step 0, which has learned nothing in this run."""
    steps = {path: _step(path) for path in paths}
    return [path for path, step in steps.items() if path == paths[-1] or (step and step % multiple_of == 0)]


def disk_trouble(error: OSError) -> str:
    """Return a plain description of a disk error and how to continue."""
    text = str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text or "os error 28" in text:
        return "the disk is full; free some space and run the same command again to resume"
    what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror or text
    return f"{what}; put that right and run the same command again to resume"

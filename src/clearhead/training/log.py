"""Training log of a run: `metrics.jsonl`, one JSON object per line, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from clearhead.config import MOST_STEPS
from clearhead.errors import CheckpointError
from clearhead.files import read_json_lines, write_text
from clearhead.training.step import StepResult
from clearhead.training.tracking import Tracking

Count = Annotated[int, Field(strict=True, ge=0, le=10**15)]
Amount = Annotated[float, Field(strict=True, ge=0.0, le=1e15, allow_inf_nan=False)]
Loss = Annotated[float, Field(strict=True, ge=-1e15, le=1e15, allow_inf_nan=False)]
Norm = Annotated[float, Field(strict=True, ge=0.0, le=3.5e38, allow_inf_nan=False)]
"""Valid ranges of numbers in a saved state.

Where every token is certain, a loss from rounded products can fall slightly below zero. A norm before clipping can be
any float32 value.
"""

_OF_A_VALIDATION = {"measured_on", "nll", "bleu", "chrf"}
"""What the record of a validation has, besides its step."""


@dataclass
class Window:
    """Running sums since the last log record; saved in checkpoints, so that an interruption leaves no trace."""

    loss: Loss = 0.0
    nll: Loss = 0.0
    grad_norm: Norm = 0.0
    tokens: Count = 0
    steps: Count = 0
    seconds: Amount = 0.0

    def add(self, result: StepResult, seconds: float) -> None:
        """Add one step, which took `seconds`; each step's means are weighted by its target tokens."""
        self.loss += result.loss * result.target_tokens
        self.nll += result.nll * result.target_tokens
        self.grad_norm = result.grad_norm
        self.tokens += result.target_tokens
        self.steps += 1
        self.seconds += seconds


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`, without an incomplete end that a crash left after the last whole record.

    Raises:
        CheckpointError: If the file cannot be read, or a line before the last whole record is not a record.
    """
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    damaged = None
    try:
        for number, record in read_json_lines(path):
            if not _is_record(record):
                damaged = damaged or number
            elif damaged:
                raise CheckpointError(
                    f"{path}, line {damaged} is damaged: it is not a record of the training; remove the line, and run "
                    f"the same command again"
                )
            else:
                records.append(record)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    return records


def comparable(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records without validations that were measured on other text or settings than the last one."""
    measured_on = [record["measured_on"] for record in records if record["split"] == "valid"]
    return [record for record in records if record["split"] != "valid" or record["measured_on"] == measured_on[-1]]


def _is_record(value: Any) -> bool:
    """Return whether a value is an object with a valid step, a split, and otherwise only finite numbers."""
    if not isinstance(value, dict) or type(value.get("step")) is not int or not 0 <= value["step"] <= MOST_STEPS:
        return False
    if value.get("split") == "valid" and not value.keys() >= _OF_A_VALIDATION:
        return False
    numbers = [number for name, number in value.items() if name not in ("split", "step", "measured_on")]
    return (
        isinstance(value.get("measured_on", ""), str)
        and isinstance(value.get("split"), str)
        and all(type(number) in (int, float) and not abs(number) > sys.float_info.max for number in numbers)
    )


class MetricsLog:
    """Writer of training (`"split": "train"`) and validation (`"split": "valid"`) records.

    Args:
        run: Run directory.
        step: Step from which the run resumes. Later training records, from before a crash, are removed.
        validated_step: Step of the last validation in the run's state. Later validation records are removed.
        tracking: The tracked run, if any.
    """

    def __init__(self, run: Path, *, step: int, validated_step: int, tracking: Tracking | None = None) -> None:
        from tensorboardX import SummaryWriter

        self._path, self._tracking = run / "metrics.jsonl", tracking
        self._cut(step, validated_step)
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)

    def _cut(self, step: int, validated_step: int) -> None:
        last = {"train": step, "valid": validated_step}
        kept = [record for record in read_metrics(self._path) if record["step"] <= last.get(record["split"], 0)]
        write_text(self._path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = self._path.open("a", encoding="utf-8")

    def go_back(self, *, step: int, validated_step: int) -> None:
        """Remove the records after a step to which the run goes back; TensorBoard and trackers keep their curves.

        Args:
            step: As for the log itself.
            validated_step: Likewise.
        """
        self._file.close()
        self._cut(step, validated_step)

    def write(self, split: str, step: int, **values: float | str) -> None:
        """Append one record to the file, and its numbers to TensorBoard and the tracker."""
        self._file.write(json.dumps({"split": split, "step": step, **values}) + "\n")
        self._file.flush()
        numbers = {f"{split}/{name}": value for name, value in values.items() if not isinstance(value, str)}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, step)
        if self._tracking is not None:
            self._tracking.log(numbers, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        self._board.close()
        if self._tracking is not None:
            self._tracking.finish(is_whole=error is None)


class NoLog:
    """Log that discards its records, for all workers except the first."""

    def write(self, split: str, step: int, **values: float | str) -> None:
        """Discard one record."""

    def go_back(self, *, step: int, validated_step: int) -> None:
        """Remove nothing."""

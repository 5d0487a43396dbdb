"""The run's log: `metrics.jsonl`, one JSON object a line, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clearhead.files import write_text
from clearhead.training.step import StepResult

__all__ = ["MetricsLog", "Window", "read_metrics"]


@dataclass
class Window:
    """Sums since the last record of the log; saved with the checkpoints, so that an interruption does not show."""

    loss: float = 0.0
    nll: float = 0.0
    grad_norm: float = 0.0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0

    def add(self, result: StepResult, seconds: float) -> None:
        """Count one step, which took so many seconds."""
        self.loss += result.loss * result.target_tokens
        self.nll += result.nll * result.target_tokens
        self.grad_norm = result.grad_norm
        self.tokens += result.target_tokens
        self.steps += 1
        self.seconds += seconds


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a last line cut off by a crash is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in records if isinstance(record, dict) and "step" in record]


class MetricsLog:
    """Writes records of training (`"split": "train"`) and validation (`"split": "valid"`).

    Args:
        run: Run directory.
        step: Step the run goes on from; records after it, from before a crash, are removed.
        validated_step: Last validation the run remembers; records of later ones are removed.
    """

    def __init__(self, run: Path, *, step: int, validated_step: int) -> None:
        from tensorboardX import SummaryWriter

        path = run / "metrics.jsonl"
        last = {"train": step, "valid": validated_step}
        kept = [record for record in read_metrics(path) if record["step"] <= last.get(record.get("split", ""), 0)]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else None)

    def write(self, split: str, step: int, **values: float | None) -> None:
        """Add one record; values that are None are left out."""
        record = {"split": split, "step": step, **{name: v for name, v in values.items() if v is not None}}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        for name, value in values.items():
            if value is not None:
                self._board.add_scalar(f"{split}/{name}", value, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._board.close()

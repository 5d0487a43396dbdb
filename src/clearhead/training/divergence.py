"""Divergence of a run: the steps that are skipped, and the return to an earlier checkpoint at a lower learning rate.

What is decided here follows from the measurements of the steps alone. They are sums over all workers, so all workers
decide the same, and a run that was interrupted decides as one that was not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clearhead.config import TrainConfig
from clearhead.data.batches import BatchOrder
from clearhead.data.store import PairStore
from clearhead.errors import TrainingError
from clearhead.files import write_text
from clearhead.training.log import Count, Loss
from clearhead.training.schedule import peak_rate
from clearhead.training.step import StepResult

SKIPPED_FILE = "skipped.jsonl"
"""Name of the file of a run with the pairs of the steps that it left out when it went back."""

SKIPPED_STEPS = 3
"""Steps in succession that are skipped after which a run goes back: the weights, and not a batch, are the cause."""
COMPARED_STEPS = 25
"""Steps with whose mean loss a step is compared; and steps that must lie between a good checkpoint and the trouble."""
RISE = 1.0
"""Nats per token by which the loss of a step is high, in comparison with that mean."""
HIGH_STEPS = 20
"""Steps in succession with a high loss after which a run goes back.

A high loss is also above each of those compared. In a corpus of easy and hard batches the mean alone is misleading: by
chance the steps compared are mostly easy ones. Of losses in random order, the last 20 of 45 are the highest once in
3e12 times.
"""
RATE_FACTOR = 0.5
"""Factor on the learning rate after a run went back."""

_MOST_TOLD = 10
"""Skipped steps that are printed; more are only counted."""


@dataclass
class Return:
    """The return of a run to an earlier checkpoint."""

    step: Count
    """Step of the checkpoint."""
    first: Count
    """First of the steps whose batches are left out."""
    last: Count
    """Last of them, after which the run went back."""


@dataclass
class Divergence:
    """What went wrong in a run so far; saved in checkpoints."""

    losses: list[Loss] = field(default_factory=list)
    """Negative log-likelihood per token of the last steps, in nats: `COMPARED_STEPS`, then those with a high loss now.

    Skipped steps are left out.
    """
    skipped: Count = 0
    """Steps that were skipped."""
    skipped_now: Count = 0
    """Those of them that were the last steps."""
    wrong_now: Count = 0
    """Number of last steps that were skipped or had a high loss, in succession."""
    went_back: Return | None = None

    def add(self, result: StepResult) -> bool:
        """Add the measurements of the next step, and return whether the run has to go back."""
        if result.is_skipped:
            self.skipped += 1
        self.skipped_now = self.skipped_now + 1 if result.is_skipped else 0
        is_wrong = result.is_skipped or self._is_high(result.nll)
        self.wrong_now = self.wrong_now + 1 if is_wrong else 0
        if not result.is_skipped:
            self.losses = [*self.losses, result.nll]
        if not is_wrong:
            self.losses = self.losses[-COMPARED_STEPS:]
        return self.skipped_now >= SKIPPED_STEPS or self.wrong_now >= HIGH_STEPS

    def _is_high(self, nll: float) -> bool:
        before = self.losses[:COMPARED_STEPS]
        return len(before) == COMPARED_STEPS and nll > max(*before, math.fsum(before) / COMPARED_STEPS + RISE)

    def trouble(self, result: StepResult, vocab_size: int) -> str:
        """Return in words what is wrong with a step that was just added."""
        if not (math.isfinite(result.nll) and math.isfinite(result.grad_norm)):
            return f"the loss is {result.nll:.4g} and the gradient's norm {result.grad_norm:.4g}"
        if result.is_skipped:
            guess = math.log(vocab_size)
            return f"the loss exploded to {result.nll:.1f} nats a token, where blind guessing costs {guess:.1f}"
        before = math.fsum(self.losses[:COMPARED_STEPS]) / COMPARED_STEPS
        return f"for {self.wrong_now} steps the loss is high: now {result.nll:.1f} nats a token, {before:.1f} before"

    def is_told(self, result: StepResult) -> bool:
        """Return whether a step that was just added was skipped, and is to be printed."""
        return result.is_skipped and self.skipped <= _MOST_TOLD

    @property
    def rate_factor(self) -> float:
        """Factor on the learning rate."""
        return RATE_FACTOR if self.went_back else 1.0

    def left_out(self, number: int) -> int:
        """Return how many batches before that of a step are left out.

        Args:
            number: Optimiser steps, counted from 1.
        """
        back = self.went_back
        return back.last - back.first + 1 if back and number >= back.first else 0

    @property
    def record(self) -> dict[str, float]:
        """What a record of the training log says of it; nothing if nothing went wrong."""
        skipped = {"skipped_steps": self.skipped} if self.skipped else {}
        return {**skipped, **({"rate_factor": self.rate_factor} if self.went_back else {})}

    def lines(self) -> Iterator[str]:
        """Yield what went wrong, as sentences; nothing if nothing did."""
        if self.skipped:
            skipped = "1 step was" if self.skipped == 1 else f"{self.skipped:,} steps were"
            yield f"{skipped} skipped: the gradient was not finite, or the loss exploded"
        if back := self.went_back:
            yield (
                f"it diverged at step {back.last:,}: it went back to step {back.step:,}, left out the pairs in "
                f"{SKIPPED_FILE}, and continued at {RATE_FACTOR:g} times the learning rate"
            )


class DivergenceError(Exception):
    """The run diverged; it goes back, or ends.

    Args:
        first: First step that was wrong.
        last: Last step that was added.
        trouble: What is wrong with it, in words.
    """

    def __init__(self, first: int, last: int, trouble: str) -> None:
        super().__init__(trouble)
        self.first, self.last, self.trouble = first, last, trouble

    @property
    def good_until(self) -> int:
        """Last step whose checkpoint is good: the weights may have been on their way before a loss was wrong."""
        return self.first - 1 - COMPARED_STEPS

    def going_back(self, step: int) -> str:
        """Return in words that the run goes back to a step."""
        return (
            f"the run diverged at step {self.last:,}: {self.trouble}; it goes back to step {step:,}, continues at "
            f"{RATE_FACTOR:g} times the learning rate, and leaves out the batches of steps {self.first:,} to "
            f"{self.last:,}"
        )

    def final(self, divergence: Divergence, config: TrainConfig, d_model: int, run: Path) -> TrainingError:
        """Return the error that ends a run that cannot go back."""
        back = divergence.went_back
        why = f"no checkpoint is {COMPARED_STEPS} steps older than step {self.first:,}, where it began"
        lines = ""
        if back:
            why = f"it went back from step {back.last:,} to step {back.step:,} before, which did not help"
            lines = f"; see also that the pairs in {run / SKIPPED_FILE} are translations"
        rate = peak_rate(config, d_model=d_model) * divergence.rate_factor
        return TrainingError(
            f"training stopped at step {self.last}: {self.trouble}; {why}; start over (--fresh) with a lower "
            f"train.learning_rate (its peak is {rate:.2g} now), more train.warmup_steps, train.clip_norm = 1, or "
            f"model.norm = 'pre'{lines}"
        )


def write_skipped(run: Path, pairs: PairStore, order: BatchOrder, first: int, last: int) -> str:
    """Write the pairs of steps into `SKIPPED_FILE`, and return the path and the first pair in words.

    Args:
        run: Run directory.
        pairs: Training pairs.
        order: Assignment of pairs to steps, which no other thread uses.
        first: First step, counted from 1.
        last: Last step.
    """
    rows = [(number, int(row)) for number in range(first, last + 1) for row in order.rows(number - 1)]
    lines = [
        json.dumps(
            {"step": number, "pair": row, "source": pairs.source(row), "target": pairs.target(row)}, ensure_ascii=False
        )
        for number, row in rows
    ]
    write_text(run / SKIPPED_FILE, "\n".join(lines) + "\n")
    row = rows[0][1]
    return (
        f"{len(rows):,} pairs, listed in {run / SKIPPED_FILE}; the first is pair {row:,}: "
        f"{pairs.source(row)!r:.100} -> {pairs.target(row)!r:.100}"
    )

"""The training loop of a run: begin or resume, step, validate and checkpoint, and publish the best weights."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from clearhead.bundle import Bundle, read_card, save_bundle
from clearhead.bundle.model_directory import model_directory
from clearhead.config import Config
from clearhead.data.batches import BatchOrder
from clearhead.data.prepare import Prepared
from clearhead.files.tensors import load_tensors, model_tensors
from clearhead.training.attention_log import AttentionLog
from clearhead.training.checkpoints import Best, Checkpoints, TrainingState
from clearhead.training.distributed import Workers, part_like, whole_tensors
from clearhead.training.divergence import DivergenceError, Return, write_skipped
from clearhead.training.log import MetricsLog, NoLog, Window
from clearhead.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state
from clearhead.training.outcome import FEWEST_DECIDING
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.training.progress import Display, done_by
from clearhead.training.publish import SideFilesOf, publish
from clearhead.training.run_directory import MODEL_BEFORE
from clearhead.training.schedule import learning_rate
from clearhead.training.shards import Shares, read_own_tensors
from clearhead.training.signals import StopSignals
from clearhead.training.steps import Steps
from clearhead.training.validation import (
    Validation,
    is_better,
    measure,
    measured_on,
    perplexity,
    validate_weights,
    with_weights,
)
from clearhead.training.warm_start import starting_model
from clearhead.translation.translator import Translator

UNCHANGED = "the model it started from"
"""Name of the published weights if no later weights of the run were better than the initial model."""

_STEPS_BETWEEN_RECORDS = 25

_TIMED_AGAIN = 30.0
"""Seconds of training after which its length is estimated anew: before, the plan timed a few steps alone."""


@dataclass(eq=False)
class Loop:
    """Training loop of one run."""

    config: Config
    """Complete settings."""
    data: Prepared
    """Prepared pairs and their tokenizer."""
    order: BatchOrder
    """Assignment of pairs to steps."""
    run: Path
    """Run directory."""
    device: torch.device
    """Device for training."""
    checkpoints: Checkpoints
    """The run's checkpoints."""
    display: Display
    """Progress display for the user."""
    stop: StopSignals
    """Signals that ask to stop."""
    start: float
    """`time.monotonic()` at the start of the command, moved back by the time of earlier commands of the run."""
    workers: Workers
    """Processes that train together. All make the same steps; only the first writes files."""
    own: OwnParts = NO_OWN_PARTS
    """The run's own parts."""

    def __post_init__(self) -> None:
        config = self.config
        torch.manual_seed(config.train.seed)
        self.model = self.own.make_model(config.model)  # a resumed run overwrites these random weights
        self.model.to(self.device)
        if config.train.shard and self.workers.count > 1:
            layers = [*self.model.encoder.layers, *self.model.decoder.layers]
            self.workers.shard(self.model, layers, methods=("encode", "states"))
            self.checkpoints.shares, self.checkpoints.is_background = Shares(self.workers), True
        self.optimizer = build_optimizer(self.model, config.train)
        parts = self.model, self.optimizer, config, self.data.train, self.order, self.workers, self.own
        self.steps = Steps(*parts, self.display.say)
        self.state = TrainingState(
            device=self.device.type, threads=torch.get_num_threads(), precision=self.steps.precision
        )
        self.attention_log = AttentionLog(self.run, self.data.valid, config.model)
        self._measured_on = measured_on(self.data.report, config.train.validate_sentences, config.decode)
        self._saved_at = 0.0  # seconds of training
        self.best: Validation | None = None
        """Validation of `state.best`, if this process measured it."""
        self._is_stopped = False  # whether some worker was asked to stop before the last step ended
        self._unread_seconds = 0.0  # of steps whose measurements were not read yet
        self._alignment: float | None = None  # of the last step, see `StepResult`

    def begin(self, newest: tuple[Path, TrainingState] | None, start_model: Bundle | None) -> None:
        """Resume from the newest checkpoint, or start from the configured model, or from random weights.

        Args:
            newest: Newest checkpoint and its state; None for a new run.
            start_model: Initial model, if it has been loaded already.
        """
        if newest:
            self.resume(*newest)
        elif self.config.from_model is not None:
            self.start_from(starting_model(self.config, start_model))
        if self.workers.is_first:
            self.attention_log.cut(self.last_validation)

    def start_from(self, bundle: Bundle) -> None:
        """Load the weights of a trained model, and keep a copy of that model in the run."""
        if bundle.precision is not None and self.workers.is_first:
            self.display.say(
                f"{self.config.from_model} is stored in {bundle.precision}: training starts from its rounded weights, "
                f"in float32"
            )
        self._take(model_tensors(bundle.model), origin=str(self.config.from_model))
        self.state.imported_from = bundle.imported_from
        if self.workers.is_first:
            card = read_card(model_directory(str(self.config.from_model)))  # may contain a licence
            card = card or f"# {MODEL_BEFORE}\n\nThe model that the run {self.run.name} started from, as it was.\n"
            save_bundle(self.run / MODEL_BEFORE, bundle, golden=bundle.golden, card=card)

    def _take(self, tensors: dict[str, Tensor], *, origin: str) -> None:
        own = model_tensors(self.model)
        shares = {name: part_like(tensor, own.get(name)) for name, tensor in tensors.items()}
        load_tensors(self.model, shares, origin=origin)

    def resume(self, path: Path, state: TrainingState) -> None:
        """Resume from a checkpoint.

        Args:
            path: Directory of the checkpoint.
            state: State read from it.
        """
        now = self.state
        for line in state.computed_otherwise(now):
            self.display.say(line)
        self._load(path, state)
        self.start -= state.elapsed
        self._saved_at = state.elapsed

    def _load(self, path: Path, state: TrainingState) -> None:
        load_tensors(self.model, self.weights_of(path), origin=str(path))
        if state.step:  # before the first step an optimiser has no state
            load_optimizer_state(self.model, self.optimizer, read_own_tensors(path, "optimizer", self.model))
        now = self.state
        self.steps.cut(state.micro_batch_tokens)
        self.state = replace(state, device=now.device, threads=now.threads, precision=now.precision)

    def weights_of(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a checkpoint, sharded as the model is."""
        return read_own_tensors(path, "model", self.model)

    @property
    def last_validation(self) -> int:
        """Step of the last validation; -1 before the first, because a run may be validated at step 0."""
        return self.state.validated_step if self.state.best else -1

    def train(self, log: MetricsLog | NoLog) -> str:
        """Train until an end condition is met, and return its name.

        Raises:
            TrainingError: If the run diverges and cannot go back, or the device runs out of memory.
            CheckpointError: If a checkpoint cannot be written.
            KeyboardInterrupt: After Ctrl-C, once the state is saved.
            SystemExit: After SIGTERM, once the state is saved.
        """
        train = self.config.train
        self.stop.defer()
        self.model.train()
        if self.config.from_model is not None and self.state.best is None:
            # Step 0 is ranked like every later step, and once it is saved the run no longer needs the initial model.
            self._save(self._validate(log))
        self._measure_best_again(log)
        begun, first, is_timed = time.monotonic(), self.state.step, False  # not `elapsed`, which has the preparation
        is_first = True
        while (ended_by := self.state.ended_by(train)) is None:
            before = time.monotonic()
            number = self.state.step + 1
            rate = learning_rate(number, train, d_model=self.config.model.d_model, progress=self.state.progress(train))
            rate *= self.state.divergence.rate_factor
            self.workers.begin("a step")
            tokens = self.steps.make(number, rate, left_out=self.state.divergence.left_out(number))
            if is_first and self.steps.form == "compiled":
                self.display.say(f"compiled the training step in {time.monotonic() - before:.0f} s")
                begun, first = time.monotonic(), number
            is_first = False
            self.state.step += 1
            self.state.target_tokens += tokens
            self._tick()
            self._unread_seconds += time.monotonic() - before
            is_recorded = self.state.step % _STEPS_BETWEEN_RECORDS == 0
            try:
                if is_recorded or self.steps.form == "padded":
                    self._read()
                    self._show()
                if is_recorded:
                    self._record(log, rate)
                if not is_timed and (seconds := time.monotonic() - begun) >= _TIMED_AGAIN:
                    is_timed = True
                    self._time_again(seconds / (self.state.step - first))
                self._validate_and_save(log)
            except DivergenceError as error:
                self._go_back(error, log)
                begun, first = time.monotonic(), self.state.step
            if self._is_to_stop:
                self.checkpoints.wait()
                self.display.say(f"stopped after step {self.state.step:,}; the same command continues from there")
                self.workers.wait()  # the first worker may be publishing, and would miss one that has left
                self.stop.received = self.stop.received or signal.SIGTERM  # it may have reached another worker
                self.stop.end()
        # Not yet validated if a resumed run has to end at once, or the time ran out while saving.
        if self.state.validated_step != self.state.step:
            self._save(self._validate(log))
        self.workers.begin("")
        self._prune()  # in case the run was killed while pruning after its last step
        self.checkpoints.wait()
        self.stop.end_at_once()  # the state is saved
        return ended_by

    def _time_again(self, per_step: float) -> None:
        left = self.state.seconds_left(self.config.train, per_step)
        self.display.say(f"timed again: about {self.state.step + int(left / per_step):,} steps in all, {done_by(left)}")

    def _validate_and_save(self, log: MetricsLog | NoLog) -> None:
        """Validate the model and save a checkpoint, if they are due after this step."""
        train, step = self.config.train, self.state.step
        is_last = self.state.ended_by(train) is not None
        best = self._validate(log) if is_last or step % train.validate_every == 0 else None
        is_due = self.state.elapsed - self._saved_at > 60 * train.checkpoint_minutes
        is_regular = step % train.checkpoint_every == 0
        if best or is_due or is_regular or self.state.ended_by(train) or self._is_to_stop:
            self._save(best)

    def _go_back(self, error: DivergenceError, log: MetricsLog | NoLog) -> None:
        """Continue from the last checkpoint before the trouble, at a lower rate and without the batches of that time.

        That checkpoint is written again with this decision, and later ones are deleted.

        Raises:
            TrainingError: If the run did so before, or has no such checkpoint.
        """
        train, elapsed, divergence = self.config.train, self.state.elapsed, self.state.divergence
        is_first, until, best, every = self.workers.is_first, error.good_until, self.state.best, train.checkpoint_every
        told = json.dumps(self.checkpoints.good_before(until, best, multiple_of=every)) if is_first else None
        step, has_best = json.loads(self.workers.tell(f"good before {error.last}", told)) or (None, True)
        if step is None or divergence.went_back is not None:
            raise error.final(divergence, train, self.config.model.d_model, self.run)
        if is_first:
            order = self.data.order(train)  # a thread may be using the other one
            pairs = write_skipped(self.run, self.data.train, order, error.first, error.last)
            self.display.say(f"{error.going_back(step)} ({pairs})")
        path = self.checkpoints.path(step)
        self._load(path, self.checkpoints.state(path))
        self.steps.reload()
        self.state.divergence.went_back = Return(step, error.first, error.last)
        self.state.elapsed, self.best, self._unread_seconds = elapsed, None, 0.0
        self.workers.wait()  # until all have read the checkpoint
        self.state.best = self.state.best if has_best else None
        self._save(None if has_best else self._validate(log))
        log.go_back(step=step, validated_step=self.last_validation)
        if is_first:
            self.attention_log.cut(self.last_validation)

    def _read(self) -> None:
        """Add the measurements of the steps since the last call to the window; a GPU is waited for.

        Raises:
            DivergenceError: If the run diverged.
        """
        start, divergence = time.monotonic(), self.state.divergence
        results = self.steps.results()
        seconds, self._unread_seconds = self._unread_seconds + time.monotonic() - start, 0.0
        for number, result in enumerate(results, start=self.state.step - len(results) + 1):
            has_diverged = divergence.add(result)
            trouble = divergence.trouble(result, self.config.model.vocab_size) if divergence.wrong_now else ""
            if has_diverged:
                raise DivergenceError(number - divergence.wrong_now + 1, number, trouble)
            if divergence.is_told(result):
                self.display.say(f"step {number:,} is skipped: {trouble}")
            if not result.is_skipped:
                self.state.window.add(result, seconds / len(results))
                self._alignment = result.alignment

    def _measured(self) -> Validation:
        self.workers.begin("a validation")
        model = self.model
        if self.workers.is_sharding:  # translation needs all weights on one device
            model = with_weights(whole_tensors(model_tensors(self.model)), self.config, self.device, self.own)
        if self.workers.is_first:
            self.attention_log.add(model, self.state.step)
        return measure(model, self.data, self.config, self.workers)

    def validated(self, weights: Mapping[str, Tensor]) -> Validation:
        """Return the validation of weights, by name; with sharded ones on all workers."""
        return validate_weights(self._gathered(weights), self.data, self.config, self.device, self.workers, self.own)

    def _validate(self, log: MetricsLog | NoLog) -> Validation | None:
        """Validate the model, and return the result if it is the best so far, else None."""
        self._read()
        self.display.stage("validating", 0)
        validation = self._measured()
        step, best = self.state.step, self.state.best
        self._tick()
        self._log_validation(log, step, validation)
        watched = "" if validation.general is None else f"; general text {validation.general.scores}"
        self.display.validated(validation)
        is_few = min(len(self.data.valid), self.config.train.validate_sentences) < FEWEST_DECIDING
        is_first_trained = best is not None and best.step == 0 < step
        is_new_best = best is None or (is_few and is_first_trained) or is_better(validation, best)
        self.display.say(
            f"step {step:,}  {self.state.elapsed / 60:.1f} min  validation {validation.scores}, "
            f"perplexity {validation.ppl:.2f}{watched}{'  best so far' if is_new_best else ''}"
        )
        self.state.validated_step = step
        is_likeliest = self.state.least_nll is None or validation.nll < self.state.least_nll
        if is_likeliest:
            self.state.least_nll = validation.nll
        self.state.stale_validations = 0 if is_new_best or is_likeliest else self.state.stale_validations + 1
        if is_new_best:
            self._keep_best(step, validation)
        return validation if is_new_best else None

    def _measure_best_again(self, log: MetricsLog | NoLog) -> None:
        """Validate the best checkpoint of a resumed run again if its scores were measured on something else."""
        best = self.state.best
        if best is None or best.measured_on == self._measured_on:
            return
        told = str(self.checkpoints.good(best.step, last=self.state.step)) if self.workers.is_first else None
        step = int(self.workers.tell("best to measure", told))
        self.display.say(
            f"the best so far, of step {step:,}, is validated again: its scores are of other sentences or settings"
        )
        self.workers.begin("a validation")
        weights = self.weights_of(self.checkpoints.path(step))
        validation = self.validated(weights)
        self._tick()
        self._log_validation(log, step, validation)
        self._keep_best(step, validation)

    def _keep_best(self, step: int, validation: Validation) -> None:
        self.best = validation
        self.state.best = Best(step, validation.bleu, validation.nll, validation.chrf, self._measured_on)

    def _log_validation(self, log: MetricsLog | NoLog, step: int, validation: Validation) -> None:
        elapsed = round(self.state.elapsed, 3)
        log.write("valid", step, measured_on=self._measured_on, **validation.record, elapsed=elapsed)

    def _gathered(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with self.workers.together():
            return whole_tensors(weights)

    def publish(
        self,
        weights: Mapping[str, Tensor],
        validation: Validation,
        chosen: str,
        state: TrainingState,
        side_files: SideFilesOf | None = None,
    ) -> Translator | None:
        """Write the model directory and return its model; None on workers that do not write."""
        gathered = self._gathered(weights)
        self.workers.begin("")
        if not self.workers.is_first:
            return None
        how = state, validation, chosen, side_files, self.own
        return publish(self.run / "model", gathered, self.config, self.data, *how)

    def _save(self, best: Validation | None) -> None:
        """Write a checkpoint. Publish the model if it is the best so far, so that a killed run leaves a model too."""
        self._read()
        self._tick()
        self.checkpoints.wait()
        self.workers.begin("a checkpoint")
        self.state.micro_batch_tokens = self.steps.cut_to
        weights = model_tensors(self.model)
        if self.workers.is_first or self.checkpoints.shares is not None:
            self.checkpoints.save(self.state, weights, optimizer_state(self.model, self.optimizer))
        self.workers.wait()  # a checkpoint that is not sharded exists before another worker reads it
        self._saved_at = self.state.elapsed
        self._prune()
        if best and self.state.ended_by(self.config.train) is None:  # at the end, `publish_best` follows
            self.publish(weights, best, named(self.state.step), self.state)

    def _prune(self) -> None:
        if not self.workers.is_first:
            return
        keep = max(self.config.train.keep_checkpoints, self.config.train.average_last)
        best_step = self.state.best.step if self.state.best else None
        self.checkpoints.prune(keep, best_step=best_step, multiple_of=self.config.train.checkpoint_every)

    def _record(self, log: MetricsLog | NoLog, rate: float) -> None:
        window, self.state.window = self.state.window, Window()
        loss, nll = window.loss / window.tokens, window.nll / window.tokens
        speed = window.tokens / window.seconds
        log.write(
            "train",
            self.state.step,
            loss=loss,
            nll=nll,
            ppl=perplexity(nll),
            lr=rate,
            grad_norm=window.grad_norm,
            **({} if self._alignment is None else {"alignment": self._alignment}),
            **self.state.divergence.record,
            tokens_per_second=round(speed, 1),
            elapsed=round(self.state.elapsed, 3),
        )

    def _show(self) -> None:
        window, train = self.state.window, self.config.train
        if not window.steps:  # the steps since the last record were skipped
            return
        self.display.training(
            step=self.state.step,
            progress=self.state.progress(train),
            loss=window.loss / window.tokens,
            tokens_per_second=window.tokens / window.seconds,
            seconds_left=self.state.seconds_left(train, window.seconds / window.steps),
        )

    def _tick(self) -> None:
        """Update the elapsed time from the first worker's clock, and check whether any worker was asked to stop."""
        seconds = time.monotonic() - self.start
        self.state.elapsed, signals = self.workers.sums(
            seconds if self.workers.is_first else 0.0, float(self.stop.received is not None)
        )
        self._is_stopped = signals > 0

    @property
    def _is_to_stop(self) -> bool:
        """Whether a signal asked to stop. With several workers, all stop after the same step."""
        return self._is_stopped if self.workers.count > 1 else self.stop.received is not None


def named(step: int) -> str:
    """Return the name of the weights of a step."""
    return f"step {step}" if step else UNCHANGED

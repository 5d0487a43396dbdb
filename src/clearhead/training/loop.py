"""The training loop: step, log, validate, checkpoint, until an end is reached."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from clearhead.bundle import Bundle, model_directory, read_card, save_bundle
from clearhead.config import Config
from clearhead.data.batches import Batch, BatchOrder, collate, shares, split
from clearhead.data.prepare import Prepared
from clearhead.errors import TrainingError
from clearhead.files.tensors import average_weights, load_tensors, load_weights, model_tensors
from clearhead.model.transformer import Transformer
from clearhead.training.attention_log import AttentionLog
from clearhead.training.checkpoints import Best, Checkpoints, TrainingState
from clearhead.training.distributed import LostWorkerError, Workers, part_like, whole_tensors
from clearhead.training.log import MetricsLog, NoLog, Window
from clearhead.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state
from clearhead.training.progress import Display
from clearhead.training.publish import publish
from clearhead.training.run_directory import OLDER_MODEL
from clearhead.training.schedule import learning_rate
from clearhead.training.signals import StopSignals
from clearhead.training.step import Stepper, StepResult
from clearhead.training.validation import Validation, is_better, measure, perplexity, validate_weights, with_weights
from clearhead.training.warm_start import starting_model
from clearhead.translation.translator import Translator

__all__ = ["UNCHANGED", "Loop"]

UNCHANGED = "the model it started from"
"""What a run says of its weights if nothing that it learned was better than those it began with."""

_STEPS_BETWEEN_RECORDS = 25


@dataclass(eq=False)
class Loop:
    """Trains the model of one run."""

    config: Config
    """Complete settings."""
    data: Prepared
    """Prepared pairs and their tokenizer."""
    order: BatchOrder
    """Which pairs each step sees."""
    run: Path
    """Run directory."""
    device: torch.device
    """Where to train."""
    checkpoints: Checkpoints
    """The run's checkpoints."""
    display: Display
    """What a person sees."""
    stop: StopSignals
    """Signals that ask to stop."""
    start: float
    """`time.monotonic()` when the command began; minutes count from there, and those of earlier commands."""
    workers: Workers = field(default_factory=Workers)
    """The processes that train; all make the same steps, and the first one alone writes."""

    def __post_init__(self) -> None:
        config = self.config
        torch.manual_seed(config.train.seed)
        self.model = Transformer(config.model).to(self.device)  # a resumed run draws its weights for nothing
        if config.train.shard and self.workers.count > 1:
            layers = [*self.model.encoder.layers, *self.model.decoder.layers]
            self.workers.shard(self.model, layers, methods=("encode", "states"))
        self.optimizer = build_optimizer(self.model, config.train)
        self.stepper = Stepper(self.model, self.optimizer, config.train, self.workers)
        self.state = TrainingState(
            device=self.device.type, threads=torch.get_num_threads(), precision=self.stepper.precision
        )
        self.attention_log = AttentionLog(self.run, self.data.valid, config.model)
        self._saved_at = 0.0  # seconds of training
        self._best: Validation | None = None  # of `state.best`, if this process measured it
        self._published: Translator | None = None  # the last step, if it is `state.best`
        self._is_stopped = False  # some worker was, before the last step ended

    def begin(self, newest: tuple[Path, TrainingState] | None, start_model: Bundle | None) -> None:
        """Go on from the newest checkpoint, or start from the model that the settings name, or from random weights.

        Args:
            newest: The checkpoint, if there is one.
            start_model: The model, if it was read before.
        """
        if newest:
            self.resume(*newest)
        elif self.config.from_model is not None:
            self.start_from(starting_model(self.config, start_model))
        if self.workers.is_first:
            self.attention_log.cut(self.last_validation)

    def start_from(self, bundle: Bundle) -> None:
        """Take the weights of a trained model in the place of random ones; where it must not unlearn, keep it."""
        self._take(model_tensors(bundle.model), origin=str(self.config.from_model))
        self.state.imported_from = bundle.imported_from
        if self.data.general is not None and self.workers.is_first:
            card = read_card(model_directory(str(self.config.from_model)))  # which may hold a licence
            card = card or f"# {OLDER_MODEL}\n\nThe model that the run {self.run.name} started from, as it was.\n"
            save_bundle(self.run / OLDER_MODEL, bundle, golden=bundle.golden, card=card)

    def _take(self, tensors: dict[str, Tensor], *, origin: str) -> None:
        own = model_tensors(self.model)
        shares = {name: part_like(tensor, own.get(name)) for name, tensor in tensors.items()}
        load_tensors(self.model, shares, origin=origin)

    def resume(self, path: Path, state: TrainingState) -> None:
        """Go on from a checkpoint."""
        if self.workers.is_sharding:
            self._take(self.checkpoints.tensors(path, "model.safetensors"), origin=str(path))
        else:
            load_weights(self.model, path / "model.safetensors")
        if state.step:  # before the first one an optimiser has no state
            load_optimizer_state(self.model, self.optimizer, self.checkpoints.tensors(path, "optimizer.safetensors"))
        now = self.state
        if state.threads != now.threads:
            self.display.say(
                f"the run used {state.threads} threads and now has {now.threads}: sums may differ in the last bit"
            )
        if state.device != now.device:
            self.display.say(
                f"the run was on {state.device} and now is on {now.device}: it goes on, but not bit for bit"
            )
        if not state.precision:
            self.display.say(
                f"an older clearhead wrote {path.name} and did not say what its matrix products were in; now they are "
                f"in {now.precision}: the run goes on, but perhaps not bit for bit"
            )
        elif state.precision != now.precision:
            self.display.say(
                f"the run's matrix products were in {state.precision} and now are in {now.precision}: "
                f"it goes on, but not bit for bit"
            )
        self.state = replace(state, device=now.device, threads=now.threads, precision=now.precision)
        self.start -= state.elapsed
        self._saved_at = state.elapsed

    @property
    def last_validation(self) -> int:
        """Step of the last validation; -1 before the first, for a run may be validated at step 0."""
        return self.state.validated_step if self.state.best else -1

    def train(self, log: MetricsLog | NoLog) -> str:
        """Train until an end is reached, and return which.

        Raises:
            TrainingError: If loss or gradient are not finite, the loss exploded, or the device runs out of memory.
            CheckpointError: If a checkpoint cannot be written.
            KeyboardInterrupt: After Ctrl-C, once the state is saved.
            SystemExit: After SIGTERM, once the state is saved.
        """
        train = self.config.train
        self.stop.defer()
        self.model.train()
        if self.config.from_model is not None and self.state.best is None:
            # What a run of so much is better than takes part in the ranking, and the run no longer needs that model.
            self._save(self._validate(log))
        while (ended_by := self.state.ended_by(train)) is None:
            before = time.monotonic()
            self._published = None  # a model of an earlier step is published anew, or not at all
            rate = learning_rate(
                self.state.step + 1, train, d_model=self.config.model.d_model, progress=self._progress()
            )
            self.workers.begin("a step")
            parts, tokens = self._share()
            with self._explained():
                number = self.state.step + 1
                result = self.stepper.step(parts, number=number, rate=rate, tokens=tokens)
            self.state.step += 1
            self.state.target_tokens += result.target_tokens
            self._tick()
            self.state.window.add(result, time.monotonic() - before)
            self._show()
            if self.state.step % _STEPS_BETWEEN_RECORDS == 0:
                self._record(log, rate, result)

            is_last = self.state.ended_by(train) is not None
            best = self._validate(log) if is_last or self.state.step % train.validate_every == 0 else None
            is_regular = self.state.step % train.checkpoint_every == 0
            is_due = self.state.elapsed - self._saved_at > 60 * train.checkpoint_minutes
            if best or is_due or is_regular or self.state.ended_by(train) or self._is_to_stop:
                self._save(best)
            if self._is_to_stop:
                self.display.say(f"stopped after step {self.state.step:,}; the same command goes on from there")
                self.workers.wait()  # the first one may be publishing, and would miss one that has left
                self.stop.received = self.stop.received or signal.SIGTERM  # as another worker
                self.stop.end()
        # Not yet validated where a resumed run is told to end at once, or the clock ran out while saving.
        if self.state.validated_step != self.state.step:
            self._save(self._validate(log))
        self.workers.begin("")
        self._prune()  # for a run that was killed while it did so after its last step
        self.stop.end_at_once()  # all is saved
        return ended_by

    def publish_best(self) -> tuple[Validation, Translator | None]:
        """Publish the best checkpoint, or the average of the last ones if validation prefers it (section 6.1)."""
        best = self.state.best
        assert best is not None, "training ends with a validation"
        # One worker decides: directories that machines share need not show the same to all of them at once.
        told = json.dumps(self._to_publish(best.step)) if self.workers.is_first else None
        step, last = json.loads(self.workers.tell("to publish", told))
        path, chosen = self.checkpoints.path(step), _named(step)
        paths = [self.checkpoints.directory / name for name in last]
        weights, validation = None, self._best if step == best.step else None
        if validation is None:  # measured elsewhere, or not at all: here, as the average is, or they would not compare
            weights = self.checkpoints.tensors(path, "model.safetensors")
            validation = validate_weights(weights, self.data, self.config, self.device, self.workers)
        if len(paths) > 1:
            self.display.stage("averaging checkpoints", 0)
            average = average_weights(path / "model.safetensors" for path in paths)  # one in memory at a time
            averaged = validate_weights(average, self.data, self.config, self.device, self.workers)
            if is_better(averaged, validation):
                weights, validation = average, averaged
                chosen = "average of " + ", ".join(path.name for path in paths)
        if weights is None and self._published is not None:  # of the last step: what it names is still the run's
            return validation, self._published
        best_weights = weights or self.checkpoints.tensors(path, "model.safetensors")
        return validation, self._publish(best_weights, validation, chosen)

    def _to_publish(self, step: int) -> tuple[int, list[str]]:
        """Return the step of the best checkpoint, or of the last one if that is damaged, and what to average."""
        if trouble := self.checkpoints.trouble(self.checkpoints.path(step)):
            self.display.say(f"the best checkpoint, of step {step:,}, is damaged ({trouble}); using the last one")
            step = self.state.step
        train = self.config.train
        last = self.checkpoints.last(train.average_last, multiple_of=train.checkpoint_every)
        return step, [path.name for path in last]

    def _share(self) -> tuple[list[Batch], int]:
        """Return what this worker computes of the next step, and the target tokens of all workers.

        It comes in parts small enough to be computed at once. Every worker has one at least, and as many as the others
        where weights are shared, which come together for each part; what it lacks is a pair without words to learn.
        """
        pairs, model = self.data.train, self.config.model
        rows, lengths = self.order.rows(self.state.step), pairs.target_lengths
        cut = shares(rows, lengths, max(self.workers.count, self.config.train.accumulate))
        most = self.config.train.micro_batch_tokens
        parts = [
            [part for share in own if share.size for part in split(share, lengths, most)]
            for own in self.workers.dealt(cut)
        ]
        batches = [collate(pairs, part, pad_id=model.pad_id, bos_id=model.bos_id) for part in parts[self.workers.rank]]
        wanted = max(map(len, parts)) if self.workers.is_sharding else 1
        if len(batches) < wanted:
            pair = collate(pairs, rows[:1], pad_id=model.pad_id, bos_id=model.bos_id)
            nothing = torch.full_like(pair.target_out, model.pad_id)
            silent = replace(pair, target_out=nothing, num_target_tokens=0, links=None)
            batches += [silent] * (wanted - len(batches))
        return batches, int(lengths[rows].sum())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of a step that failed what can be done."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise TrainingError(
                f"the device ran out of memory at step {self.state.step + 1}; lower train.micro_batch_tokens "
                f"({self.config.train.micro_batch_tokens}), and run the command again"
            ) from None
        except LostWorkerError:
            raise
        except TrainingError as error:
            good = self.checkpoints.paths()
            where = f"the last good checkpoint is {good[-1]}" if good else "no checkpoint was written yet"
            raise TrainingError(f"{error}; {where}") from None

    def _measured(self) -> Validation:
        self.workers.begin("a validation")
        model = self.model
        if self.workers.is_sharding:  # translation needs all weights in one place
            model = with_weights(whole_tensors(model_tensors(self.model)), self.config, self.device)
        if self.workers.is_first:
            self.attention_log.add(model, self.state.step)
        return measure(model, self.data, self.config, self.workers)

    def _validate(self, log: MetricsLog | NoLog) -> Validation | None:
        """Measure the model; return how good it is if it is the best so far."""
        self.display.stage("validating", 0)
        validation = self._measured()
        step, best = self.state.step, self.state.best
        self._tick()
        elapsed = round(self.state.elapsed, 3)
        scores = {"nll": validation.nll, "ppl": validation.ppl, "bleu": validation.bleu, "chrf": validation.chrf}
        watched = ""
        if (general := validation.general) is not None:
            scores |= {"general_nll": general.nll, "general_bleu": general.bleu, "general_chrf": general.chrf}
            watched = f"; general text {general.scores}"
        log.write("valid", step, **scores, elapsed=elapsed)
        is_new_best = best is None or is_better(validation, best)
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
            self._best = validation
            self.state.best = Best(step, validation.bleu, validation.nll, validation.chrf)
        return validation if is_new_best else None

    def _publish(self, weights: dict[str, Tensor], validation: Validation, chosen: str) -> Translator | None:
        """Write the model directory, and return its model; None of the workers that do not write."""
        self.workers.begin("")
        if not self.workers.is_first:
            return None
        return publish(self.run / "model", weights, self.config, self.data, self.state, validation, chosen)

    def _save(self, best: Validation | None) -> None:
        """Write a checkpoint, and publish the model if it is the best so far: a run that is killed leaves one, too."""
        self._tick()
        self.workers.begin("a checkpoint")
        weights = whole_tensors(model_tensors(self.model))
        moments = whole_tensors(optimizer_state(self.model, self.optimizer))
        if self.workers.is_first:
            self.checkpoints.save(self.state, weights, moments)
        self.workers.wait()  # what one of them reads is there
        self._saved_at = self.state.elapsed
        self._prune()
        if best:
            self._published = self._publish(weights, best, _named(self.state.step))

    def _prune(self) -> None:
        if not self.workers.is_first:
            return
        keep = max(self.config.train.keep_checkpoints, self.config.train.average_last)
        best_step = self.state.best.step if self.state.best else None
        self.checkpoints.prune(keep, best_step=best_step, multiple_of=self.config.train.checkpoint_every)

    def _record(self, log: MetricsLog | NoLog, rate: float, last: StepResult) -> None:
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
            **({} if last.alignment is None else {"alignment": last.alignment}),
            tokens_per_second=round(speed, 1),
            elapsed=round(self.state.elapsed, 3),
        )

    def _show(self) -> None:
        window = self.state.window
        self.display.training(
            step=self.state.step,
            progress=self._progress(),
            loss=window.loss / window.tokens,
            tokens_per_second=window.tokens / window.seconds,
            seconds_left=self._seconds_left(window.seconds / window.steps),
        )

    def _progress(self) -> float:
        """Return the share of the training that is over: of its steps or of its time, whichever will end it."""
        train, shares = self.config.train, [0.0]
        if train.max_steps is not None:
            shares.append(self.state.step / train.max_steps)
        if train.max_minutes is not None:
            shares.append(self.state.elapsed / (60 * train.max_minutes))
        return min(1.0, max(shares))

    def _seconds_left(self, seconds_per_step: float) -> float:
        train = self.config.train
        ends = []
        if train.max_steps is not None:
            ends.append((train.max_steps - self.state.step) * seconds_per_step)
        if train.max_minutes is not None:
            ends.append(60 * train.max_minutes - self.state.elapsed)
        return min(ends)

    def _tick(self) -> None:
        """Look at the clock of the first worker, and whether any of them was asked to stop."""
        seconds = time.monotonic() - self.start
        self.state.elapsed, signals = self.workers.sums(
            seconds if self.workers.is_first else 0.0, float(self.stop.received is not None)
        )
        self._is_stopped = signals > 0

    @property
    def _is_to_stop(self) -> bool:
        """Whether a signal asks to stop; of several workers, all stop after the same step."""
        return self._is_stopped if self.workers.count > 1 else self.stop.received is not None


def _named(step: int) -> str:
    """Return which weights those of a step are, in words."""
    return f"step {step}" if step else UNCHANGED

"""A training run from command to report: prepare data or resume, train, publish the model.

The same command resumes an interrupted run. A finished run is left unchanged.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clearhead.bundle import Bundle, load_bundle
from clearhead.bundle.model_directory import model_directory
from clearhead.config import NO_GOLDEN, Config, TrainConfig, read_toml
from clearhead.data.batches import BatchOrder
from clearhead.data.hold_out import HELD_OUT
from clearhead.data.inputs import changed_inputs, missing_inputs
from clearhead.data.prepare import Prepared, open_prepared
from clearhead.errors import CheckpointError, ConfigError, ModelError, TrainingError
from clearhead.files import file_sha256, os_error_as, write_text
from clearhead.model.own_model import OwnModel
from clearhead.runtime.device import resolve_device
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.memory import limited_gpu_memory
from clearhead.runtime.version import full_version
from clearhead.training.best_weights import publish_best
from clearhead.training.checkpoints import Checkpoints, TrainingState, disk_trouble
from clearhead.training.determinism import deterministic
from clearhead.training.distributed import Workers, crowding
from clearhead.training.finish import VERDICT_FILE, Samples, report_end
from clearhead.training.layers import Layers
from clearhead.training.log import MetricsLog, NoLog, read_metrics
from clearhead.training.loop import Loop
from clearhead.training.memory import require_memory
from clearhead.training.own_parts import NO_OWN_PARTS, LossFunction, OwnParts
from clearhead.training.plan import make_plan
from clearhead.training.preparation import prepare_run
from clearhead.training.progress import Display, TrainProgress
from clearhead.training.publish import golden_lines, golden_sources
from clearhead.training.resume import gather, resume
from clearhead.training.run_directory import from_here, is_finished, opened
from clearhead.training.shards import require_fitting_checkpoint
from clearhead.training.signals import StopSignals
from clearhead.training.step import uses_bf16
from clearhead.training.tracking import Tracking, require_client
from clearhead.translation.translator import Translator


@dataclass(frozen=True)
class TrainResult:
    """Result of a training run, whose files are read when they are first asked for."""

    run: Path
    """The run directory."""
    step: int
    """Optimiser steps done."""
    ended_by: str
    """Why training ended: `max_steps`, `max_minutes` or `patience`."""
    bleu: float
    """Validation BLEU of the published model with greedy decoding, in percent."""
    was_finished: bool
    """Whether the run was already finished, so that nothing was done."""
    outcome: str | None = None
    """Whether the model is better than the one that the run started from, in words; None without such a model."""

    @cached_property
    def model(self) -> Translator:
        """The published model, ready to translate.

        Raises:
            ModelError: If it is damaged.
        """
        return Translator.load(self.run)

    @property
    def report(self) -> Path:
        """The training report, an HTML page."""
        return self.run / "report.html"

    @property
    def verdict(self) -> list[str]:
        """How well the run went and what to do about it, as sentences.

        Raises:
            CheckpointError: If they cannot be read.
        """
        path = self.run / VERDICT_FILE
        with os_error_as(CheckpointError, f"cannot read {path}"):
            return path.read_text(encoding="utf-8").splitlines()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`, in their order; `split` is `train` or `valid`.

        Raises:
            CheckpointError: If they are damaged.
        """
        return read_metrics(self.run / "metrics.jsonl")


def train(
    config: Config | str | Path,
    *,
    fresh: bool = False,
    force_data: bool = False,
    plain: bool = False,
    model: OwnModel | None = None,
    loss: LossFunction | None = None,
    on_progress: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Train a model like the command `clearhead train`; the setting `out` is the run directory.

    Args:
        config: Settings, or the path of a TOML file with them. What is not set explicitly may be chosen by the preset
            and the corpus. `model.vocab_size` of a `Config` is ignored: every preset sets it, and the tokenizer
            decides.
        fresh: Whether to start over; an existing run directory is renamed once the new run is prepared.
        force_data: Whether training text of which much looks wrong is taken all the same.
        plain: Train by the readable code alone (the setting `train.plain`), so that changes of it count.
        model: A model of your own: a subclass of `Transformer`, another function from a `ModelConfig` to one, or one
            whose parts you replaced, which is copied. It trains, searches, and is published; its code is not in the
            run. Resume the run with it, and load its model with `Translator.load(path, model=...)`.
        loss: A loss of your own, with the arguments and results of `training.loss.label_smoothed_cross_entropy`.
        on_progress: Called after every step and every validation. An exception that it raises ends the training, which
            continues from its last checkpoint when it is run again.

    Raises:
        ClearheadError: If settings, data, the run directory or the device cannot be used, or training had to stop.
        KeyboardInterrupt: On Ctrl-C, after saving.
        SystemExit: With status 143 on SIGTERM, after saving.
    """
    if isinstance(config, Config):
        values = config.model_dump(exclude_unset=True, exclude={"model": {"vocab_size"}})
    else:
        values = read_toml(config)
    own = OwnParts(model, loss)
    layers = Layers().with_("file", values)
    if plain or own.names:
        given = {"plain": True} if plain else {}
        layers = layers.with_("option", {"train": {**given, "own_parts": list(own.names)}})
    return train_from_values(layers, fresh=fresh, force_data=force_data, own=own, on_progress=on_progress)


def train_from_values(
    values: Layers | Mapping[str, Any],
    fresh: bool = False,
    workers: Workers | None = None,
    force_data: bool = False,
    own: OwnParts = NO_OWN_PARTS,
    processes: int = 1,
    on_progress: Callable[[TrainProgress], None] | None = None,
) -> TrainResult:
    """Train with nested settings as the user wrote them; see `train`.

    Args:
        values: Settings by layer, or nested.
        fresh: Whether to start over.
        workers: This process as one of several workers. None connects to the others if `torchrun` started several.
        force_data: As in `train`.
        own: The run's own parts, which `train.own_parts` names.
        processes: Processes that prepare a large text; see `prepare`.
        on_progress: As for `train`; called by the first worker alone.
    """
    start = time.monotonic()
    if workers is None:
        with Workers.met() as workers:
            return train_from_values(values, fresh, workers, force_data, own, processes, on_progress)
    layers = values if isinstance(values, Layers) else Layers().with_("file", values)
    same = {**layers.given, "clearhead": full_version(), "PyTorch": torch.__version__}
    workers.greet(same, say=lambda text: print(f"clearhead: {text}", file=sys.stderr, flush=True))
    if not workers.is_first:
        return _train_with_the_first(workers, start, own)
    fresh = fresh and not workers.began_afresh
    layers, start_model = gather(layers, fresh=fresh)
    run, device = _run_and_device(layers.config, workers, own, fresh=fresh)
    command = _Command(layers, start_model, force_data, own, device, workers.count, processes, start)
    try:
        with (
            opened(run, fresh=fresh) as (directory, take_place),
            StopSignals(is_quiet=workers.count > 1) as stop,
            Display(on_progress) as display,
            _prepared_device(device, layers.config.train),
            Checkpoints(run / "checkpoints", display.say, is_background=command.saves_in_background) as checkpoints,
        ):
            newest = None if take_place else checkpoints.newest()
            config, data, order = _prepare_or_resume(command, directory, newest, display)
            if take_place:
                display.say(f"moved the earlier run to {take_place(_inputs(config, data))}")
            if fresh:
                workers.note_afresh()
            if newest:
                require_fitting_checkpoint(config.model, newest[0], run)
            ended_by = newest[1].ended_by(config.train) if newest and is_finished(run) else None
            workers.tell("prepared", json.dumps(_PreparedRun.of(run, newest[0] if newest else None, ended_by)))
            if newest and ended_by is not None:
                display.say(f"this run is finished ({ended_by}); its model is {from_here(run) / 'model'}")
                return TrainResult(run, newest[1].step, ended_by, _published_bleu(run), True)
            workers.connect(device)
            loop = Loop(config, data, order, run, device, checkpoints, display, stop, start, workers, own)
            loop.begin(newest, start_model)
            (run / "report.html").unlink(missing_ok=True)
            _announce(loop, device)
            tracking = Tracking(config, run, display.say)
            at = {"step": loop.state.step, "validated_step": loop.last_validation}
            with MetricsLog(run, **at, tracking=tracking) as log:
                ended_by = loop.train(log)
                samples = Samples(loop)
                validation, translator = publish_best(loop, samples.side_files)
            assert translator is not None, "the first worker publishes"
            found_out = report_end(loop, translator, validation, samples, ended_by)
            workers.wait()
            return TrainResult(run, loop.state.step, ended_by, round(validation.bleu, 2), False, found_out)
    except OSError as error:
        raise CheckpointError(f"cannot write to the run {run}: {disk_trouble(error)}") from None


def _run_and_device(early: Config, workers: Workers, own: OwnParts, *, fresh: bool) -> tuple[Path, torch.device]:
    """Return the run directory and this worker's device; reject what could not train before any data is read."""
    own.require(early.train.own_parts)
    require_client(early.train.track)
    if own.names and early.train.max_memory:
        raise ConfigError("train.max_memory counts the memory of the package's own model and loss; leave it out")
    run = Path(os.path.abspath(str(early.out)))  # a bare "." has no name to change
    device = workers.device(torch.device(resolve_device(early.device)))
    if fresh or not (run / "config.toml").exists():
        uses_bf16(early.train, device)
        golden_lines(early.golden)  # an earlier run is not renamed for an unusable file
    return run, device


@contextmanager
def _prepared_device(device: torch.device, train: TrainConfig) -> Iterator[None]:
    """Let PyTorch compute on the device as the settings ask within the block."""
    limited = limited_gpu_memory(str(device), train.max_memory)
    with deterministic(device, is_asked_for=train.deterministic), limited:
        yield


@dataclass(frozen=True)
class _Command:
    """What a command asks of a run, and where it trains."""

    layers: Layers
    """All settings but the plan."""
    start_model: Bundle | None
    """Initial model of a new run."""
    force_data: bool
    """Whether training text of which much looks wrong is taken all the same."""
    own: OwnParts
    device: torch.device
    num_workers: int
    """Number of processes that train together."""
    processes: int
    """Number of processes that prepare the data."""
    start: float
    """`time.monotonic()` at the start of the command."""

    @property
    def saves_in_background(self) -> bool:
        """Whether a thread writes checkpoints; other workers would read what is not yet written."""
        return self.device.type == "cuda" and self.num_workers == 1


def _train_with_the_first(workers: Workers, start: float, own: OwnParts) -> TrainResult:
    """Train as a worker other than the first, which prints and writes nothing."""
    prepared = _PreparedRun(*json.loads(workers.tell("prepared", None)))
    run = Path(prepared.run)
    with (
        StopSignals(is_quiet=True) as stop,
        Display(is_quiet=True) as display,
        Checkpoints(run / "checkpoints", display.say) as checkpoints,
    ):
        checkpoint = Path(prepared.checkpoint) if prepared.checkpoint else None
        if _PreparedRun.of(run, checkpoint, prepared.ended_by) != prepared:
            raise TrainingError(
                f"worker {workers.rank} does not find in {run} what the first worker prepared there; all machines need "
                f"the run directory on a file system that they share"
            )
        # The first worker has compared its files with their checksums: no other reads them all again.
        newest = (checkpoint, checkpoints.state(checkpoint)) if checkpoint else None
        if newest and prepared.ended_by is not None:
            return TrainResult(run, newest[1].step, prepared.ended_by, _published_bleu(run), True)
        config, data = Config.load(run / "config.toml"), open_prepared(run / "data")
        device = workers.device(torch.device(resolve_device(config.device)))
        workers.connect(device)
        order = data.order(config.train)
        loop = Loop(config, data, order, run, device, checkpoints, display, stop, start, workers, own)
        loop.begin(newest, None)
        with _prepared_device(device, config.train):
            ended_by = loop.train(NoLog())
            validation, _ = publish_best(loop)
        workers.wait()  # the first worker checks the others' heartbeats until it has written the report
        return TrainResult(run, loop.state.step, ended_by, round(validation.bleu, 2), False)


class _PreparedRun(NamedTuple):
    """Description of a prepared run, sent by the first worker. The others must find the same in the run directory."""

    run: str
    checkpoint: str
    """Directory of the checkpoint to resume from; empty if there is none."""
    ended_by: str | None
    """Why a finished run ended; None if it is not finished."""
    digests: list[str]
    """SHA-256 of the settings file, the data report and the checkpoint's manifest; empty if there is no such file."""

    @classmethod
    def of(cls, run: Path, checkpoint: Path | None, ended_by: str | None) -> _PreparedRun:
        """Return the description of a run directory."""
        paths = [
            run / "config.toml",
            run / "data" / "report.json",
            *([checkpoint / "manifest.json"] if checkpoint else []),
        ]
        digests = [file_sha256(path) if path.is_file() else "" for path in paths]
        return cls(str(run), str(checkpoint or ""), ended_by, digests)


def _prepare_or_resume(
    command: _Command, run: Path, newest: tuple[Path, TrainingState] | None, display: Display
) -> tuple[Config, Prepared, BatchOrder]:
    """Prepare a new run, or check that an old one may resume; write its settings, return them, the data and its order.

    Args:
        command: The settings of the command.
        run: Run directory.
        newest: Newest checkpoint and its state; None for a new run.
        display: Progress display.
    """
    path, changes, layers = run / "config.toml", list[str](), command.layers
    made = newest[1] if newest else TrainingState()
    if path.exists():  # under the lock: no other process writes
        saved, data = Config.load(path), open_prepared(run / "data")
        if missing := missing_inputs(saved):
            display.say(f"going on with the prepared data; its files are no longer there: {', '.join(missing)}")
        if changed := changed_inputs(data.report, saved, layers.config):
            raise CheckpointError(
                "the data changed since this run was started, and going on would mix two corpora:\n  "
                + "\n  ".join(changed)
                + "\nrestore the files, or use another --out, or --fresh to start over"
            )
        config, order, changes = resume(layers, saved, data, made, command.device, command.num_workers)
        if not command.own.names:
            require_memory(config, order, command.device, command.num_workers)
    else:
        data = prepare_run(
            layers, command.start_model, run, display, is_forced=command.force_data, processes=command.processes
        )
        display.stage("timing a few steps", 0)
        spent = time.monotonic() - command.start
        workers, own = command.num_workers, command.own
        plan = make_plan(layers, data, command.device, spent=spent, num_workers=workers, own=own)
        config, order = plan.config, plan.order
        for line in plan.lines():
            display.say(line)
    rows = layers.given.get("model.vocab_size", config.model.vocab_size)
    if rows != config.model.vocab_size:
        display.say(
            f"model.vocab_size is {config.model.vocab_size:,}, the pieces of this tokenizer, not {rows!r:.50} as set"
        )
    if changes or not is_finished(run) or made.ended_by(config.train) is None:
        # Reject unusable golden sentences before the run is changed.
        golden_sources(config.golden, data.tokenizer, config.decode.target_lang)
    if changes:
        (run / "report.html").unlink(missing_ok=True)  # a finished run is published again with the new settings
        for line in changes:
            display.say(f"changed since the run was started: {line}")
    settings = config.to_toml()
    if not path.exists() or path.read_text(encoding="utf-8") != settings:  # nothing of a finished run is rewritten
        write_text(path, settings)
    return config, data, order


def _inputs(config: Config, data: Prepared) -> list[str]:
    """Return the paths of the files and of the model that a run reads."""
    files = [file["path"] for file in data.report["files"]]
    golden = config.golden if config.golden not in (None, NO_GOLDEN) else None
    model = config.from_model and str(model_directory(config.from_model))
    return [path for path in (*files, golden, model) if path and os.path.exists(path)]


def _published_bleu(run: Path) -> float:
    """Return the BLEU of a finished run's model. The whole model is loaded, so that damage is detected."""
    try:
        return float(load_bundle(run).info["metrics"]["valid_bleu"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelError(f"{run / 'model' / 'config.json'} is damaged: it has no info.metrics.valid_bleu") from None


def _announce(loop: Loop, device: torch.device) -> None:
    data, model = loop.data, loop.config.model
    if data.report["valid_held_out"]:
        how = HELD_OUT[data.report.get("held_out_by", "line")]  # older runs have lines
        loop.display.say(
            f"no validation set was given: {len(data.valid):,} pairs are held out of the training text ({how})"
        )
        if loop.config.from_model is not None:
            loop.display.say(
                "those that the model learned from before make it look better than it is, and new weights worse beside "
                "it: name validation text that it has not seen"
            )
    if loop.config.data.corrections and data.general is None:
        loop.display.say(
            "the text that the model was trained on is not known, so it learns the corrections alone, and may "
            "translate other text worse: name such text with --pairs"
        )
    loop.display.say(
        f"preset {loop.config.preset}: {model.num_encoder_layers}+{model.num_decoder_layers} layers, "
        f"d_model {model.d_model}, {loop.model.num_parameters():,} parameters, {model.vocab_size:,} pieces; "
        f"{loop.order.batches_per_epoch:,} steps an epoch, on {device}"
    )
    if warning := crowding(device):
        loop.display.say(warning)
    if loop.config.from_model is not None and not loop.state.best:
        loop.display.say(f"starting from the model of {loop.config.from_model}; it is validated before the first step")
    if loop.state.step:
        loop.display.say(f"resuming after step {loop.state.step:,}")

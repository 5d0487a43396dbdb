"""A training run from its first command to its report: prepare or resume, train, publish.

Running the same command again goes on where the run stopped; a finished run is left as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle import load_bundle, require_fitting_weights
from clearhead.config import Config, read_toml
from clearhead.data.clean import CleaningReport
from clearhead.data.inputs import changed_inputs, missing_inputs
from clearhead.data.prepare import Prepared, open_prepared, prepare
from clearhead.device import resolve_device
from clearhead.errors import CheckpointError, ConfigError, ModelError
from clearhead.files import write_text
from clearhead.presets import choose_preset
from clearhead.training.checkpoints import Checkpoints, TrainingState, disk_trouble
from clearhead.training.display import Display
from clearhead.training.log import MetricsLog, read_metrics
from clearhead.training.loop import Loop
from clearhead.training.overrides import merge
from clearhead.training.publish import translatable_rows
from clearhead.training.report import write_report
from clearhead.training.run_directory import is_finished, lock, move_aside
from clearhead.training.settings import (
    check_early,
    check_resumable,
    complete,
    refuse_other_preset,
    resolved,
    steps_per_epoch,
    with_open_rate,
)
from clearhead.training.stop import StopSignals

__all__ = ["TrainResult", "train", "train_from_values"]

_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a run ended."""

    run: Path
    step: int
    """Optimiser steps done."""
    ended_by: str
    """`max_steps`, `max_minutes` or `patience`."""
    bleu: float
    """Validation BLEU of the published model, greedy, in percent."""
    was_finished: bool
    """The run was finished before, and nothing was done."""


def train(config: Config | str | Path, *, fresh: bool = False) -> TrainResult:
    """Train a model as `clearhead train` does; `out` in the settings names the run directory.

    Args:
        config: The settings, or a TOML file of them; what was not set explicitly may be chosen by the preset and the
            corpus. Of a `Config`, `model.vocab_size` does not count: every preset has one, and the tokenizer decides.
        fresh: Start over; what the run directory held is moved aside.

    Raises:
        ClearheadError: If settings, data, the run directory or the device cannot be used, or training had to stop.
        KeyboardInterrupt: On Ctrl-C, after saving.
        SystemExit: With status 143 on SIGTERM, after saving.
    """
    if isinstance(config, Config):
        values = config.model_dump(exclude_unset=True, exclude={"model": {"vocab_size"}})
    else:
        values = read_toml(config)
    return train_from_values(values, fresh=fresh)


def train_from_values(values: Mapping[str, Any], *, fresh: bool = False) -> TrainResult:
    """Train with nested settings as a user wrote them; see `train`."""
    start = time.monotonic()
    if not values.get("out"):
        raise ConfigError("name the run directory: --out RUN, or out = 'RUN' in the configuration")
    check_early(values)
    run = Path(os.path.abspath(values["out"]))  # a bare "." has no name, and moves when it is moved aside
    values = _with_saved_settings(values, run, fresh=fresh)
    check_early(values)
    device = resolve_device(values.get("device", "auto"))
    try:
        if fresh and run.exists():
            Display().say(f"moved the earlier run to {move_aside(run)}")
        with lock(run), StopSignals() as stop, Display() as display:
            config, data = _settle(values, run, display)
            result = _train(config, data, run, device, stop, display, start)
    except OSError as error:
        raise CheckpointError(f"cannot write to the run {run}: {disk_trouble(error)}") from None
    return result


def _settle(values: Mapping[str, Any], run: Path, display: Display) -> tuple[Config, Prepared]:
    """Prepare the data of a new run, or check that an old one may go on; return the complete settings."""
    saved_path = run / "config.toml"
    if not saved_path.exists():
        started = time.monotonic()
        data = prepare(check_early(values), run / "data", on_progress=display.stage)
        preset = values.get("preset") or choose_preset(len(data.train))
        seconds = time.monotonic() - started
        display.say(
            f"prepared {len(data.train):,} training and {len(data.valid):,} validation pairs in {seconds:.0f} s"
        )
        for line in _data_lines(data.report):
            display.say("  " + line)
    else:
        saved = resolved(Config.load(saved_path))  # older runs left open what was chosen
        data = open_prepared(run / "data")
        preset = values.get("preset") or saved.preset or choose_preset(len(data.train))
        if missing := missing_inputs(saved):
            display.say(f"going on with the prepared data; its files are no longer there: {', '.join(missing)}")
        if changed := changed_inputs(data.report, saved, check_early(values)):
            raise CheckpointError(
                "the data changed since this run was started, and going on would mix two corpora:\n  "
                + "\n  ".join(changed)
                + "\nrestore the files, or use another --out, or --fresh to start over"
            )
    config = resolved(
        complete(
            values,
            preset,
            vocab_size=data.tokenizer.vocab_size,
            batches_per_epoch=steps_per_epoch(values, preset, data.train),
            special_ids={name: getattr(data.tokenizer, name) for name in ("pad_id", "bos_id", "eos_id")},
        )
    )
    if saved_path.exists() and (changes := check_resumable(saved, config)):
        (run / "report.html").unlink(missing_ok=True)  # a finished run is published anew with its new settings
        for line in changes:
            display.say(f"changed since the run was started: {line}")
    write_text(saved_path, config.to_toml())
    return config, data


def _train(
    config: Config,
    data: Prepared,
    run: Path,
    device: torch.device,
    stop: StopSignals,
    display: Display,
    start: float,
) -> TrainResult:
    checkpoints = Checkpoints(run / "checkpoints", display.say)
    newest = checkpoints.newest()
    if newest:
        require_fitting_weights(config.model, newest[0] / "model.safetensors", origin=str(run / "config.toml"))
    loop = Loop(config, data, run, device, checkpoints, display, stop, start)
    if newest:
        loop.resume(*newest)
    ended_by = loop.ended_by()
    if ended_by and is_finished(run):
        display.say(f"this run is finished ({ended_by}); its model is {run / 'model'}")
        return TrainResult(run, loop.state.step, ended_by, _published_bleu(run), True)
    (run / "report.html").unlink(missing_ok=True)
    _announce(config, data, loop, device, display)
    with MetricsLog(run, step=loop.state.step, validated_step=loop.state.validated_step) as log:
        ended_by = loop.train(log)
        validation, translator = loop.publish_best()
    samples = translatable_rows(data, _SAMPLES)
    display.stage("translating samples", 0)
    translations = translator.translate([data.valid.source(row) for row in samples])
    write_report(
        run / "report.html",
        config=config,
        summary=_summary(config, loop.state, validation.bleu, translator.bundle.info["weights"], ended_by),
        metrics=read_metrics(run / "metrics.jsonl"),
        samples=[(t, data.valid.target(row)) for t, row in zip(translations, samples, strict=True)],
        data_lines=_data_lines(data.report),
    )
    minutes = loop.state.elapsed / 60
    display.say(
        f"finished by {ended_by} after {loop.state.step:,} steps, {minutes:.1f} minutes: "
        f"validation BLEU {validation.bleu:.2f}"
    )
    return TrainResult(run, loop.state.step, ended_by, validation.bleu, False)


def _published_bleu(run: Path) -> float:
    try:
        return float(load_bundle(run).info["metrics"]["valid_bleu"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelError(f"{run / 'model' / 'config.json'} is damaged: it has no info.metrics.valid_bleu") from None


def _announce(config: Config, data: Prepared, loop: Loop, device: torch.device, display: Display) -> None:
    model = config.model
    if data.report["valid_held_out"]:
        display.say(f"no validation set was given: {len(data.valid):,} pairs are held out of the training text")
    parameters = loop.model.num_parameters()
    display.say(
        f"preset {config.preset}: {model.num_encoder_layers}+{model.num_decoder_layers} layers, "
        f"d_model {model.d_model}, {parameters:,} parameters, {model.vocab_size:,} pieces; "
        f"{loop.order.batches_per_epoch:,} steps an epoch, on {device}"
    )
    if loop.state.step:
        display.say(f"resuming after step {loop.state.step:,}")


def _summary(config: Config, state: TrainingState, bleu: float, weights: str, ended_by: str) -> dict[str, str]:
    return {
        "validation BLEU (greedy)": f"{bleu:.2f}",
        "model": f"{config.preset}: {weights}",
        "training": f"{state.step:,} steps, {state.target_tokens:,} target tokens, {state.elapsed / 60:.1f} minutes",
        "ended by": ended_by,
    }


def _data_lines(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for part, title in (("train", "training text"), ("valid", "validation text")):
        if report[part]["read"]:
            lines += [title, *CleaningReport(**report[part]).lines()]
    return lines


def _with_saved_settings(values: Mapping[str, Any], run: Path, *, fresh: bool) -> Mapping[str, Any]:
    """Let `clearhead train --out RUN`, which names no files, go on with a run and its settings, or start over."""
    names_files = any(values.get("data", {}).get(name) for name in ("source", "target", "pairs"))
    if names_files or not (run / "config.toml").is_file():
        return values
    saved = Config.load(run / "config.toml")
    if fresh:
        refuse_other_preset(values, saved, run)
        saved = with_open_rate(saved)
    return merge(saved.model_dump(), values)

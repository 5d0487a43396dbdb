"""Training plan: choose the settings left open, estimate the run's length, and settle those of a resumed run.

The evidence for the choices is in docs/recipes.md. The paper's presets are not changed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from clearhead.config import MOST_STEPS, Config
from clearhead.config.nested import flat, merge
from clearhead.config.presets import AUTOMATIC_PRESETS, TABLE3, choose_preset
from clearhead.data.batches import BatchOrder, collate, split
from clearhead.data.prepare import Prepared
from clearhead.errors import ConfigError
from clearhead.training.checkpoints import TrainingState
from clearhead.training.optimizer import build_optimizer
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.training.progress import done_by
from clearhead.training.settings import PLANNED, Request, check_resumable, complete, default_steps, resolved
from clearhead.training.step import Stepper

_ENOUGH_TOKENS = {"small": 25_000_000, "paper-base": 500_000_000}
"""Target tokens that each preset must see in training to be better than the smaller ones."""

_RATES = {"muon": 12e-3, "adam": 3e-3, "adamw": 3e-3}
"""Peak learning rates at width 128. They fall with the square root of the width."""

_SHARE_OF_RATE, _SHARE_BESIDE_GENERAL_TEXT = 0.25, 0.08
"""Factors on these rates for a run that starts from a trained model, without and with general text.

At the full rate the model would forget what it has learned. With general text, which must not be unlearned, a quarter
is still too much. Adapters (`train.lora_rank`) start from scratch and use the full rate.
"""

_MOST_DECAY, _DECAY_OF_ONE_STEP = 0.3, 10.0
"""Weight decay for weights that Muon updates: its maximum, and its value for a run of one step.

It falls with the square root of the steps, because a longer run must retain what it learned for longer.
"""

_DROPOUT = ((8, 0.0), (30, 0.1), (80, 0.2))
"""Dropout by passes over the corpus (upper bound, rate). A model that sees every pair only a few times needs none."""
_MOST_DROPOUT = 0.3

_LENGTH_PENALTY = 1.0
"""Length penalty of the form `gnmt`. With the paper's 0.6, translations of these models are too short."""

_WARMUP_SHARE, _MOST_WARMUP = 10, 400
_MOST_WARMUP_FROM = 100
"""Maximum warm-up steps of a run that starts from a trained model, where only the optimiser starts from scratch."""
_VALIDATIONS, _LEAST_STEPS_BETWEEN, _MOST_STEPS_BETWEEN = 8, 50, 500
_INTERVALS = ("validate_every", "checkpoint_every")
_SHARE_OF_TRAINING = 0.95  # fraction of the time; the rest is for validations and checkpoints

_MOST_ON_GPU, _LEAST_STEPS_A_PASS = 8_192, 50
"""Target tokens of a step on a GPU, where few take as long; unless a pass over the corpus would have fewer steps."""

_TIMED_TOKENS = 2_048
_TIMED_STEPS, _TIMED_SHARE = 10, 10  # maximum of timed steps, and one in so many of the run: a short run is not delayed
_TIMED_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a run: its settings and its expected length."""

    config: Config
    """Complete settings of the run."""
    order: BatchOrder
    """Assignment of pairs to steps."""
    steps: int
    """Expected optimiser steps."""
    epochs: float
    """Expected passes over the corpus."""
    seconds_per_step: float | None
    """Seconds per step on this machine; None if memory was too small to time a step."""

    @property
    def seconds(self) -> float | None:
        """Expected seconds until the end of training, or None if the speed is unknown."""
        return None if self.seconds_per_step is None else self.steps * self.seconds_per_step / _SHARE_OF_TRAINING

    def lines(self) -> list[str]:
        """Return the plan as lines to print."""
        model, train = self.config.model, self.config.train
        learns = f"adapters of rank {train.lora_rank} with {train.optimizer}" if train.lora_rank else train.optimizer
        lines = [
            f"plan: {self.config.preset}, {model.num_encoder_layers}+{model.num_decoder_layers} layers of width "
            f"{model.d_model}, dropout {model.dropout:g}; {learns}, {train.batch_tokens:,} target tokens a "
            f"step, warm-up of {train.warmup_steps:,} steps",
            f"plan: about {self.steps:,} steps, {self.epochs:.1f} passes over the corpus, validated every "
            f"{train.validate_every:,}",
        ]
        if self.seconds is not None:
            lines[1] += f"; {done_by(self.seconds)}"
        return lines


def make_plan(
    request: Request,
    data: Prepared,
    device: torch.device,
    *,
    spent: float,
    num_workers: int = 1,
    own: OwnParts = NO_OWN_PARTS,
) -> Plan:
    """Choose the settings that the user left open, and estimate the length of the run.

    Without a time limit the choice depends only on the corpus, the settings, and whether the device is a GPU, so that
    the same command gives the same weights. With a time limit it also depends on the measured speed of a few steps on
    this machine.

    Args:
        request: Settings of the command, which are never overridden.
        data: Prepared pairs.
        device: Device for training.
        spent: Seconds of the time limit that have already passed.
        num_workers: Number of processes that will share every step. Only one is timed.
        own: The run's own parts.

    Raises:
        ConfigError: If the settings fit no preset.
    """
    largest = choose_preset(data.report["train"]["kept"])  # altered copies add no information
    names = list(AUTOMATIC_PRESETS)
    named = request.values.get("preset")
    candidates = [named] if named else names[: names.index(largest) + 1]
    plan, problem = None, None
    for preset in reversed(candidates):
        try:
            plan = _plan(request.values, preset, data, device, spent, num_workers, own)
        except ConfigError as error:  # the user's settings may fit another preset
            problem = error
            continue
        if plan.steps * plan.config.train.batch_tokens >= _ENOUGH_TOKENS.get(preset, 0):
            break
    if plan is None:
        raise problem or ConfigError("there is no preset to choose from")
    if plan.seconds_per_step is None:  # without a time limit only the chosen preset is timed
        most = max(1, plan.steps // _TIMED_SHARE)
        seconds = _seconds_per_step(plan.config, plan.order, data, device, num_workers, own, most)
        plan = replace(plan, seconds_per_step=seconds)
    return replace(plan, config=resolved(plan.config, plan.order.batches_per_epoch))


def resume(
    request: Request, saved: Config, data: Prepared, made: TrainingState
) -> tuple[Config, BatchOrder, list[str]]:
    """Return complete settings of a resumed run, its batches, and the changes of settings as lines to print.

    Args:
        request: Settings of the command.
        saved: Settings that the run was last trained with.
        data: Prepared data of the run.
        made: State of the run.

    Raises:
        CheckpointError: If the changes would make it another run; see `check_resumable`.
        ConfigError: If the settings are invalid.
    """
    values = request.values
    preset = values.get("preset") or saved.preset or choose_preset(len(data.train))
    now = complete(values, preset, data.tokenizer.model_settings, planned_before(saved))
    order = data.order(now.train)
    # Older runs did not save the chosen values.
    saved, now = (resolved(config, order.batches_per_epoch) for config in (saved, now))
    now = with_intervals(saved, now, made, values.get("train", {}))
    return now, order, check_resumable(saved, now, made)


def planned_before(saved: Config) -> dict[str, dict[str, Any]]:
    """Return the settings that a resumed run already has for everything a plan would choose."""
    before = saved.model_dump(include={section: {*names} for section, names in PLANNED.items()})
    return merge(before, {"train": {"planned": saved.train.planned}})


def with_intervals(saved: Config, now: Config, made: TrainingState, given: Collection[str]) -> Config:
    """Return the settings of a resumed run, with intervals that suit a new limit where the user left them open.

    With the intervals of a short run, a long one would spend half of its time on validations, and `train.patience`
    would end it early.

    Args:
        saved: Settings that the run was last trained with.
        now: Settings that are requested now, merged with the planned ones.
        made: State of the run: its steps and the time they took.
        given: Names of the `[train]` settings that the user gives now.
    """
    old, new = saved.train, now.train
    of_user = {f"train.{name}" for name in _INTERVALS if name in given}
    chosen: dict[str, Any] = {"planned": tuple(name for name in new.planned if name not in of_user)}
    ends = [new.max_steps] if new.max_steps is not None else []
    if new.max_minutes is not None and made.step and made.elapsed:
        ends.append(int(made.step * 60 * new.max_minutes / made.elapsed))
    if ends and (old.max_steps, old.max_minutes) != (new.max_steps, new.max_minutes):
        chosen |= {name: _interval(min(ends)) for name in _INTERVALS if f"train.{name}" in chosen["planned"]}
    return now.model_copy(update={"train": new.model_copy(update=chosen)})


def _plan(
    values: Mapping[str, Any],
    preset: str,
    data: Prepared,
    device: torch.device,
    spent: float,
    num_workers: int,
    own: OwnParts,
) -> Plan:
    is_of_the_paper, of_tokenizer = preset in TABLE3, data.tokenizer.model_settings
    optimizer = "adam" if values.get("train", {}).get("lora_rank") else "muon"
    found = {"data": {"augment": "augmented" in data.report}}  # decided before a preset was chosen
    first = found if is_of_the_paper else {**found, "train": {"optimizer": optimizer}}
    config = complete(values, preset, of_tokenizer, first)
    if device.type != "cpu" and not is_of_the_paper:
        tokens = _tokens_on_gpu(config.train.batch_tokens, int(data.train.target_lengths.sum()))
        config = complete(values, preset, of_tokenizer, merge(first, {"train": {"batch_tokens": tokens}}))
    train, decode, width = config.train, config.decode, config.model.d_model
    order = data.order(train)
    steps, seconds_per_step = train.max_steps, None
    if train.max_minutes is not None:
        seconds_per_step = _seconds_per_step(config, order, data, device, num_workers, own)
    if train.max_minutes is not None and seconds_per_step is not None:
        left = max(0.0, 60 * train.max_minutes - spent) * _SHARE_OF_TRAINING
        steps = min(steps or MOST_STEPS, max(1, int(left / seconds_per_step)))
    steps = steps or default_steps(order.batches_per_epoch)
    epochs = steps / order.batches_per_epoch
    if not is_of_the_paper:
        most_warmup = _MOST_WARMUP if config.from_model is None else _MOST_WARMUP_FROM
        rate = _share_of_rate(config) * _RATES[train.optimizer] * (128 / width) ** 0.5
        muon_decay = min(_MOST_DECAY, float(f"{_DECAY_OF_ONE_STEP / steps**0.5:.2g}"))
        planned = {
            **found,
            "model": {"dropout": next((rate for below, rate in _DROPOUT if epochs < below), _MOST_DROPOUT)},
            "train": {
                "optimizer": train.optimizer,
                "batch_tokens": train.batch_tokens,
                "learning_rate": float(f"{rate:.2g}"),
                "weight_decay": muon_decay if train.optimizer == "muon" else train.weight_decay,
                "warmup_steps": max(1, min(most_warmup, steps // _WARMUP_SHARE)),
                **dict.fromkeys(_INTERVALS, _interval(steps)),
            },
            "decode": {
                "length_penalty": _LENGTH_PENALTY if decode.length_penalty_form == "gnmt" else decode.length_penalty
            },
        }
        left_open = [name for name in flat(planned) if name not in flat(values)]
        config = complete(values, preset, of_tokenizer, merge(planned, {"train": {"planned": left_open}}))
    return Plan(config, order, steps, epochs, seconds_per_step)


def _tokens_on_gpu(step: int, corpus: int) -> int:
    """Return the target tokens of a step on a GPU: those of the preset, doubled while that is of use."""
    while 2 * step <= min(_MOST_ON_GPU, corpus // _LEAST_STEPS_A_PASS):
        step *= 2
    return step


def _interval(steps: int) -> int:
    return min(_MOST_STEPS_BETWEEN, max(_LEAST_STEPS_BETWEEN, steps // _VALIDATIONS))


def _share_of_rate(config: Config) -> float:
    if config.from_model is None or config.train.lora_rank:
        return 1.0
    data = config.data
    return _SHARE_BESIDE_GENERAL_TEXT if data.general_source or data.general_pairs else _SHARE_OF_RATE


def _seconds_per_step(
    config: Config,
    order: BatchOrder,
    data: Prepared,
    device: torch.device,
    num_workers: int,
    own: OwnParts,
    most: int = _TIMED_STEPS,
) -> float | None:
    """Return the seconds per step, measured on (parts of) a few steps; None without enough memory.

    The timed model is discarded. Otherwise what it learned would depend on the clock.
    """
    train, lengths = config.train.model_copy(update={"compile": False}), data.train.target_lengths
    # A GPU takes as long for a small part of a step as for a large one.
    most_tokens = train.micro_batch_tokens
    if device.type == "cpu":
        most_tokens = min(most_tokens, _TIMED_TOKENS)
    try:
        model = own.make_model(config.model).to(device)
        stepper = Stepper(model, build_optimizer(model, train), train, own=own)
        seconds: list[float] = []
        start = last = 0.0
        for number in range(min(most, _TIMED_STEPS) + 1):
            rows = order.rows(number)
            part = split(rows, lengths, most_tokens)[0]
            batch = collate(data.train, part, pad_id=config.model.pad_id, bos_id=config.model.bos_id)
            stepper.step([batch], number=number + 1, rate=0.0)
            now = time.monotonic()
            if number == 0:  # the first step also allocates memory
                start = now
            else:
                seconds.append((now - last) / (batch.num_target_tokens / int(lengths[rows].sum())))
            last = now
            if now - start > _TIMED_SECONDS:
                break
        return statistics.median(seconds) / num_workers  # on a GPU more steps than the first load what they call
    except torch.OutOfMemoryError:  # training itself will report what to do
        return None

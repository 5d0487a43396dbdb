"""What suits the corpus, the machine and the time given, where the user left it open.

The evidence is in docs/recipes.md. The presets of the paper are left as the paper has them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from clearhead.config import MOST_STEPS as MOST_STEPS_SET
from clearhead.config import Config
from clearhead.config.presets import AUTOMATIC_PRESETS, TABLE3, choose_preset
from clearhead.data.batches import BatchOrder, collate, split
from clearhead.data.prepare import Prepared
from clearhead.errors import ConfigError
from clearhead.model.transformer import Transformer
from clearhead.training.checkpoints import TrainingState
from clearhead.training.optimizer import build_optimizer
from clearhead.training.settings import DEFAULT_EPOCHS, MOST_STEPS, complete, merge
from clearhead.training.step import Stepper

__all__ = ["Plan", "make_plan", "planned_before", "with_intervals"]

_PLANNED = {
    "data": ("augment",),
    "model": ("dropout",),
    "train": ("optimizer", "learning_rate", "weight_decay", "warmup_steps", "validate_every", "checkpoint_every"),
    "decode": ("length_penalty",),
}
"""Settings that a plan chooses, or finds chosen."""

_ENOUGH_TOKENS = {"small": 25_000_000, "paper-base": 500_000_000}
"""Target tokens that a preset must see in training to be ahead of the smaller ones."""

_RATES = {"muon": 12e-3, "adam": 3e-3, "adamw": 3e-3}
"""Peak rates at width 128; they fall with the square root of the width."""

_SHARE_OF_RATE, _SHARE_BESIDE_GENERAL_TEXT = 0.25, 0.08
"""Of these, for a run that starts from a trained model: the full rate would undo what that has learned, and so does a
quarter where it must not unlearn. Adapters (`train.lora_rank`), which begin anew, take all of it."""

_MOST_DECAY, _DECAY_OF_ONE_STEP = 0.3, 10.0
"""Of weights that Muon moves; it falls with the square root of the steps, for a longer run must remember for longer."""

_DROPOUT = ((8, 0.0), (30, 0.1), (80, 0.2))
"""Dropout of runs of fewer passes over the corpus than so many: a model that sees every pair a few times needs none."""
_MOST_DROPOUT = 0.3

_LENGTH_PENALTY = 1.0
"""Of the form `gnmt`: what these models write with the paper's 0.6 is too short."""

_WARMUP_SHARE, _MOST_WARMUP = 10, 400
_MOST_WARMUP_FROM = 100
"""Of a run that starts from a trained model, whose optimiser alone begins anew."""
_VALIDATIONS, _LEAST_STEPS_BETWEEN, _MOST_STEPS_BETWEEN = 8, 50, 500
_INTERVALS = ("validate_every", "checkpoint_every")
_SHARE_OF_TRAINING = 0.95  # of the time; the rest goes to validations and checkpoints

_TIMED_TOKENS = 2_048
_TIMED_STEPS, _TIMED_SHARE = 10, 10  # at most, and of how many steps one: a short run is not kept waiting
_TIMED_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is expected to be."""

    config: Config
    """Its settings; what `settings.resolved` adds is still open."""
    order: BatchOrder
    """Which pairs each step sees."""
    steps: int
    """Optimiser steps that are expected."""
    epochs: float
    """Passes over the corpus in these."""
    seconds_per_step: float | None
    """On this machine; None if there was too little memory to time it."""

    @property
    def seconds(self) -> float | None:
        """Expected until the end."""
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
            end = time.localtime(time.time() + self.seconds)
            lines[1] += time.strftime("; done by about %H:%M" if self.seconds < 43_200 else "; done by about %c", end)
        return lines


def make_plan(
    values: Mapping[str, Any], data: Prepared, device: torch.device, *, spent: float, num_workers: int = 1
) -> Plan:
    """Choose what the user left open, and say what is to be expected.

    Without minutes the choice depends on the corpus and the settings alone, so that the same command gives the same
    weights; with minutes also on how fast a few steps are made here.

    Args:
        values: Nested settings as the user gave them; they are never overruled.
        data: Prepared pairs.
        device: Where to train.
        spent: Seconds of the user's minutes that are over.
        num_workers: Processes that will share every step; one alone is timed.

    Raises:
        ConfigError: If the settings fit no preset.
    """
    largest = choose_preset(data.report["train"]["kept"])  # altered copies tell nothing new
    names = list(AUTOMATIC_PRESETS)
    candidates = [values["preset"]] if values.get("preset") else names[: names.index(largest) + 1]
    plan, problem = None, None
    for preset in reversed(candidates):
        try:
            plan = _plan(values, preset, data, device, spent, num_workers)
        except ConfigError as error:  # the user's settings need not fit every preset
            problem = error
            continue
        if plan.steps * plan.config.train.batch_tokens >= _ENOUGH_TOKENS.get(preset, 0):
            break
    if plan is None:
        raise problem or ConfigError("there is no preset to choose from")
    if plan.seconds_per_step is None:  # where it chose nothing, only what was chosen is timed
        most = max(1, plan.steps // _TIMED_SHARE)
        seconds = _seconds_per_step(plan.config, plan.order, data, device, num_workers, most)
        plan = replace(plan, seconds_per_step=seconds)
    return plan


def planned_before(saved: Config) -> dict[str, dict[str, Any]]:
    """Return what a plan chose, or an earlier clearhead took, for a run that goes on."""
    before = {
        section: {name: getattr(getattr(saved, section), name) for name in names} for section, names in _PLANNED.items()
    }
    return merge(before, {"train": {"planned": saved.train.planned}})


def with_intervals(saved: Config, now: Config, made: TrainingState, given: Collection[str]) -> Config:
    """Return the settings of a run that goes on, with intervals that suit a new limit where the user left them open.

    Those of a short run would have a long one validated half of the time, and `train.patience` end it soon.

    Args:
        saved: What it was last trained with.
        now: What is asked for, laid over what was planned.
        made: How far it came, and how fast.
        given: Settings of `[train]` that the user names now.
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
    values: Mapping[str, Any], preset: str, data: Prepared, device: torch.device, spent: float, num_workers: int
) -> Plan:
    def completed(chosen: Mapping[str, Any]) -> Config:
        found = {"data": {"augment": "augmented" in data.report}}  # decided before there was a preset
        return complete(values, preset, data.tokenizer.model_settings, {**found, **chosen})

    is_of_the_paper = preset in TABLE3
    config = completed({} if is_of_the_paper else {"train": {"optimizer": _optimizer(values)}})
    train, decode, width = config.train, config.decode, config.model.d_model
    order = data.order(train)
    steps, seconds_per_step = train.max_steps, None
    if train.max_minutes is not None:
        seconds_per_step = _seconds_per_step(config, order, data, device, num_workers)
    if train.max_minutes is not None and seconds_per_step is not None:
        left = max(0.0, 60 * train.max_minutes - spent) * _SHARE_OF_TRAINING
        steps = min(steps or MOST_STEPS_SET, max(1, int(left / seconds_per_step)))
    steps = steps or min(MOST_STEPS, DEFAULT_EPOCHS * order.batches_per_epoch)
    epochs = steps / order.batches_per_epoch
    if not is_of_the_paper:
        most_warmup = _MOST_WARMUP if config.from_model is None else _MOST_WARMUP_FROM
        chosen = {
            "model": {"dropout": next((rate for below, rate in _DROPOUT if epochs < below), _MOST_DROPOUT)},
            "train": {
                "optimizer": train.optimizer,
                "learning_rate": float(
                    f"{_share_of_rate(config) * _RATES[train.optimizer] * (128 / width) ** 0.5:.2g}"
                ),
                "weight_decay": _muon_decay(steps) if train.optimizer == "muon" else train.weight_decay,
                "warmup_steps": max(1, min(most_warmup, steps // _WARMUP_SHARE)),
                **dict.fromkeys(_INTERVALS, _interval(steps)),
                "planned": _left_open(values),
            },
            "decode": {
                "length_penalty": _LENGTH_PENALTY if decode.length_penalty_form == "gnmt" else decode.length_penalty
            },
        }
        config = completed(chosen)
    return Plan(config, order, steps, epochs, seconds_per_step)


def _interval(steps: int) -> int:
    return min(_MOST_STEPS_BETWEEN, max(_LEAST_STEPS_BETWEEN, steps // _VALIDATIONS))


def _optimizer(values: Mapping[str, Any]) -> str:
    return "adam" if values.get("train", {}).get("lora_rank") else "muon"


def _share_of_rate(config: Config) -> float:
    if config.from_model is None or config.train.lora_rank:
        return 1.0
    data = config.data
    return _SHARE_BESIDE_GENERAL_TEXT if data.general_source or data.general_pairs else _SHARE_OF_RATE


def _muon_decay(steps: int) -> float:
    return min(_MOST_DECAY, float(f"{_DECAY_OF_ONE_STEP / steps**0.5:.2g}"))


def _left_open(values: Mapping[str, Any]) -> list[str]:
    return [
        f"{section}.{name}"
        for section, names in _PLANNED.items()
        for name in names
        if name not in values.get(section, {})
    ]


def _seconds_per_step(
    config: Config,
    order: BatchOrder,
    data: Prepared,
    device: torch.device,
    num_workers: int,
    most: int = _TIMED_STEPS,
) -> float | None:
    """Time a few steps, or parts of them, of a model that is thrown away: what it learns would depend on the clock."""
    train, lengths = config.train.model_copy(update={"compile": False}), data.train.target_lengths
    most_tokens = min(train.micro_batch_tokens, _TIMED_TOKENS)
    try:
        model = Transformer(config.model).to(device)
        stepper = Stepper(model, build_optimizer(model, train), train)
        share, start = 0.0, 0.0
        for number in range(min(most, _TIMED_STEPS) + 1):
            rows = order.rows(number)
            part = split(rows, lengths, most_tokens)[0]
            batch = collate(data.train, part, pad_id=config.model.pad_id, bos_id=config.model.bos_id)
            stepper.step([batch], number=number + 1, rate=0.0)
            if number == 0:  # the first one also asks for memory
                start = time.monotonic()
                continue
            share += batch.num_target_tokens / int(lengths[rows].sum())
            if time.monotonic() - start > _TIMED_SECONDS:
                break
        return (time.monotonic() - start) / share / num_workers
    except torch.OutOfMemoryError:  # the training will say what can be done
        return None

"""Training plan: choose the settings left open, and estimate the run's length.

The evidence for the choices is in docs/recipes.md. The paper's presets are not changed.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.config import MOST_STEPS, Config, TrainConfig
from clearhead.config.nested import flat
from clearhead.config.presets import AUTOMATIC_PRESETS, TABLE3, choose_preset
from clearhead.data.batches import Batch, BatchOrder, collate, split
from clearhead.data.prepare import Prepared
from clearhead.data.store import PairStore
from clearhead.errors import ConfigError
from clearhead.training.distributed import Workers
from clearhead.training.intervals import intervals, validation_share
from clearhead.training.layers import Layers, changed, completed, step_limit
from clearhead.training.memory import require_memory, within_budget
from clearhead.training.optimizer import build_optimizer
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.training.progress import done_by
from clearhead.training.step import Stepper
from clearhead.training.steps import Steps, is_packed

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
_SHARE_OF_TRAINING = 0.95  # fraction of the time; the rest is for validations and checkpoints

_MOST_ON_GPU, _LEAST_STEPS_A_PASS, _LEAST_STEPS_ON_GPU = 25_000, 50, 1_500
"""Target tokens of a step on a GPU (paper section 5.1), which takes almost as long for few.

Fewer if a pass over the corpus would have fewer steps, or if so few steps fit into the time limit: learning rate and
warm-up were chosen in runs of at least 1,500 smaller steps, as a run without a limit has (30 passes).
"""

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
    compiling: float = 0.0
    """Seconds in which the training step was compiled, once for the timing and the run."""
    validation_share: str | None = None
    """Expected fraction of the run's work that is validation, in words, if it is limited; see `intervals`."""

    @property
    def seconds(self) -> float | None:
        """Expected seconds until the end of training, or None if the speed is unknown."""
        return None if self.seconds_per_step is None else run_seconds(self.steps, self.seconds_per_step)

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
        if self.validation_share is not None:
            lines[1] += f" ({self.validation_share})"
        if train.max_memory is not None and train.micro_batch_tokens < train.batch_tokens:
            lines[1] += f"; at most {train.micro_batch_tokens:,} target tokens are computed at once"
        if self.compiling:
            lines[1] += f"; compiled the training step in {self.compiling:.0f} s"
        if self.seconds is not None:
            lines[1] += f"; {done_by(self.seconds)}"
        return lines


def run_seconds(steps: int, seconds: float) -> float:
    """Return the expected seconds until the end of training, with validations and checkpoints.

    Args:
        steps: Optimiser steps.
        seconds: Seconds per step.
    """
    return steps * seconds / _SHARE_OF_TRAINING


def make_plan(
    layers: Layers,
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
        layers: Settings of the command, which are never overridden.
        data: Prepared pairs.
        device: Device for training.
        spent: Seconds of the time limit that have already passed.
        num_workers: Number of processes that will share every step. Only one is timed.
        own: The run's own parts.

    Raises:
        ConfigError: If the settings fit no preset, or the run does not fit into the memory.
    """
    largest = choose_preset(data.report["train"]["kept"])  # altered copies add no information
    names = list(AUTOMATIC_PRESETS)
    plan, problem, compiling = None, None, 0.0
    for preset in reversed([layers.preset] if layers.preset else names[: names.index(largest) + 1]):
        try:
            config = layers.config if layers.config.preset == preset else layers.with_preset(preset).config
            least_tokens = config.train.batch_tokens
            config = _with_first_choices(config, layers, data, device)
            order = data.order(config.train)
            config = within_budget(config, order, device, num_workers)
        except ConfigError as error:  # the user's settings may fit another preset
            problem = error
            continue
        train, seconds = config.train, None
        steps = step_limit(config, order.batches_per_epoch)
        if train.max_minutes is not None:
            seconds, compiled = seconds_per_step(config, order, data.train, device, num_workers, own)
            compiling += compiled
        if train.max_minutes is not None and seconds is not None:
            left = max(0.0, 60 * train.max_minutes - spent - compiling) * _SHARE_OF_TRAINING
            if (tokens := _tokens_in_time(least_tokens, train, left / seconds)) < train.batch_tokens:
                seconds *= tokens / train.batch_tokens  # at least
                config = changed(config, {"train.batch_tokens": tokens})
                train, order = config.train, data.order(config.train)
            steps = min(step_limit(config, order.batches_per_epoch), max(1, int(left / seconds)))
        plan = Plan(config, order, steps, steps / order.batches_per_epoch, seconds, compiling)
        if steps * train.batch_tokens >= _ENOUGH_TOKENS.get(preset, 0):
            break
    if plan is None:
        raise problem or ConfigError("there is no preset to choose from")
    chosen = layers.with_preset(str(plan.config.preset)).with_("plan", _planned(plan, layers, data, device))
    cut = {"micro_batch_tokens": plan.config.train.micro_batch_tokens}
    config = chosen.with_("fixed", {"model": data.tokenizer.model_settings, "train": cut}).config
    if not own.names:
        require_memory(config, plan.order, device, num_workers)
    seconds = plan.seconds_per_step
    if seconds is None:  # without a time limit only the chosen preset is timed
        most = max(1, plan.steps // _TIMED_SHARE)
        seconds, compiling = seconds_per_step(config, plan.order, data.train, device, num_workers, own, most)
    config = completed(config, plan.order.batches_per_epoch)
    share = validation_share(plan.steps, config, data, device)
    return replace(plan, config=config, seconds_per_step=seconds, compiling=compiling, validation_share=share)


def _with_first_choices(config: Config, layers: Layers, data: Prepared, device: torch.device) -> Config:
    """Return settings with what the plan chooses first, because the length of the run depends on it."""
    # Whether text is augmented was decided before the preset was chosen.
    chosen = {"data.augment": "augmented" in data.report}
    chosen |= optimizer_and_batch(config, data.train.target_lengths.sum(), device)
    chosen = {name: value for name, value in chosen.items() if name not in layers.above_plan}
    return changed(config, {**chosen, **flat({"model": data.tokenizer.model_settings})})


def optimizer_and_batch(config: Config, corpus: int, device: torch.device) -> dict[str, Any]:
    """Return the optimiser and the target tokens of a step that a plan chooses, by dotted name.

    Args:
        config: Settings with those of the preset.
        corpus: Target tokens of the training text.
        device: Device for training.
    """
    chosen: dict[str, Any] = {}
    if config.preset not in TABLE3:
        chosen["train.optimizer"] = "adam" if config.train.lora_rank else "muon"
        if device.type != "cpu":
            chosen["train.batch_tokens"] = _tokens_on_gpu(config.train.batch_tokens, corpus)
    return chosen


def _planned(plan: Plan, layers: Layers, data: Prepared, device: torch.device) -> dict[str, Any]:
    """Return all settings that a plan chooses, by dotted name; `train.planned` names those that the user left open."""
    config, train, decode, steps = plan.config, plan.config.train, plan.config.decode, plan.steps
    augment = {"data.augment": config.data.augment}
    if config.preset in TABLE3:
        return augment
    most_warmup = _MOST_WARMUP if config.from_model is None else _MOST_WARMUP_FROM
    rate = _share_of_rate(config) * _RATES[train.optimizer] * (128 / config.model.d_model) ** 0.5
    muon_decay = min(_MOST_DECAY, float(f"{_DECAY_OF_ONE_STEP / steps**0.5:.2g}"))
    planned = {
        **augment,
        "model.dropout": planned_dropout(plan.epochs),
        "train.optimizer": train.optimizer,
        "train.batch_tokens": train.batch_tokens,
        "train.learning_rate": float(f"{rate:.2g}"),
        "train.weight_decay": muon_decay if train.optimizer == "muon" else train.weight_decay,
        "train.warmup_steps": max(1, min(most_warmup, steps // _WARMUP_SHARE)),
        **intervals(steps, config, data, device),
        "decode.length_penalty": _LENGTH_PENALTY if decode.length_penalty_form == "gnmt" else decode.length_penalty,
    }
    return {**planned, "train.planned": [name for name in planned if name not in layers.above_plan]}


def planned_dropout(epochs: float) -> float:
    """Return the dropout that a plan chooses for so many passes over the corpus."""
    return next((rate for below, rate in _DROPOUT if epochs < below), _MOST_DROPOUT)


def _tokens_on_gpu(step: int, corpus: int) -> int:
    """Return the target tokens of a step on a GPU: at least those of the preset, and more while that is of use."""
    return max(step, min(_MOST_ON_GPU, corpus // _LEAST_STEPS_A_PASS))


def _tokens_in_time(least: int, train: TrainConfig, fitting: float) -> int:
    """Return the target tokens of a step, fewer than planned if too few steps fit into the time limit.

    Args:
        least: Target tokens of a step below which it is not made smaller.
        train: Settings of `[train]`.
        fitting: Number of steps that fit.
    """
    wanted = min(_LEAST_STEPS_ON_GPU, train.max_steps or MOST_STEPS)
    return min(train.batch_tokens, max(least, int(train.batch_tokens * fitting / wanted)))


def _share_of_rate(config: Config) -> float:
    if config.from_model is None or config.train.lora_rank:
        return 1.0
    data = config.data.by_use
    return _SHARE_BESIDE_GENERAL_TEXT if data.general_source or data.general_pairs else _SHARE_OF_RATE


def seconds_per_step(
    config: Config,
    order: BatchOrder,
    pairs: PairStore,
    device: torch.device,
    num_workers: int,
    own: OwnParts,
    most: int = _TIMED_STEPS,
    timed_tokens: int = _TIMED_TOKENS,
) -> tuple[float | None, float]:
    """Return the seconds per step, measured on a few steps or parts of them, and the seconds of compiling the step.

    Packed steps are timed whole and compiled, all others uncompiled and by parts. The run uses what was compiled,
    unless its steps become smaller. Without enough memory the first number is None. The timed model is discarded;
    otherwise what it learned would depend on the clock.

    Args:
        config: Complete settings.
        order: Assignment of pairs to steps.
        pairs: Training pairs.
        device: Device for training.
        num_workers: Number of processes that share every step. Only one is timed.
        own: The run's own parts.
        most: Maximum of timed steps.
        timed_tokens: Most target tokens of a part that is timed on a CPU.
    """
    workers = Workers()
    if num_workers > 1 or not is_packed(config, device, pairs, workers, own):
        config = changed(config, {"train.compile": False})
    # A GPU takes as long for a small part of a step as for a large one.
    most_tokens = config.train.micro_batch_tokens
    if device.type == "cpu":
        most_tokens = min(most_tokens, timed_tokens)
    begun = time.monotonic()
    try:
        model = own.make_model(config.model).to(device)
        optimizer = build_optimizer(model, config.train)
        updates: list[float] = []  # when the update of the weights begins and ends
        optimizer.register_step_pre_hook(lambda *_: updates.append(time.monotonic()))
        optimizer.register_step_post_hook(lambda *_: updates.append(time.monotonic()))
        steps = Steps(model, optimizer, config, pairs, order, workers, own, lambda _: None)
        seconds: list[float] = []
        start = last = compiling = 0.0
        for number in range(min(most, _TIMED_STEPS) + 1):
            share, update = 1.0, 0.0
            if isinstance(steps.stepper, Stepper):
                rows = order.rows(number)
                batch = _part(rows, config, pairs, most_tokens)
                share = batch.num_target_tokens / int(pairs.target_lengths[rows].sum())
                steps.stepper.step([batch], number=number + 1, rate=0.0)
                update = updates[-1] - updates[-2]  # a step has one, whatever the number of its parts
            else:
                steps.make(number + 1, rate=0.0)
            steps.results()  # waits for a GPU
            now = time.monotonic()
            if number == 0:  # the first step also allocates memory and compiles
                start = now
                compiling = now - begun if steps.form == "compiled" else 0.0
            else:
                seconds.append((now - last - update) / share + update)
            last = now
            if now - start > _TIMED_SECONDS:
                break
        # On a GPU more steps than the first load what they call.
        return statistics.median(seconds) / num_workers, compiling
    except torch.OutOfMemoryError:  # training itself will report what to do
        return None, 0.0


def _part(rows: NDArray[np.int64], config: Config, pairs: PairStore, most_tokens: int) -> Batch:
    """Return the first part of a padded step.

    Args:
        rows: Pairs of the step.
        config: Complete settings.
        pairs: Training pairs.
        most_tokens: Most target tokens of the part.
    """
    part = split(rows, pairs.target_lengths, most_tokens)[0]
    return collate(pairs, part, pad_id=config.model.pad_id, bos_id=config.model.bos_id)

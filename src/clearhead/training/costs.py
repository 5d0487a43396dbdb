"""What a run costs before it starts: memory, time, communication and money, on one device or on many.

Memory is counted (`memory.py`). Time is measured on a few parts of a step (`plan.py`), or follows from the peaks of a
machine. What follows for many devices is a model; `ASSUMPTIONS` says what it leaves out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from clearhead.config import Config
from clearhead.config.presets import PRESETS, TABLE3, choose_preset
from clearhead.data.batches import BatchOrder
from clearhead.data.store import PairStore, store_of_random
from clearhead.errors import ConfigError
from clearhead.model.weight_shapes import weight_shapes
from clearhead.runtime.device import resolve_device
from clearhead.runtime.memory import device_memory
from clearhead.training.layers import Layers, changed, step_limit
from clearhead.training.machine import INTERCONNECT, Machine
from clearhead.training.memory import StepMemory, StepSimulation, within_budget
from clearhead.training.own_parts import NO_OWN_PARTS
from clearhead.training.plan import optimizer_and_batch, planned_dropout, run_seconds, seconds_per_step
from clearhead.training.warm_start import with_model

MOST_GPUS = 1_024
"""Devices at the end of the simulated curve."""

ASSUMPTIONS = (
    "every sentence has {length} tokens on each side, and no time is lost to padding",
    "memory is what PyTorch allocates for a step of padded batches in {precision}; a process takes 0.4 to 1.2 GB more",
    "{time}; validations and checkpoints take a twentieth of the run",
    "a step always has {batch_tokens:,} target tokens; the devices share it, each with whole sentences",
    "each device sends {interconnect:.3g} bytes a second, after the computation and not during it",
    "DDP sends gradients twice a step (ring all-reduce); FSDP sends weights twice for each part, and gradients once",
    "with FSDP a device holds its shares, the embedding and one layer whole, and gradients whole between two parts",
    "all devices are equally fast, and none fails",
)
"""What the figures assume; in braces are values of `Costs`."""

_PASSES = 30
_TIMED_FLOPS, _LEAST_TIMED, _MOST_TIMED = 3e11, 256, 2_048
"""Operations of a part that is timed, and bounds of its target tokens: some seconds on two cores, twice."""

Method = Literal["DDP", "FSDP"]


@dataclass(frozen=True)
class Scale:
    """A run on a number of devices."""

    gpus: int
    seconds_per_step: float
    speedup: float
    """Times as fast as one device."""
    bytes_sent: float
    """Bytes that each device sends in a step."""
    memory: float
    """Bytes of memory of each device at the peak of a step."""
    hours: float
    """Hours until the end of training."""
    price: float | None
    """Price of the run; None without a price an hour."""


@dataclass(frozen=True)
class Costs:
    """What a run costs on one device, and by `on` what it costs on many."""

    config: Config
    """Settings of the run."""
    parameters: int
    flops: Mapping[str, float]
    """Floating-point operations of the `forward` and the `backward` pass for a target token and a source token."""
    length: int
    """Tokens of a sentence, on each side."""
    precision: str
    """Precision of matrix products where memory was counted, `bf16` or `fp32`."""
    memory: StepMemory
    gathered: int
    """Bytes of weights that FSDP gathers at once: all weights outside the layers, and the largest layer."""
    parts: float
    """Target tokens of a step divided by those of a micro-batch."""
    fitting_tokens: int | None
    """Most target tokens that fit into the memory at once; None if the device's memory is unknown."""
    compute_seconds: float
    """Seconds of a step on one device, without the update of the weights if that is known."""
    update_seconds: float
    """Seconds of the update of the weights; 0 if they are in `compute_seconds`."""
    steps: int
    """Optimiser steps of the run."""
    machine: Machine | None
    """The machine; None for this one, whose time was measured."""

    def on(self, gpus: int, method: Method) -> Scale:
        """Return the costs on a number of devices."""
        pairs, others = max(1, self.config.train.batch_tokens // self.length), (gpus - 1) / gpus
        sharing = gpus if method == "FSDP" else 1
        share = math.ceil(pairs / gpus) / pairs  # of the device with the most sentences
        parts = self.parts * share  # below 1 it has a smaller one
        weights, gradients = (self.memory.most[part] for part in ("weights", "gradients"))
        sent = others * (2 * gradients if method == "DDP" else 2 * math.ceil(parts) * weights + gradients)
        seconds = self.compute_seconds * share + self.update_seconds / sharing
        seconds += sent / self._interconnect
        hours = run_seconds(self.steps, seconds) / 3_600
        lasting, of_part = self.memory.lasting, max(0, self.memory.peak - self.memory.lasting)
        memory = lasting / sharing + of_part * min(1.0, parts)
        if method == "FSDP":
            memory += others * (self.gathered + (gradients if parts > 1 else self.gathered))
        price = None if self.machine is None or self.machine.price is None else self.machine.price * hours * gpus
        speedup = (self.compute_seconds + self.update_seconds) / seconds
        return Scale(gpus, seconds, speedup, sent, memory, hours, price)

    def curve(self, gpus: int) -> dict[Method, list[Scale]]:
        """Return the costs on 1, 2, 4, .. `MOST_GPUS` devices, and on `gpus` of them, for each way to share a step."""
        counts = sorted({gpus, *(2**power for power in range(MOST_GPUS.bit_length()))})
        methods: tuple[Method, ...] = ("DDP", "FSDP")
        return {method: [self.on(count, method) for count in counts] for method in methods}

    @property
    def assumptions(self) -> list[str]:
        """What the figures assume, as sentences."""
        time = "the time of a step was measured here on random text"
        if self.machine is not None:
            time = (
                f"matrix products run at {self.machine.utilisation:.0%} of their peak; the optimizer waits for memory"
            )
        values = {"time": time, "batch_tokens": self.config.train.batch_tokens, "interconnect": self._interconnect}
        return [text.format(length=self.length, precision=self.precision, **values) for text in ASSUMPTIONS]

    @property
    def _interconnect(self) -> float:
        return INTERCONNECT if self.machine is None else self.machine.interconnect

    def to_dict(self, gpus: int) -> dict[str, Any]:
        """Return all figures as plain values, for JSON."""
        model, train = self.config.model, self.config.train
        return {
            "preset": self.config.preset,
            "parameters": self.parameters,
            "vocab_size": model.vocab_size,
            "flops_per_token": dict(self.flops),
            "memory": {"peak": self.memory.peak, "at_peak": self.memory.at_peak, "most": self.memory.most},
            "most_tokens_at_once": self.fitting_tokens,
            "batch_tokens": train.batch_tokens,
            "optimizer": train.optimizer,
            "steps": self.steps,
            "gpus": gpus,
            "curve": {method: [asdict(scale) for scale in scales] for method, scales in self.curve(gpus).items()},
            "assumptions": self.assumptions,
        }


def expected_config(layers: Layers, device: str, *, length: int, num_pairs: int | None) -> tuple[Config, int]:
    """Return the settings that a run would have, as far as they do not depend on its text, and its steps.

    Args:
        layers: Settings of the user.
        device: Device for training.
        length: Target tokens of a pair.
        num_pairs: Pairs of the training text; None for more than enough.

    Raises:
        ConfigError: If the settings are wrong.
    """
    if layers.given.get("from_model"):
        layers, _ = with_model(layers, None)
    preset = layers.preset or choose_preset(num_pairs or 0)
    config = layers.with_preset(preset).config
    if not config.from_model:
        rows = config.tokenizer.vocab_size or PRESETS[preset]().vocab_size
        config = changed(config, {"model.vocab_size": rows})
    corpus = length * (num_pairs or 10**9)
    config = changed(config, _open(optimizer_and_batch(config, corpus, torch.device(device)), layers))
    an_epoch = max(1, corpus // config.train.batch_tokens)
    limit = changed(config, {"train.max_minutes": None})  # the steps in a time are not known yet
    steps = step_limit(limit, an_epoch)
    if preset not in TABLE3:
        passes = steps / an_epoch if num_pairs else _PASSES
        config = changed(config, _open({"model.dropout": planned_dropout(passes)}, layers))
    return config, steps


def _open(planned: dict[str, Any], layers: Layers) -> dict[str, Any]:
    return {name: value for name, value in planned.items() if name not in layers.above_plan}


def costs_of(
    config: Config,
    steps: int,
    *,
    parameters: int,
    flops: Mapping[str, float],
    length: int,
    machine: Machine | None,
) -> Costs:
    """Return what a run costs; without a machine, time a few parts of a step on this one.

    Args:
        config: Settings of the run, see `expected_config`.
        steps: Optimiser steps of the run.
        parameters: Weights of the model.
        flops: As in `Costs`.
        length: Tokens of a sentence, on each side.
        machine: The machine to train on; None for this one.

    Raises:
        ConfigError: If the run does not fit into the memory of this machine, or on its CPU into `train.max_memory`.
    """
    device = torch.device(resolve_device(config.device))
    limit, budget = device_memory(str(device)) if machine is None else machine.memory, config.train.max_memory
    if machine is None and device.type == "cpu":
        config, budget = within_budget(config, _random_step(config, length)[0], device, 1), None
    elif budget is not None:
        limit = min(budget, limit or budget)
    train, simulation = config.train, StepSimulation(config)
    fitting = None if limit is None else length * simulation.most_pairs(limit, length, length)
    at_once = max(length, min(train.batch_tokens, train.micro_batch_tokens))
    if budget is not None and fitting is not None:  # a run cuts its parts until they fit
        at_once = max(length, min(at_once, fitting))
    parts = max(1.0, train.batch_tokens / at_once)
    memory = simulation.memory(at_once // length, length, length, parts=math.ceil(parts))
    if machine is None:
        if limit is not None and memory.lasting > limit:
            raise ConfigError("this machine has not enough memory to time a step; describe another with --machine")
        compute, update = _measured(config, length, sum(flops.values()), device), 0.0
    else:
        compute = sum(flops.values()) * train.batch_tokens / (machine.flops * machine.utilisation)
        lasting = (memory.most[part] for part in ("weights", "optimizer"))
        update = (2 * sum(lasting) + memory.most["gradients"]) / machine.bandwidth  # read and written; read
    if train.max_steps is None and train.max_minutes is not None:
        steps = max(1, int(60 * train.max_minutes / run_seconds(1, compute + update)))
    return Costs(
        *(config, parameters, flops, length, simulation.precision, memory, _gathered(config), parts, fitting),
        *(compute, update, steps, machine),
    )


def _gathered(config: Config) -> int:
    """Return the bytes of the float32 weights outside the layers and of the largest layer; see `Workers.shard`."""
    sizes = Counter[str]()
    for name, shape in weight_shapes(config.model).items():
        layer = re.match(r"(en|de)coder\.layers\.\d+\.", name)
        sizes[layer[0] if layer else ""] += 4 * math.prod(shape)
    return sizes.pop("", 0) + max(sizes.values(), default=0)


def _measured(config: Config, length: int, flops_per_token: float, device: torch.device) -> float:
    """Return the seconds of a step on this machine, measured on a few parts of random text."""
    tokens = int(min(_MOST_TIMED, max(_LEAST_TIMED, _TIMED_FLOPS / flops_per_token)))
    order, pairs = _random_step(config, length)
    config = changed(config, {"train.compile": False})  # it takes minutes on a GPU
    seconds, _ = seconds_per_step(config, order, pairs, device, 1, NO_OWN_PARTS, timed_tokens=tokens)
    if seconds is None:
        raise ConfigError("this machine has not enough memory to time a step; describe another with --machine")
    return seconds


def _random_step(config: Config, length: int) -> tuple[BatchOrder, PairStore]:
    pairs = random_pairs(config, length)
    batch_tokens = config.train.batch_tokens
    return BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=batch_tokens, seed=1), pairs


def random_pairs(config: Config, length: int) -> PairStore:
    """Return pairs of random tokens for one step, all of one length."""
    count = max(1, config.train.batch_tokens // length)
    return store_of_random(count, length, ids=range(config.model.pad_id + 1, config.model.vocab_size))

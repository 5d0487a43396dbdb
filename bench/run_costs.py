"""Compare the memory and time that `clearhead plan` expects with those of real steps; docs/scaling.md has the results.

Each preset is measured in a process of its own, on one thread. Time is the processor's, so that other programs of the
machine do not count. Memory is what PyTorch allocates (its profiler), and beside it the growth of the process (RSS)
since everything was imported, in which the libraries' own memory counts too.

    python bench/run_costs.py
    python bench/run_costs.py --workers 2    sharded weights (train.shard): of the process with the most memory
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import torch
from torch.profiler import ProfilerActivity, profile

from clearhead.data.batches import Batch, BatchOrder
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import parameter_count, training_flops
from clearhead.training import plan
from clearhead.training.costs import Machine, costs_of, expected_config, random_pairs
from clearhead.training.distributed import Workers, is_one_of_several
from clearhead.training.layers import Layers
from clearhead.training.optimizer import build_optimizer
from clearhead.training.step import Stepper
from clearhead.training.steps import PaddedBatches

CASES = {"tiny": 1_024, "small": 4_096, "paper-base": 4_096}
"""Preset to the target tokens of a step."""
LENGTH, STEPS = 25, {"tiny": 8, "small": 4, "paper-base": 1}


def measure(preset: str, tokens: int) -> None:
    """Print what is expected and what is measured for a preset."""
    torch.set_num_threads(1)
    plan.time = SimpleNamespace(monotonic=time.process_time)
    layers = Layers().with_("file", {"preset": preset, "device": "cpu", "train": {"batch_tokens": tokens}})
    config, steps = expected_config(layers, "cpu", length=LENGTH, num_pairs=None)
    before = _rss()
    pairs = random_pairs(config, LENGTH)
    order = BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=tokens, seed=1)
    batches, _ = PaddedBatches(pairs, order, config, Workers()).of_step(0)
    model = Transformer(config.model)
    optimizer = build_optimizer(model, config.train)
    stepper = Stepper(model, optimizer, config.train)
    seconds = []
    for number in range(1, STEPS[preset] + 2):
        start = time.process_time()
        stepper.step(batches, number=number, rate=0.0)
        seconds.append(time.process_time() - start)
    grown = _rss() - before
    peak = peak_of_step(stepper, batches)
    del model, optimizer, stepper
    per_token = training_flops(config.model, batch_tokens=LENGTH, length=LENGTH, steps=1) / LENGTH
    costs = costs_of(
        config,
        steps,
        parameters=parameter_count(config.model),
        flops={"both": per_token},
        length=LENGTH,
        machine=None,
    )
    step = sorted(seconds[1:])[len(seconds[1:]) // 2]
    expected = costs.compute_seconds
    print(
        f"| {preset} | {tokens:,} | {costs.memory.peak / 1e6:,.0f} | {peak / 1e6:,.0f} | "
        f"{costs.memory.peak / peak - 1:+.1%} | {grown / 1e6:,.0f} | {expected:.2f} | {step:.2f} | "
        f"{expected / step - 1:+.0%} |",
        flush=True,
    )


def peak_of_step(stepper: Stepper, batches: list[Batch]) -> int:
    """Return the bytes of all tensors of this process at the peak of a step, weights and moments included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        stepper.step(batches, number=1, rate=0.0)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        taken += event.nbytes()
        peak = max(peak, taken)
    states = [tensor for state in stepper.optimizer.state.values() for tensor in state.values()]
    held = Workers(0).own_rows(dict(enumerate([*stepper.model.parameters(), *states])))
    return peak + sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def measure_sharded(preset: str, tokens: int) -> None:
    """Print the memory that is expected and measured with sharded weights, as one of several workers."""
    torch.set_num_threads(1)
    train = {"batch_tokens": tokens, "micro_batch_tokens": tokens // 4, "shard": True}
    layers = Layers().with_("file", {"preset": preset, "device": "cpu", "train": train})
    config, steps = expected_config(layers, "cpu", length=LENGTH, num_pairs=None)
    with Workers.met() as workers:
        workers.connect(torch.device("cpu"))
        before = _rss()
        pairs = random_pairs(config, LENGTH)
        order = BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=tokens, seed=1)
        batches, of_all = PaddedBatches(pairs, order, config, workers).of_step(0)
        model = Transformer(config.model)
        workers.shard(model, [*model.encoder.layers, *model.decoder.layers], methods=("encode", "states"))
        stepper = Stepper(model, build_optimizer(model, config.train), config.train, workers)
        for number in (1, 2):
            stepper.step(batches, number=number, rate=0.0, tokens=of_all)
        grown = _rss() - before
        peaks = [json.loads(text) for text in workers.gathered([json.dumps([peak_of_step(stepper, batches), grown])])]
        if workers.is_first:
            machine = Machine(flops=1e12, memory=1e12, bandwidth=1e12)
            counts = {"parameters": parameter_count(config.model), "flops": {"both": 1.0}}
            expected = (
                costs_of(config, steps, length=LENGTH, machine=machine, **counts).on(workers.count, "FSDP").memory
            )
            peak, grown = map(max, zip(*peaks, strict=True))
            print(
                f"| {preset} | {workers.count} | {tokens:,} | {expected / 1e6:,.0f} | {peak / 1e6:,.0f} | "
                f"{expected / peak - 1:+.1%} | {grown / 1e6:,.0f} |",
                flush=True,
            )


def start_workers(preset: str, count: int) -> None:
    """Measure a preset with sharded weights in so many processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    given = {"WORLD_SIZE": count, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    own = [{"RANK": rank, "LOCAL_RANK": rank, **given} for rank in range(count)]
    processes = [
        subprocess.Popen([sys.executable, __file__, preset], env={**os.environ, **{k: str(v) for k, v in one.items()}})
        for one in own
    ]
    if any([process.wait() for process in processes]):  # noqa: C419 (wait for all)
        raise SystemExit(1)


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", nargs="?", choices=CASES, help="measure it in this process")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the weights of a model")
    given = parser.parse_args()
    presets = [given.preset] if given.preset else [*CASES][: 3 if given.workers == 1 else 2]
    if is_one_of_several():
        measure_sharded(given.preset, CASES[given.preset])
    elif given.workers > 1:
        for preset in presets:
            start_workers(preset, given.workers)
    elif given.preset:
        measure(given.preset, CASES[given.preset])
    else:
        for preset in presets:
            subprocess.run([sys.executable, __file__, preset], check=True)

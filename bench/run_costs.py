"""Compare the memory and time that `clearhead plan` expects with those of real steps; docs/scaling.md has the results.

Each preset is measured in a process of its own, on one thread. Time is the processor's, so that other programs of the
machine do not count. Memory is what PyTorch allocates (its profiler), and beside it the growth of the process (RSS)
since everything was imported, in which the libraries' own memory counts too.

    python bench/run_costs.py
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from types import SimpleNamespace

import torch
from torch.profiler import ProfilerActivity, profile

from clearhead.data.batches import BatchOrder
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import parameter_count, training_flops
from clearhead.training import plan
from clearhead.training.costs import costs_of, expected_config, random_pairs
from clearhead.training.distributed import Workers
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
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        stepper.step(batches, number=1, rate=0.0)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    taken = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        taken += event.nbytes()
        peak = max(peak, taken)
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    peak += sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *states])
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


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", nargs="?", choices=CASES, help="measure it in this process")
    given = parser.parse_args()
    if given.preset:
        measure(given.preset, CASES[given.preset])
    else:
        for preset in CASES:
            subprocess.run([sys.executable, __file__, preset], check=True)

"""Time and memory of the layer types of Table 1, beside the exponents that the table states for their operations.

    python bench/layers.py                    # both, as tables
    python bench/layers.py -o layers.svg      # the same, drawn

`clearhead paper table1` counts the operations.
"""

from __future__ import annotations

import argparse
import time
import timeit
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from clearhead.inspection.plots import LinePlot, draw
from clearhead.paper.growth import LAYERS, Layer, one_thread
from clearhead.paper.parts import aligned, paragraph
from clearhead.paper.table1 import (
    EQUATION_1,
    FITTED,
    FUSED,
    LENGTH,
    LENGTHS,
    LSTM,
    RNN,
    STATED,
    STEPWISE,
    WIDTH,
    WIDTHS,
    Sweep,
    growth_panel,
    sweeps,
)

REPEATS = 5
NEAR = 0.3
"""Maximum distance from a stated exponent at which a measured one counts as near."""
MEMORY_SLOPES = {EQUATION_1: (2, 1), STEPWISE: (2, 1), FUSED: (1, 1), RNN: (1, 1)}
"""Limits of the memory exponents as n and as d grow: memory grows with n d, plus n^2 if the weights are stored."""


def seconds(layer: Layer, n: int, d: int, *, repeats: int) -> float:
    """Return the seconds of the shortest of several forward passes, the one least disturbed by other work."""
    x = torch.randn(1, n, d, generator=torch.Generator().manual_seed(n + d))
    apply = layer.build(d)
    with torch.no_grad():
        apply(x)
        return min(timeit.repeat(lambda: apply(x), timer=time.perf_counter, repeat=repeats, number=1))


def bytes_kept(layer: Layer, n: int, d: int) -> int:
    """Return the bytes that a forward pass keeps for the backward pass, not counting the weights."""
    x = torch.randn(1, n, d, generator=torch.Generator().manual_seed(n + d)).requires_grad_()
    apply = layer.build(d)
    not_counted = {tensor.untyped_storage().data_ptr() for tensor in apply.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in not_counted:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = apply(x)
    del y  # the tensors it keeps must live until here, or a new one might reuse an address
    return sum(kept.values())


def time_lines(times: Mapping[str, Sweep]) -> list[str]:
    """Return the times at increasing n and d, with their exponents, in a table each."""

    def rows(axis: int) -> list[list[str]]:
        return [
            [
                name,
                *(f"{1e3 * value:.3g}" for value in times[name].axes[axis]),
                str(layer.stated[axis]),
                f"{times[name].exponents[axis]:.1f}",
            ]
            for name, layer in LAYERS.items()
        ]

    return [
        *paragraph(
            f"""Time of one forward pass of one sequence on one thread of this machine, in milliseconds, the shortest of
            {REPEATS}; the exponents are fitted through the {FITTED} largest sizes:"""
        ),
        *aligned([f"d = {WIDTH}", *(f"n={n}" for n in LENGTHS), "n^ stated", "here"], rows(0)),
        "",
        *aligned([f"n = {LENGTH}", *(f"d={d}" for d in WIDTHS), "d^ stated", "here"], rows(1)),
        *paragraph(
            f"""Time does not depend on operations alone: at these sizes the overhead of calls, the softmax (n^2 for any
            d) and memory traffic may still matter, and time may jump when data no longer fits the processor's cache.
            {near_the_stated(times)}. A whole self-attention layer has operations of both kinds, n~d^2 (projections)
            and n^2~d. Equation 1 against nn.RNN at d = {WIDTH}: {overtaken(times)}. The recurrent layer computes its
            n steps one after another, so it has the overhead of a call n times, the other layers once."""
        ),
    ]


def near_the_stated(times: Mapping[str, Sweep]) -> str:
    """Return in words how many exponents are near those of the table."""
    distances = [
        abs(measured - stated)
        for name, layer in LAYERS.items()
        for measured, stated in zip(times[name].exponents, layer.stated, strict=True)
    ]
    near = sum(distance <= NEAR for distance in distances)
    return f"Here {near} of {len(distances)} exponents lie within {NEAR} of the stated ones"


def overtaken(times: Mapping[str, Sweep]) -> str:
    """Return in words at which lengths equation 1 was faster than a recurrent layer."""
    pairs = zip(LENGTHS, times[EQUATION_1].by_length, times[RNN].by_length, strict=True)
    faster = [n for n, ours, theirs in pairs if ours < theirs]
    where = f"faster at n = {', '.join(map(str, faster))}" if faster else "faster at none of these n"
    return f"{where}, while the counts cross at n = {WIDTH}"


def memory_lines(memory: Mapping[str, Sweep]) -> list[str]:
    """Return the memory at increasing n, with its exponents, as a table."""
    rows = [
        [name, *(f"{value / 1024:,.0f}" for value in sweep.by_length), *(f"{power:.2f}" for power in sweep.exponents)]
        for name, sweep in memory.items()
    ]
    return [
        *paragraph(
            f"""Memory: KiB that a forward pass keeps for the backward pass besides the weights, at
            d = {WIDTH} (counted). Table 1 does not list memory; equation 1 step by step
            holds the n x n weights, so n^2, while a fused kernel never does and grows with n alone:"""
        ),
        *aligned(["KiB", *(f"n={n}" for n in LENGTHS), "n^", "d^"], rows),
    ]


def figure(times: Mapping[str, Sweep], memory: Mapping[str, Sweep]) -> LinePlot:
    """Return plots of the points, with lines of the paper's slope through each series' last point."""
    milliseconds, kib = (
        {name: Sweep(*([value * unit for value in axis] for axis in sweep.axes)) for name, sweep in measured.items()}
        for measured, unit in ((times, 1e3), (memory, 1 / 1024))
    )
    panels = []
    for axis in (0, 1):
        panels.append(growth_panel(axis, "time, measured", "forward pass, milliseconds", milliseconds, STATED))
        panels.append(growth_panel(axis, "memory, counted", "kept for the backward pass, KiB", kib, MEMORY_SLOPES))
    return LinePlot(
        title="Layers of Table 1: growth, measured or counted (points), beside the stated slopes (dashed)",
        panels=panels,
        caption="Each dashed line passes through the last point. Of time it has the paper's exponent.\n"
        "Of memory, which Table 1 does not list, it has the exponent that growth goes towards: in n, 2 where the n x n "
        "weights are held and 1 where a fused kernel avoids that. One CPU thread, one sequence.",
    )


def main() -> None:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="SVG of both")
    options = parser.parse_args()
    with one_thread():
        times = sweeps(partial(seconds, repeats=REPEATS))
    memory = sweeps(bytes_kept)
    del memory[LSTM]  # oneDNN's LSTM keeps its own workspace, so its memory is not that of the layer
    print("\n".join([*time_lines(times), *memory_lines(memory)]))
    if options.output is not None:
        options.output.write_bytes(draw(figure(times, memory), "svg"))


if __name__ == "__main__":
    main()

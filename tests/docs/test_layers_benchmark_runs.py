"""bench/layers.py measures what it says, and runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from benchmarks import run_here

import layers
from clearhead.paper import table1
from clearhead.paper.growth import LAYERS
from clearhead.paper.table1 import CONVOLUTION, EQUATION_1, FUSED, LSTM, RNN, STEPWISE, Sweep
from layers import bytes_kept, seconds


def test_attention_step_by_step_keeps_the_weights_and_the_fused_kernel_does_not():
    def second_difference(name):
        small, middle, large = (bytes_kept(LAYERS[name], n, 8) for n in (50, 100, 150))
        return (large - middle) - (middle - small)

    assert second_difference(FUSED) == 0
    assert second_difference(RNN) == 0
    assert second_difference(CONVOLUTION) == 0
    # At least the weights of four heads in float32, n^2 of them: 2 * 50^2 is the second difference of n^2.
    assert second_difference(STEPWISE) >= 4 * 4 * 2 * 50**2
    assert second_difference(EQUATION_1) >= 4 * 2 * 50**2


def test_memory_counts_activations_once_and_weights_never():
    # The convolution keeps its input alone.
    assert bytes_kept(LAYERS[CONVOLUTION], 33, 12) == 4 * 33 * 12


def test_seconds_are_those_of_the_shortest_pass_after_one_that_warms_up(monkeypatch):
    passes = []

    class Apply(torch.nn.Module):
        def forward(self, x):
            passes.append(x.shape)
            clock[0] += durations[len(passes) - 1]
            return x

    clock, durations = [7.0], [0.25, 3.0, 1.5, 2.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    layer = replace(LAYERS[CONVOLUTION], build=lambda d: Apply())
    assert seconds(layer, 5, 3, repeats=3) == 1.5
    assert passes == [(1, 5, 3)] * 4


def test_near_the_stated_and_overtaken_say_what_the_times_are():
    times = {name: Sweep([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0] * 5) for name in LAYERS}
    # Exponents 1 and 0 everywhere: that is stated, of n, for the recurrent, convolutional and restricted layers.
    assert layers.near_the_stated(times) == "Here 4 of 14 exponents lie within 0.3 of the stated ones"
    times["self-attention, equation 1 alone"] = Sweep([1.0, 3.0] * 3, [1.0] * 5)
    times["recurrent (nn.RNN)"] = Sweep([2.0] * 6, [1.0] * 5)
    assert layers.overtaken(times).startswith("faster at n = 64, 256, 1024, while")
    times["recurrent (nn.RNN)"] = Sweep([0.5] * 6, [1.0] * 5)
    assert layers.overtaken(times).startswith("faster at none of these n")


@pytest.fixture
def small(monkeypatch):
    """Measure at sizes that take no time."""
    for name, sizes in {"LENGTHS": (8, 16, 32, 64), "WIDTHS": (8, 16, 32), "LENGTH": 16, "WIDTH": 8}.items():
        monkeypatch.setattr(table1, name, sizes)


@pytest.mark.usefixtures("small")
def test_layers_prints_and_draws_time_and_memory(tmp_path):
    printed = run_here("layers.py", "-o", str(tmp_path / "layers.svg"))
    assert [printed.count(f"  {name} ") for name in LAYERS] == [2 if name == LSTM else 3 for name in LAYERS]
    assert (tmp_path / "layers.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.usefixtures("small")
def test_memory_is_drawn_with_the_square_for_equation_1_and_a_line_for_the_fused_kernel():
    memory = table1.sweeps(bytes_kept)
    times, memory_of_length, *_ = layers.figure(memory, memory).panels
    assert times.y_label == "forward pass, milliseconds"
    drawn = {series.name: series for series in memory_of_length.series if series.name}
    assert {name.rpartition(": slope ")[0]: name[-1] for name in drawn} == {
        EQUATION_1: "2",
        STEPWISE: "2",
        FUSED: "1",
        RNN: "1",
    }
    for name in (EQUATION_1, FUSED):
        kept = [value / 1024 for value in memory[name].by_length]
        assert drawn[f"{name}: slope {2 if name == EQUATION_1 else 1}"].y == kept

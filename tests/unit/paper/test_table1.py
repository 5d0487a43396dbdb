"""Table 1: the printed one, the counted and measured ones beside it, and checks that can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearhead.paper import path_length
from clearhead.paper import table1 as module
from clearhead.paper.growth import LAYERS
from clearhead.paper.table1 import _Sweep, table1

PRINTED = """
  layer                        complexity  sequential  max. path
  ---------------------------  ----------  ----------  ----------
  Self-Attention               O(n^2 d)    O(1)        O(1)
  Recurrent                    O(n d^2)    O(n)        O(n)
  Convolutional                O(k n d^2)  O(1)        O(log_k n)
  Self-Attention (restricted)  O(r n d)    O(1)        O(n/r)
"""
STATED = {
    # The exponents of n and of d in these complexities.
    "self-attention, equation 1 alone": [2, 1],
    "self-attention layer, step by step": [2, 1],
    "self-attention layer, fused kernel": [2, 1],
    "recurrent (nn.RNN)": [1, 2],
    "recurrent (nn.LSTM)": [1, 2],
    "convolutional (k = 3)": [1, 2],
    "restricted self-attention (r = 31)": [1, 1],
}


def make_small(monkeypatch):
    """Measure at sizes that take no time."""
    monkeypatch.setattr(module, "_LENGTHS", (8, 16, 32, 64))
    monkeypatch.setattr(module, "_WIDTHS", (8, 16, 32))
    monkeypatch.setattr(module, "_LENGTH", 16)
    monkeypatch.setattr(module, "_WIDTH", 8)
    monkeypatch.setattr(module, "_COUNTED", (8, 12))
    monkeypatch.setattr(module, "_REPEATS", 1)


@pytest.fixture
def small(monkeypatch):
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def part():
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return table1()


def test_stated_counted_and_measured_stand_side_by_side(part):
    assert part.failures == []
    assert PRINTED in part.text
    assert list(part.data["layers"]) == list(STATED)
    for name, measured in part.data["layers"].items():
        assert measured["stated_exponents"] == STATED[name]
        assert all(value > 0 for value in (*measured["seconds"]["by_length"], *measured["seconds"]["by_width"]))
        assert part.text.count(f"  {name} ") >= 3
    json.dumps(part.data)


def test_exponents_of_operations_are_those_of_the_paper_where_there_is_one_term(part):
    layers = part.data["layers"]
    for name, stated in STATED.items():
        if "layer" not in name:  # whole self-attention layers have two terms
            assert layers[name]["flops"]["exponents"] == stated
    whole = layers["self-attention layer, step by step"]["flops"]["exponents"]
    assert 1 < whole[0] < 2
    assert 1 < whole[1] < 2


def test_separable_convolutions_are_counted_as_section_4_says(part):
    for name, by_hand in {
        "convolutional (k = 3)": lambda n: 2 * 3 * n * 8 * 8,
        "separable (k = 3)": lambda n: 2 * 3 * n * 8 + 2 * n * 8 * 8,
        "separable (k = n)": lambda n: 2 * n * n * 8 + 2 * n * 8 * 8,
        "equation 1, then one d x d matrix": lambda n: 4 * n * n * 8 + 2 * n * 8 * 8,
    }.items():
        (row,) = (line.split()[-4:] for line in part.text.splitlines() if line.startswith(f"  {name} ") and "," in line)
        assert row == [f"{by_hand(n):,}" for n in (8, 16, 32, 64)]


def test_points_and_stated_slopes_are_drawn_in_pairs(part):
    figure = part.figures["table1"]
    assert [panel.title for panel in figure.panels] == [
        *("time, measured: d = 8", "operations, by formula: d = 8", "memory, counted: d = 8"),
        *("time, measured: n = 16", "operations, by formula: n = 16", "memory, counted: n = 16"),
    ]
    for panel in figure.panels:
        points, guides = panel.series[::2], panel.series[1::2]
        assert len(points) == len(guides) == 4
        for measured, guide in zip(points, guides, strict=True):
            assert (measured.style, guide.style, guide.colour) == ("points", "dashed", measured.colour)
            assert guide.y[-1] == pytest.approx(measured.y[-1])
            power = int(measured.name[-1])
            assert guide.y[-1] / guide.y[0] == pytest.approx((guide.x[-1] / guide.x[0]) ** power)


def test_memory_is_drawn_with_the_square_for_equation_1_and_a_line_for_the_fused_kernel(part):
    drawn = {series.name: series for series in part.figures["table1"].panels[2].series if series.name}
    equation_1, fused = "self-attention, equation 1 alone", "self-attention layer, fused kernel"
    assert {name.rpartition(": slope ")[0]: name[-1] for name in drawn} == {
        equation_1: "2",
        "self-attention layer, step by step": "2",
        fused: "1",
        "recurrent (nn.RNN)": "1",
    }
    for name in (equation_1, fused):
        kept = part.data["layers"][name]["bytes_kept"]["by_length"]
        assert drawn[f"{name}: slope {2 if name == equation_1 else 1}"].y == [value / 1024 for value in kept]


@pytest.mark.usefixtures("small")
def test_the_recurrent_path_is_measured(part, monkeypatch):
    name = "recurrent: steps within its one layer"
    measured = [path for path in part.data["layers_to_connect"] if path["layer"] == name]
    assert measured == [{"layer": name, "lengths": [27, 81], "layers": [27, 81]}]
    monkeypatch.setattr(path_length, "_recurrent_cell", lambda: lambda x, state: 2 * x)
    with pytest.raises(ValueError, match="do not connect"):
        table1()


def test_the_prose_about_times_follows_the_figures():
    times = {name: _Sweep([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0] * 5) for name in LAYERS}
    # Exponents 1 and 0 everywhere: that is stated, of n, for the recurrent, convolutional and restricted layers.
    assert module._near_the_stated(times) == "Here 4 of 14 exponents lie within 0.3 of the stated ones"
    times["self-attention, equation 1 alone"] = _Sweep([1.0, 3.0] * 3, [1.0] * 5)
    times["recurrent (nn.RNN)"] = _Sweep([2.0] * 6, [1.0] * 5)
    assert module._overtaken(times).startswith("faster at n = 64, 256, 1024, while")
    times["recurrent (nn.RNN)"] = _Sweep([0.5] * 6, [1.0] * 5)
    assert module._overtaken(times).startswith("faster at none of these n")


@pytest.mark.usefixtures("small")
def test_a_wrong_formula_and_a_wrong_crossing_are_caught(monkeypatch):
    name = "self-attention, equation 1 alone"
    monkeypatch.setattr(
        module, "LAYERS", {**LAYERS, name: replace(LAYERS[name], flops=lambda n, d: 6 * n * n * d)}, raising=True
    )
    failures = " ".join(table1().failures)
    assert "the formulas are what PyTorch's counter counts: 24 of 28" in failures
    assert "cheaper than a recurrent layer while n < d: at d = 8 the counts meet at n = 6" in failures


@pytest.mark.usefixtures("small")
def test_a_convolution_that_does_not_cost_k_times_a_matrix_is_caught(monkeypatch):
    name = "convolutional (k = 3)"
    cheap = replace(LAYERS[name], flops=lambda n, d: 2 * n * d * d)  # without the factor k
    monkeypatch.setattr(module, "LAYERS", {**LAYERS, name: cheap})
    assert any(failure.startswith("a convolution needs k times") for failure in table1().failures)


@pytest.mark.usefixtures("small")
def test_a_layer_that_works_step_by_step_is_not_constant(monkeypatch):
    name = "convolutional (k = 3)"
    monkeypatch.setattr(
        module, "LAYERS", {**LAYERS, name: replace(LAYERS[name], build=LAYERS["recurrent (nn.RNN)"].build)}
    )
    assert any(f"sequential operations of {name}: O(1)" in failure for failure in table1().failures)

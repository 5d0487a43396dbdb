"""Table 1: the printed one, the counted one beside it, and checks that can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearhead.paper import path_length
from clearhead.paper import table1 as module
from clearhead.paper.growth import LAYERS
from clearhead.paper.table1 import table1

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
    """Count at sizes that take no time."""
    monkeypatch.setattr(module, "LENGTHS", (8, 16, 32, 64))
    monkeypatch.setattr(module, "WIDTHS", (8, 16, 32))
    monkeypatch.setattr(module, "LENGTH", 16)
    monkeypatch.setattr(module, "WIDTH", 8)
    monkeypatch.setattr(module, "_COUNTED", (8, 12))


@pytest.fixture
def small(monkeypatch):
    make_small(monkeypatch)


@pytest.fixture(scope="module")
def part():
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return table1()


def test_table1_has_stated_and_counted_exponents_of_every_layer(part):
    assert part.failures == []
    assert PRINTED in part.text
    assert list(part.data["layers"]) == list(STATED)
    for name, counted in part.data["layers"].items():
        assert counted["stated_exponents"] == STATED[name]
        assert all(value > 0 for value in (*counted["flops"]["by_length"], *counted["flops"]["by_width"]))
        assert f"  {name} " in part.text
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
        *("operations, by formula: d = 8", "operations, by formula: n = 16"),
    ]
    for panel in figure.panels:
        points, guides = panel.series[::2], panel.series[1::2]
        assert len(points) == len(guides) == 4
        for measured, guide in zip(points, guides, strict=True):
            assert (measured.style, guide.style, guide.colour) == ("points", "dashed", measured.colour)
            assert guide.y[-1] == pytest.approx(measured.y[-1])
            power = int(measured.name[-1])
            assert guide.y[-1] / guide.y[0] == pytest.approx((guide.x[-1] / guide.x[0]) ** power)


@pytest.mark.usefixtures("small")
def test_the_recurrent_path_is_measured(part, monkeypatch):
    name = "recurrent: steps within its one layer"
    measured = [path for path in part.data["layers_to_connect"] if path["layer"] == name]
    assert measured == [{"layer": name, "lengths": [27, 81], "layers": [27, 81]}]
    monkeypatch.setattr(path_length, "_recurrent_cell", lambda: lambda x, state: 2 * x)
    with pytest.raises(ValueError, match="do not connect"):
        table1()


def test_text_is_the_same_whenever_it_is_computed(part):
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        assert table1() == part


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

"""Table 1: the printed one, the counted and measured ones beside it, and checks that can fail."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearhead.paper import table1 as module
from clearhead.paper.growth import LAYERS
from clearhead.paper.table1 import PAPER_TABLE_1, table1


@pytest.fixture
def small(monkeypatch):
    """Measure at sizes that take no time."""
    monkeypatch.setattr(module, "_LENGTHS", (8, 16, 32, 64))
    monkeypatch.setattr(module, "_WIDTHS", (8, 16, 32))
    monkeypatch.setattr(module, "_LENGTH", 16)
    monkeypatch.setattr(module, "_WIDTH", 8)
    monkeypatch.setattr(module, "_COUNTED", (8, 12))
    monkeypatch.setattr(module, "_REPEATS", 1)


@pytest.mark.usefixtures("small")
def test_stated_counted_and_measured_stand_side_by_side():
    part = table1()
    assert part.failures == []
    for row in PAPER_TABLE_1:
        assert all(cell in part.text for cell in row)
    for name, layer in LAYERS.items():
        measured = part.data["layers"][name]
        assert measured["stated_exponents"] == list(layer.stated)
        assert all(value > 0 for value in (*measured["seconds"]["by_length"], *measured["seconds"]["by_width"]))
        assert part.text.count(f"  {name} ") >= 3
    json.dumps(part.data)


@pytest.mark.usefixtures("small")
def test_exponents_of_operations_are_those_of_the_paper_where_there_is_one_term():
    layers = table1().data["layers"]
    for name, layer in LAYERS.items():
        if "layer" not in name:  # whole self-attention layers have two terms
            assert layers[name]["flops"]["exponents"] == list(layer.stated)
    whole = layers["self-attention layer, step by step"]["flops"]["exponents"]
    assert 1 < whole[0] < 2
    assert 1 < whole[1] < 2


@pytest.mark.usefixtures("small")
def test_points_and_stated_slopes_are_drawn_in_pairs():
    figure = table1().figures["table1"]
    assert len(figure.panels) == 3
    for panel in figure.panels:
        points, guides = panel.series[::2], panel.series[1::2]
        assert len(points) == len(guides) == 4
        for measured, guide in zip(points, guides, strict=True):
            assert (measured.style, guide.style, guide.colour) == ("points", "dashed", measured.colour)
            assert guide.y[-1] == pytest.approx(measured.y[-1])
            power = int(measured.name[-1])
            assert guide.y[-1] / guide.y[0] == pytest.approx((guide.x[-1] / guide.x[0]) ** power)


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
def test_a_layer_that_works_step_by_step_is_not_constant(monkeypatch):
    name = "convolutional (k = 3)"
    monkeypatch.setattr(
        module, "LAYERS", {**LAYERS, name: replace(LAYERS[name], build=LAYERS["recurrent (nn.RNN)"].build)}
    )
    assert any(f"sequential operations of {name}: O(1)" in failure for failure in table1().failures)

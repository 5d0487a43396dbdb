"""Table 3: every row's weights by formula and by building it, and what the printed figures imply."""

from __future__ import annotations

import json

import pytest

from clearhead.paper import table3 as module
from clearhead.paper.counts import parameter_count
from clearhead.paper.table3 import PAPER_TABLE_3, built_parameters, implied_rows, table3
from clearhead.presets import TABLE3, table3_row

BY_HAND = {
    # Rows of the embedding that the printed figure implies, and the exact count with 37,000.
    "paper-base": (40_817, 63_045_632),
    "table3-b-dk-16": (40_969, 55_967_744),
    "table3-b-dk-32": (40_268, 58_327_040),
    "table3-c-2-layers": (41_600, 33_644_544),
    "table3-c-4-layers": (40_232, 48_345_088),
    "table3-c-8-layers": (41_402, 77_746_176),
    "table3-c-width-256": (41_623, 26_816_512),
    "table3-c-width-1024": (41_086, 163_815_424),
    "table3-c-ff-1024": (41_980, 50_450_432),
    "table3-c-ff-4096": (40_445, 88_236_032),
    "paper-big": (35_856, 214_171_648),
}


@pytest.fixture(scope="module")
def part():
    return table3()


def test_every_row_of_the_paper_has_a_preset():
    assert list(PAPER_TABLE_3) == list(TABLE3)
    assert [name for name, row in PAPER_TABLE_3.items() if row.millions is not None] == list(BY_HAND)


@pytest.mark.parametrize("vocab_size", [3, 1_009, 32_003, 37_000, 41_000])
@pytest.mark.parametrize("name", TABLE3)
def test_the_formula_is_the_sum_over_the_weights(name, vocab_size):
    assert parameter_count(table3_row(name, vocab_size=vocab_size)) == built_parameters(name, vocab_size)


@pytest.mark.parametrize("name", BY_HAND)
def test_counts_and_implied_rows_are_those_worked_out_by_hand(name):
    rows, count = BY_HAND[name]
    assert parameter_count(table3_row(name)) == count
    assert round(implied_rows(name)) == rows


def test_rows_without_a_figure_imply_nothing():
    assert implied_rows("table3-a-1-head") is None


def test_the_printed_figures_are_met_as_it_is_told(part):
    assert part.failures == []
    for row in part.data["rows"]:
        millions = row["printed"]["millions_of_parameters"]
        if millions is None:
            continue
        with_37, with_41 = (row["parameters"][size] / 1e6 for size in ("37000", "41000"))
        if row["preset"] == "paper-big":
            assert with_37 == pytest.approx(214.17, abs=5e-3)
            assert abs(with_41 - millions) > 5
        else:
            assert abs(with_41 - millions) <= 0.6
            assert abs(with_37 - millions) > 1
    json.dumps(part.data)


def test_the_text_shows_each_row_with_what_the_paper_prints(part):
    lines = {line.split()[0]: line for line in part.text.splitlines() if line.startswith("  ")}
    for name, row in PAPER_TABLE_3.items():
        assert row.label in lines[name]
        assert f"{row.perplexity:.2f}  {row.bleu:.1f}" in lines[name]
    assert lines["paper-base"].endswith("65     63.05     65.09   +0.09     40,817")


def test_a_model_with_other_weights_is_caught(monkeypatch):
    monkeypatch.setattr(module, "built_parameters", lambda name, vocab_size: 63_082_496)  # with attention biases
    assert any("the closed formula is the sum over the weights: 0 of 20" in failure for failure in table3().failures)


def test_the_figure_shows_every_printed_row(part):
    (panel,) = part.figures["table3"].panels
    stated, fitting = panel.series[:2]
    assert len(stated.x) == len(fitting.x) == len(BY_HAND)
    assert max(abs(value) for value in fitting.y[:-1]) <= 0.6 < abs(fitting.y[-1])

"""Table 3: every row's weights by formula and by building it, and what the printed figures imply."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearhead.config.presets import TABLE3, table3_row
from clearhead.paper import table3 as module
from clearhead.paper.counts import forward_flops, parameter_count
from clearhead.paper.table3 import built_parameters, implied_rows, table3
from every_run import slow

PRINTED = {
    # Perplexity and BLEU on newstest2013, parameters in millions.
    "paper-base": ("base", 4.92, 25.8, 65),
    "table3-a-1-head": ("(A) h 1, d_k = d_v 512", 5.29, 24.9, None),
    "table3-a-4-heads": ("(A) h 4, d_k = d_v 128", 5.00, 25.5, None),
    "table3-a-16-heads": ("(A) h 16, d_k = d_v 32", 4.91, 25.8, None),
    "table3-a-32-heads": ("(A) h 32, d_k = d_v 16", 5.01, 25.4, None),
    "table3-b-dk-16": ("(B) d_k 16", 5.16, 25.1, 58),
    "table3-b-dk-32": ("(B) d_k 32", 5.01, 25.4, 60),
    "table3-c-2-layers": ("(C) N 2", 6.11, 23.7, 36),
    "table3-c-4-layers": ("(C) N 4", 5.19, 25.3, 50),
    "table3-c-8-layers": ("(C) N 8", 4.88, 25.5, 80),
    "table3-c-width-256": ("(C) d_model 256, d_k = d_v 32", 5.75, 24.5, 28),
    "table3-c-width-1024": ("(C) d_model 1024, d_k = d_v 128", 4.66, 26.0, 168),
    "table3-c-ff-1024": ("(C) d_ff 1024", 5.12, 25.4, 53),
    "table3-c-ff-4096": ("(C) d_ff 4096", 4.75, 26.2, 90),
    "table3-d-dropout-0.0": ("(D) P_drop 0.0", 5.77, 24.6, None),
    "table3-d-dropout-0.2": ("(D) P_drop 0.2", 4.95, 25.5, None),
    "table3-d-smoothing-0.0": ("(D) eps_ls 0.0", 4.67, 25.3, None),
    "table3-d-smoothing-0.2": ("(D) eps_ls 0.2", 5.47, 25.7, None),
    "table3-e-learned": ("(E) learned positions", 4.92, 25.7, None),
    "paper-big": ("big", 4.33, 26.4, 213),
}
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
    assert list(TABLE3) == list(PRINTED)
    assert list(BY_HAND) == [name for name, (*_, millions) in PRINTED.items() if millions]


@pytest.mark.parametrize("vocab_size", [3, slow(1_009), slow(32_003), 37_000, slow(41_000)])
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


def test_table3_parameters_are_met_with_41_000_tokens_or_37_000_for_paper_big(part):
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
    for row, (name, (label, perplexity, bleu, millions)) in zip(part.data["rows"], PRINTED.items(), strict=True):
        figures = {"perplexity": perplexity, "bleu": bleu, "millions_of_parameters": millions}
        assert (row["preset"], row["row"], row["printed"]) == (name, label, figures)
        assert f"  {label:<31}  {perplexity:.2f}  {bleu:.1f}  {millions or '':>7}  " in lines[name]
    assert lines["paper-base"].endswith("65     63.05     65.09   +0.09     40,817")


def test_rows_a_keep_the_amount_of_computation():
    base = forward_flops(table3_row("paper-base"), 25, 31)
    assert {forward_flops(table3_row(name), 25, 31) for name in TABLE3 if name.startswith("table3-a")} == {base}


@pytest.mark.parametrize(
    ("row", "changes", "failing"),
    [
        ("table3-a-1-head", {"bleu": 25.0}, "6.2: one head is 0.9 BLEU worse"),
        ("table3-a-32-heads", {"bleu": 25.8}, "6.2: one head is 0.9 BLEU worse"),
        ("table3-b-dk-32", {"bleu": 25.0}, "6.2: the smaller d_k, the worse"),
        ("table3-b-dk-32", {"perplexity": 4.92}, "6.2: the smaller d_k, the worse"),
        ("table3-c-8-layers", {"perplexity": 4.93}, "6.2: bigger models"),
        ("table3-c-ff-1024", {"perplexity": 4.91}, "6.2: bigger models"),
        ("table3-d-dropout-0.0", {"bleu": 25.8}, "6.2: without dropout"),
        ("table3-d-smoothing-0.0", {"bleu": 25.9}, "5.4: label smoothing"),
        ("table3-e-learned", {"bleu": 25.6}, "3.5, 6.2: learned positions"),
    ],
)
def test_rows_that_do_not_bear_out_the_text_are_caught(monkeypatch, row, changes, failing):
    rows = module.PAPER_TABLE_3
    monkeypatch.setattr(module, "PAPER_TABLE_3", {**rows, row: replace(rows[row], **changes)})
    (failure,) = (f"{check.name}: {check.evidence}" for check in module._text_checks() if not check.holds)
    assert failure.startswith(failing)


def test_a_model_with_other_weights_is_caught(monkeypatch):
    monkeypatch.setattr(module, "built_parameters", lambda name, vocab_size: 63_082_496)  # with attention biases
    assert any("the closed formula is the sum over the weights: 0 of 20" in failure for failure in table3().failures)


def test_the_figure_shows_every_printed_row(part):
    (panel,) = part.figures["table3"].panels
    stated, fitting = panel.series[:2]
    assert len(stated.x) == len(fitting.x) == len(BY_HAND)
    assert max(abs(value) for value in fitting.y[:-1]) <= 0.6 < abs(fitting.y[-1])


def test_every_point_of_the_figure_has_the_name_of_its_row(part):
    (panel,) = part.figures["table3"].panels
    names = dict(zip(panel.x_ticks, panel.x_names, strict=True))
    for series in panel.series[:2]:
        assert [names[x] for x in series.x] == [
            *("(C) d_model 256: 28", "(C) N 2: 36", "(C) N 4: 50", "(C) d_ff 1024: 53", "(B) d_k 16: 58"),
            *("(B) d_k 32: 60", "base: 65", "(C) N 8: 80", "(C) d_ff 4096: 90", "(C) d_model 1024: 168", "big: 213"),
        ]
    assert panel.series[0].y[-1] == pytest.approx(1.17, abs=0.005)  # big: 214.17 counted, 213 printed

"""Table 2: the FLOPs column from hours and GPUs, and the operations of the same runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clearhead.paper import table2 as module
from clearhead.paper.parts import ModelPart
from clearhead.paper.table2 import PAPER_RUNS, table2

PRINTED = """
  model                       BLEU EN-DE  EN-FR  FLOPs EN-DE   EN-FR
  --------------------------  ----------  -----  -----------  ------
  ByteNet                          23.75
  Deep-Att + PosUnk                        39.2               1.0e20
  GNMT + RL                         24.6  39.92       2.3e19  1.4e20
  ConvS2S                          25.16  40.46       9.6e18  1.5e20
  MoE                              26.03  40.56       2.0e19  1.2e20
  Deep-Att + PosUnk Ensemble               40.4               8.0e20
  GNMT + RL Ensemble               26.30  41.16       1.8e20  1.1e21
  ConvS2S Ensemble                 26.36  41.29       7.7e19  1.2e21
  Transformer (base model)          27.3   38.1       3.3e18  3.3e18
  Transformer (big)                 28.4   41.8       2.3e19  2.3e19
"""


@pytest.fixture(scope="module")
def part() -> ModelPart:
    return table2()


def test_the_flops_column_is_gpu_time_times_assumed_speed(part):
    assert part.failures == []
    base, big = part.data["runs"]
    assert base["gpu_time_flops"] == pytest.approx(12 * 3600 * 8 * 9.5e12)
    assert base["gpu_time_flops"] == pytest.approx(3.283e18, rel=1e-3)
    assert big["gpu_time_flops"] == pytest.approx(2.298e19, rel=1e-3)
    json.dumps(part.data)


def test_counted_operations_are_six_for_each_weight_and_token_and_a_little_for_attention(part):
    for run, config in zip(part.data["runs"], (run.config for run in PAPER_RUNS), strict=True):
        steps = {"base": 100_000, "big": 300_000}[run["name"]]
        d, d_ff = config.d_model, config.d_ff
        encoder = 6 * (4 * d * d + 2 * d * d_ff)
        # Keys and values of the memory are computed at source tokens; there are as many of these as target tokens.
        decoder = 6 * (8 * d * d + 2 * d * d_ff) + d * config.vocab_size
        by_hand = 6 * 25_000 * steps * (encoder + decoder)
        for length, found in run["counted_flops"].items():
            assert by_hand < found < by_hand * (1 + int(length) / 1_000)
            assert run["utilisation"][length] == pytest.approx(found / run["gpu_time_flops"], abs=1e-4)


def test_every_printed_row_and_both_notes_are_shown(part):
    assert PRINTED in part.text
    figures = ("bleu_ende", "bleu_enfr", "flops_ende", "flops_enfr")
    assert [part.data["printed"][2][key] for key in figures] == ["24.6", "39.92", "2.3e19", "1.4e20"]
    text = " ".join(part.text.split())
    for words in ("get_ende_bleu.sh", "score is 41.8", "version has 41.0", "sacreBLEU of the same output is usually"):
        assert words in text


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"hours": 13.0}, "hours x GPUs x speed is the printed figure"),
        ({"seconds_per_step": 0.5}, "steps x seconds a step"),
        ({"seconds_per_step": 0.3}, "steps x seconds a step"),
    ],
)
def test_figures_that_do_not_fit_are_caught(monkeypatch, changes, failing):
    monkeypatch.setattr(module, "PAPER_RUNS", (replace(PAPER_RUNS[0], **changes), PAPER_RUNS[1]))
    assert any(failure.startswith(f"base: {failing}") for failure in table2().failures)


@pytest.mark.parametrize(
    ("row", "column", "figure", "failing"),
    [
        ("ConvS2S Ensemble", 1, "26.40", "6.1: EN-DE, big is more than 2.0 BLEU"),  # 28.4 - 26.4 = 2.0
        ("ConvS2S", 3, "6.0e18", "6.1: EN-DE, base is above them, too"),  # more than half of it
        ("MoE", 4, "9.0e19", "6.1: EN-FR, 41.0"),  # 2.3e19 / 9.0e19 = 26 %
        ("MoE", 2, "41.0", "6.1: EN-FR, 41.0"),
    ],
)
def test_a_table_that_does_not_bear_out_the_text_is_caught(monkeypatch, row, column, figure, failing):
    changed = [[*one] for one in module.PAPER_TABLE_2]
    next(one for one in changed if one[0] == row)[column] = figure
    monkeypatch.setattr(module, "PAPER_TABLE_2", tuple(map(tuple, changed)))
    (failure,) = table2().failures
    assert failure.startswith(failing)


def test_a_wrong_formula_is_caught(monkeypatch):
    monkeypatch.setattr(module, "forward_flops", lambda config, source, target: 6 * source * target)
    assert len(table2().failures) == 2

"""The learning-rate figure: peaks, equation 3, and what is drawn."""

from __future__ import annotations

import json

import pytest

from clearhead.paper import schedule as module
from clearhead.paper.schedule import CURVES, equation_3, schedule


def test_the_peaks_are_those_of_the_paper():
    part = schedule()
    assert part.failures == []
    peaks = {curve["name"]: (curve["peak"], curve["peak_step"]) for curve in part.data["curves"]}
    assert peaks["base"] == (pytest.approx(6.988e-4, abs=5e-8), 4_000)
    assert peaks["big"] == (pytest.approx(4.941e-4, abs=5e-8), 4_000)
    assert peaks["base, twice the warm-up"][1] == 8_000
    assert "6.988e-04" in part.text
    assert "4.941e-04" in part.text
    json.dumps(part.data)


def test_equation_3_in_words_climbs_then_falls():
    rate = equation_3(4_000, 512, 4_000)
    assert equation_3(2_000, 512, 4_000) == pytest.approx(rate / 2)
    assert equation_3(16_000, 512, 4_000) == pytest.approx(rate / 2)
    assert rate == pytest.approx((512 * 4_000) ** -0.5)


def test_another_curve_is_caught(monkeypatch):
    noam_rate = module.noam_rate
    monkeypatch.setattr(module, "noam_rate", lambda step, **options: noam_rate(step, **options) * (1 + 1e-9 * step))
    failures = schedule().failures
    assert len(failures) >= len(CURVES)
    assert failures[0].startswith("equation 3, d_model 512, warm-up 4,000: largest relative difference")


def test_every_curve_is_drawn_from_the_first_step_on():
    panels = schedule().figures["schedule"].panels
    assert [(panel.x_scale, panel.y_scale) for panel in panels] == [("linear", "linear"), ("log", "log")]
    for panel in panels:
        assert len(panel.series) == len(CURVES)
        for series, curve in zip(panel.series, CURVES, strict=True):
            assert series.x[0] == 1
            assert series.x[series.y.index(max(series.y))] == curve.warmup_steps

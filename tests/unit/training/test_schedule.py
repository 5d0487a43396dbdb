"""The learning rate against equation 3, and the ends of the other schedules."""

from __future__ import annotations

import itertools
import math

import pytest

from clearhead.config import TrainConfig
from clearhead.training.schedule import learning_rate, noam_rate, peak_rate

STEPS = [1, 2, 3, 17, 399, 400, 1000, 3999, 4000, 4001, 10_007, 100_000, 300_000]


def rates(config: TrainConfig, steps: int, d_model: int = 128) -> list[float]:
    return [learning_rate(n + 1, config, d_model=d_model, progress=n / steps) for n in range(steps)]


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (1024, 4000), (26, 17)])
def test_noam_is_the_printed_formula(d_model, warmup):
    config = TrainConfig(warmup_steps=warmup)
    for step in STEPS:
        expected = 1 / math.sqrt(d_model) * min(1 / math.sqrt(step), step / (warmup * math.sqrt(warmup)))
        assert noam_rate(step, d_model=d_model, warmup_steps=warmup) == pytest.approx(expected, rel=1e-12)
        assert learning_rate(step, config, d_model=d_model, progress=0.5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.988e-4), (1024, 4.941e-4)])
def test_paper_models_peak_where_the_paper_says(d_model, peak):
    config = TrainConfig()
    around = {step: learning_rate(step, config, d_model=d_model, progress=0.0) for step in range(3900, 4101)}
    assert max(around, key=around.__getitem__) == 4000
    assert around[4000] == pytest.approx(peak, rel=1e-4)
    assert peak_rate(config, d_model=d_model) == pytest.approx(peak, rel=1e-4)


@pytest.mark.parametrize("schedule", ["noam", "linear", "cosine", "constant"])
def test_a_learning_rate_scales_the_whole_curve(schedule):
    def curve(rate):
        return rates(TrainConfig(learning_rate=rate, warmup_steps=17, schedule=schedule, max_steps=101), 101)

    assert curve(6e-3) == pytest.approx([3 * rate for rate in curve(2e-3)], rel=1e-12)


def test_noam_with_a_rate_peaks_at_it():
    config = TrainConfig(learning_rate=2e-3, warmup_steps=17)
    assert max(rates(config, 101)) == pytest.approx(learning_rate(17, config, d_model=128, progress=0.2)) == 2e-3


@pytest.mark.parametrize(("schedule", "after_a_quarter"), [("linear", 0.75e-3), ("cosine", 0.853553e-3)])
def test_decaying_schedules_end_at_zero(schedule, after_a_quarter):
    config = TrainConfig(learning_rate=1e-3, warmup_steps=5, schedule=schedule, max_steps=101)

    def at(progress):
        return learning_rate(90, config, d_model=128, progress=progress)

    assert at(0.0) == pytest.approx(1e-3)
    assert at(0.25) == pytest.approx(after_a_quarter)
    assert at(0.5) == pytest.approx(0.5e-3)
    assert at(1.0) == pytest.approx(0.0, abs=1e-18)


@pytest.mark.parametrize("schedule", ["noam", "linear", "cosine", "constant"])
def test_rates_climb_while_warming_up_and_never_again(schedule):
    # With max_steps far away the climb is not yet bent by the decay.
    curve = rates(TrainConfig(learning_rate=1e-3, warmup_steps=7, schedule=schedule, max_steps=997), 997)
    assert all(before < after for before, after in itertools.pairwise(curve[:7]))
    assert all(before >= after > 0 for before, after in itertools.pairwise(curve[6:]))
    assert curve[0] == pytest.approx(1e-3 / 7, rel=0.01)


@pytest.mark.parametrize("step", [0, -3])
def test_noam_rate_rejects_steps_below_1(step):
    with pytest.raises(ValueError, match=f"step \\({step}\\) must be at least 1"):
        noam_rate(step, d_model=512, warmup_steps=4000)

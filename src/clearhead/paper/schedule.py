"""The part "schedule": learning rate over training steps (paper section 5.3, equation 3)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from clearhead.config import TrainConfig
from clearhead.inspection.plots import LinePlot, Panel, Series, Style
from clearhead.paper.parts import Check, ModelPart, aligned, magnitude, paragraph, part_text
from clearhead.paper.places import EQUATIONS
from clearhead.training.schedule import learning_rate, noam_rate

_LAST_STEP = 40_000
_TOLERANCE = 1e-12
"""Maximum relative difference; float64 has 16 digits, and powers lose a few of them."""


@dataclass(frozen=True)
class Curve:
    """A learning-rate curve: one choice of the two constants in equation 3."""

    name: str
    d_model: int
    warmup_steps: int

    def rate(self, step: int) -> float:
        """Return the learning rate at a step, counted from 1, as training computes it."""
        return noam_rate(step, d_model=self.d_model, warmup_steps=self.warmup_steps)


CURVES = (
    Curve("base", 512, 4_000),
    Curve("base, twice the warm-up", 512, 8_000),
    Curve("half the width", 256, 4_000),
    Curve("big", 1024, 4_000),
)

PAPER_PEAKS = {"base": 6.988e-4, "big": 4.941e-4}
"""Equation 3 at step 4,000, calculated by hand from section 5.3: (512 * 4000)^-0.5 and (1024 * 4000)^-0.5."""


def equation_3(step: int, d_model: int, warmup_steps: int) -> float:
    """Return the learning rate as described in the words of section 5.3, without using `training.schedule`.

    Up to `warmup_steps` it grows linearly; then it falls with the inverse square root of the step.
    """
    peak = 1.0 / (d_model * warmup_steps) ** 0.5
    return peak * step / warmup_steps if step <= warmup_steps else peak * (warmup_steps / step) ** 0.5


def schedule() -> ModelPart:
    """Return the learning-rate figure: curves, their peaks, and a check of equation 3 at every plotted step."""
    steps = sorted({1, 2, *range(100, _LAST_STEP + 1, 100), *(curve.warmup_steps for curve in CURVES)})
    rates = {curve: [curve.rate(step) for step in steps] for curve in CURVES}
    checks = [_follows_equation_3(curve, steps, rates[curve]) for curve in CURVES]
    peaks = {curve.name: max(rates[curve]) for curve in CURVES}
    peak_steps = {curve.name: steps[rates[curve].index(peaks[curve.name])] for curve in CURVES}
    checks += [
        Check(
            f"peak of {name}",
            f"{peaks[name]:.3e}" == f"{peak:.3e}",
            f"{peaks[name]:.3e} at step 4,000; by hand {peak:.3e}",
        )
        for name, peak in PAPER_PEAKS.items()
    ]
    table = aligned(
        ["curve", "d_model", "warm-up", "at step 1", "peak", "at step", "at 40,000", "at 100,000", "at 300,000"],
        [
            [
                curve.name,
                f"{curve.d_model:,}",
                f"{curve.warmup_steps:,}",
                f"{rates[curve][0]:.3e}",
                f"{peaks[curve.name]:.3e}",
                f"{peak_steps[curve.name]:,}",
                *(f"{curve.rate(step):.3e}" for step in (40_000, 100_000, 300_000)),
            ]
            for curve in CURVES
        ],
    )
    equation = EQUATIONS["learning_rate"]
    lines = [
        f"{equation['formula']}     clearhead.{equation['code']}",
        "",
        *table,
        *paragraph(
            "Both terms meet at step = warmup_steps, so the peak is (d_model * warmup_steps)^-0.5: four times the "
            "width or four times the warm-up halves it. Base trains for 100,000 steps, big for 300,000 (section 5.2)."
        ),
    ]
    return ModelPart(
        title="Equation 3: the learning rate",
        text=part_text(lines, checks),
        figures={"schedule": _figure(steps, rates)},
        data={
            "curves": [
                {**asdict(curve), "peak": peaks[curve.name], "peak_step": peak_steps[curve.name]} for curve in CURVES
            ]
        },
        checks=tuple(checks),
    )


def _follows_equation_3(curve: Curve, steps: list[int], rates: list[float]) -> Check:
    """Compare both functions of `training.schedule` with equation 3 at every step."""
    config = TrainConfig(warmup_steps=curve.warmup_steps)
    worst = 0.0
    for step, rate in zip(steps, rates, strict=True):
        expected = equation_3(step, curve.d_model, curve.warmup_steps)
        used = learning_rate(step, config, d_model=curve.d_model, progress=0.0)  # what a training run uses
        worst = max(worst, abs(rate - expected) / expected, abs(used - expected) / expected)
    return Check(
        f"equation 3, d_model {curve.d_model}, warm-up {curve.warmup_steps:,}",
        worst < _TOLERANCE,
        f"largest relative difference over {len(steps)} steps {magnitude(worst)}",
    )


def _figure(steps: list[int], rates: dict[Curve, list[float]]) -> LinePlot:
    """Return the curves on linear axes, and on logarithmic ones, where each half of a curve is a straight line."""
    styles: tuple[Style, ...] = ("solid", "dashed", "solid", "solid")  # the second follows the first after its warm-up
    series = [
        Series(f"{curve.name} ({curve.d_model}; {curve.warmup_steps:,})", steps, rates[curve], style)
        for curve, style in zip(CURVES, styles, strict=True)
    ]
    labels = ("optimiser step", "learning rate")
    unnamed = [replace(curve, name="") for curve in series]
    return LinePlot(
        title="Learning rate: d_model$^{-0.5}$ · min(step$^{-0.5}$, step · warmup$^{-1.5}$) (equation 3)",
        panels=[
            Panel("linear axes", *labels, unnamed),
            Panel("logarithmic axes: slope 1, then slope −1/2", *labels, series, x_scale="log", y_scale="log"),
        ],
        caption="In brackets: d_model; warm-up steps. A curve rises in its warm-up, then falls.",
    )

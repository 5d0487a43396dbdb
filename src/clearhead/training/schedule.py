"""Learning-rate schedules: the paper's (section 5.3, equation 3), linear, cosine and constant."""

from __future__ import annotations

import math

from clearhead.config import TrainConfig


def noam_rate(step: int, *, d_model: int, warmup_steps: int) -> float:
    """Return d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    Args:
        step: Optimiser steps, counted from 1; not batches, not epochs.
        d_model: Model width; a wider model peaks lower.
        warmup_steps: Optimiser steps until the peak (paper: 4000).

    Raises:
        ValueError: If `step` is below 1, where the formula has no value.

    >>> round(noam_rate(4000, d_model=512, warmup_steps=4000), 6)
    0.000699
    """
    if step < 1:
        raise ValueError(f"step ({step}) must be at least 1")
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def peak_rate(config: TrainConfig, *, d_model: int) -> float:
    """Return the peak learning rate of the run: the configured one, or the peak of equation 3."""
    if config.learning_rate is not None:
        return config.learning_rate
    return noam_rate(config.warmup_steps, d_model=d_model, warmup_steps=config.warmup_steps)


def learning_rate(step: int, config: TrainConfig, *, d_model: int, progress: float) -> float:
    """Return the learning rate of a step: linear warm-up to the peak, then the decay of `config.schedule`.

    With the schedule `noam` and no `learning_rate` this is equation 3 exactly. A `learning_rate` scales the curve to
    that peak.

    Args:
        step: Optimiser steps, counted from 1.
        config: Training settings with schedule, peak rate and warm-up steps.
        d_model: Model width.
        progress: Fraction of the training completed before this step, 0 to 1; `linear` and `cosine` decay with it.
    """
    peak = peak_rate(config, d_model=d_model)
    warmup = config.warmup_steps
    climb = min(1.0, step / warmup)
    match config.schedule:
        case "noam":
            natural_peak = noam_rate(warmup, d_model=d_model, warmup_steps=warmup)
            return peak * noam_rate(step, d_model=d_model, warmup_steps=warmup) / natural_peak
        case "linear":
            return peak * climb * (1.0 - progress)
        case "cosine":
            return peak * climb * 0.5 * (1.0 + math.cos(math.pi * progress))
        case "constant":
            return peak * climb

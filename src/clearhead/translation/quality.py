"""Quality estimate of a translation: how sure the model itself is, as a number from 0 to 1.

It is the share of translations with a chrF of at least 50 against a human translation, among those of which a model is
as sure. Being sure is the log-probability per character, less what the translation is shorter than usual.
`bench/quality.py` fits the constants and prints how well they do; docs/translation.md has its table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TypeGuard

import numpy as np

from clearhead.bundle import Bundle
from clearhead.bundle.side_files import QUALITY_FILE
from clearhead.errors import ModelError
from clearhead.files import os_error_as, write_json
from clearhead.text.line_statistics import LineStatistics, length_ratio

GOOD_CHRF = 50.0
"""chrF of a sentence, in percent, from which on its translation counts as good."""

SMOOTHING = 0.2
"""Nats per character added before the logarithm: below it, differences of the score say little about quality.

From 0.1 to 0.4 the correlations differ by 0.02.
"""

SHORTFALL_WEIGHT = 0.4
"""Weight of the logarithm of what a translation is too short by. From 0.3 to 0.6 the correlations differ by 0.02."""

_STEPS = 2_000
_LEAST_SLOPE = 0.1
"""Least slope of a calibration, so that it keeps the order."""
_MOST = 700.0
"""Beyond it, `exp` overflows."""
_MOST_STORED = 1e6
"""Most that a slope or offset in quality.json may be; those of real models are below 100."""


class Calibration(NamedTuple):
    """What turns the sureness of a model into a quality: `1 / (1 + exp(-slope * sureness - offset))`."""

    slope: float = 6.5
    offset: float = -5.9

    @classmethod
    def fitted(cls, sure: Sequence[float], chrfs: Sequence[float]) -> Self:
        """Return the most probable calibration for some translations (logistic regression).

        The default is the prior, which a few dozen translations outweigh; so few, or only good ones, give a result too.

        Args:
            sure: The `sureness` of each.
            chrfs: The chrF of each, in percent.
        """
        inputs = np.array([(sureness, 1.0) for sureness in sure]).reshape(-1, 2)
        is_good = np.array(chrfs) >= GOOD_CHRF
        parameters = default = np.array(cls())
        # Steps by a bound on the curvature always improve the fit; those of Newton's method may diverge.
        step = np.linalg.inv(inputs.T @ inputs / 4 + np.eye(2))
        for _ in range(_STEPS):
            rates = 1 / (1 + np.exp(-np.clip(inputs @ parameters, -_MOST, _MOST)))
            before, parameters = parameters, parameters + step @ (inputs.T @ (is_good - rates) - (parameters - default))
            if (parameters == before).all():
                break
        return cls(max(float(parameters[0]), _LEAST_SLOPE), float(parameters[1]))

    def quality(self, sure: float) -> float:
        """Return the quality for a `sureness`."""
        return _logistic(self.slope * sure + self.offset)


class QualityEstimator:
    """Estimates the quality of a model's translations.

    Args:
        calibration: The model's own calibration, or the default.
        trained: Statistics of its training lines, for the usual length ratio; None if unknown.
    """

    def __init__(self, calibration: Calibration, trained: LineStatistics | None) -> None:
        self._calibration = calibration
        self._usual_ratio = 1.0 if trained is None else math.sqrt(trained.least_ratio * trained.most_ratio)

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        """Return the estimator of a model.

        Raises:
            ModelError: If its quality.json is damaged.
        """
        return cls(calibration_of(bundle) or Calibration(), bundle.line_statistics)

    def sureness(self, source: str, text: str, score: float) -> float:
        """Return how sure a model is of a translation; it has no unit, and 1.6 is the most.

        Args:
            source: The source.
            text: The translation.
            score: Log-probability of the translation, in nats.
        """
        shortfall = math.log(length_ratio(source, text) / self._usual_ratio)
        return -math.log(SMOOTHING - score / (len(text) + 1)) + SHORTFALL_WEIGHT * min(shortfall, 0.0)

    def __call__(self, source: str, text: str, score: float) -> float:
        """Return the quality of a translation, from 0 to 1; for the arguments see `sureness`."""
        return self._calibration.quality(self.sureness(source, text, score))


def calibration_of(bundle: Bundle) -> Calibration | None:
    """Return a model's own calibration; None if it has none.

    Raises:
        ModelError: If its quality.json is damaged.
    """
    values = bundle.side_file(QUALITY_FILE)
    if values is None:
        return None
    slope, offset = (values.get(name) for name in Calibration._fields)
    if not (_is_number(slope) and _is_number(offset) and slope > 0):
        raise ModelError(
            f"{bundle.directory}/{QUALITY_FILE} is damaged: slope and offset must be numbers; copy the model again"
        )
    return Calibration(slope, offset)


def save_calibration(path: Path, _model: Mapping[str, str], *, calibration: Calibration) -> None:
    """Write quality.json; its checksum in config.json makes it part of the model (`SideFiles`).

    Args:
        path: Path of the file.
        calibration: The model's own.

    Raises:
        ModelError: If it cannot be written.
    """
    with os_error_as(ModelError, f"cannot write {path}"):
        write_json(path, {name: round(value, 4) for name, value in calibration._asdict().items()})


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _MOST_STORED  # neither NaN nor more than a float holds


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(min(-value, _MOST)))

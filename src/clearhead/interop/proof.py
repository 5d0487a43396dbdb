"""How near a model here and in another library must be; each room compares with its own library."""

from __future__ import annotations

import importlib.util

__all__ = ["MOST_ROUNDING", "TOLERANCE", "can_prove"]

TOLERANCE = 1e-3
"""Nats that the score of a translation may differ by, for each of its tokens: both round in float32."""

MOST_ROUNDING = 0.5
"""The same for weights that were rounded; beyond it nothing is left of the model."""


def can_prove(library: str = "transformers") -> bool:
    """Tell whether their library is installed."""
    return importlib.util.find_spec(library) is not None

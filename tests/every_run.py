"""What every run takes of a test's parameters; the slow run takes the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Return parameters that only the slow run takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def one_in(number: int, parameters: Iterable[Any], *, first: int = 0) -> list[Any]:
    """Return parameters, each a single value, of which every run takes one in so many, beginning with `first`."""
    return [one if at % number == first else slow(one) for at, one in enumerate(parameters)]

"""The length penalty of `decoding/rules.py`; its other rules are tested with the searches."""

from __future__ import annotations

import pytest

from clearhead.decoding import length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "expected"),
    [
        (1, 0.6, 1.0),  # (6 / 6) ** anything
        (7, 1.0, 2.0),  # 12 / 6
        (19, 0.5, 2.0),  # sqrt(24 / 6)
        (49, 2.0, 81.0),  # (54 / 6) ** 2
        (13, 0.0, 1.0),
    ],
)
def test_length_penalty_is_the_formula_of_gnmt(length, alpha, expected):
    assert length_penalty(length, alpha) == pytest.approx(expected, rel=1e-12)

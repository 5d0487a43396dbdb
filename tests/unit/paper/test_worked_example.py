"""Figure 2 with numbers: what is printed is right, and ends where our code ends."""

from __future__ import annotations

import math
import re

import pytest
import torch

from clearhead.paper import worked_example as example
from clearhead.paper.worked_example import worked_example


def numbers(lines, name):
    """Return the matrix printed under a name."""
    start = next(place for place, line in enumerate(lines) if line.startswith(f"  {name} "))
    end = next((place for place in range(start + 1, len(lines)) if lines[place][2:3].strip()), len(lines))
    rows = [re.search(r"\[(.*)\]", line) for line in lines[start:end]]
    return torch.tensor([[float(cell) for cell in row[1].split()] for row in rows if row])


def test_the_steps_of_the_left_follow_from_each_other():
    lines = worked_example().lines
    q, k, v = (numbers(lines, name) for name in "QKV")
    assert numbers(lines, "Q K^T").equal(q @ k.T)
    assert numbers(lines, "/ sqrt(d_k)").equal(q @ k.T / 2)
    weights = numbers(lines, "softmax")
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3), atol=2e-3, rtol=0.0)
    assert weights.triu(1).eq(0).all()
    torch.testing.assert_close(numbers(lines, "weights V"), weights @ v, atol=2e-3, rtol=0.0)


def test_the_steps_of_the_right_follow_from_each_other():
    lines = worked_example().lines
    joined = numbers(lines, "Concat")
    assert joined.equal(torch.cat([numbers(lines, "head_1"), numbers(lines, "head_2")], dim=1))
    torch.testing.assert_close(numbers(lines, "MultiHead"), joined @ numbers(lines, "W^O"), atol=3e-3, rtol=0.0)
    assert not numbers(lines, "weights_1").equal(numbers(lines, "weights_2"))


def test_our_code_ends_at_the_same_numbers():
    assert [check.holds for check in worked_example().checks] == [True, True]


@pytest.mark.parametrize(("name", "failing"), [("attention", 0), ("multi_head", 1)])
def test_worked_example_checks_fail_for_other_numbers(monkeypatch, name, failing):
    if name == "attention":
        monkeypatch.setattr(example, "softmax", lambda row: [1 / len(row) for _ in row])
    else:
        monkeypatch.setattr(example, "multi_head", lambda *arguments: [[0.0] * 4] * 3)
    assert [check.holds for check in worked_example().checks].index(False) == failing


def test_the_picture_shows_the_weights():
    figure = worked_example().figure
    hidden = [[math.isnan(weight) for weight in row] for row in figure.values]
    assert hidden == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    shown = [[0.0 if math.isnan(weight) else weight for weight in row] for row in figure.values]
    assert [round(sum(row), 9) for row in shown] == [1.0, 1.0, 1.0]
    assert shown[0] == [1.0, 0.0, 0.0]

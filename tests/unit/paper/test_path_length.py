"""Path lengths found by gradients are those of the formulas, and what never connects is said to."""

from __future__ import annotations

import pytest
import torch

from clearhead.paper.path_length import LENGTHS, layers_to_connect, path_lengths, steps_to_connect


def test_paths_are_as_long_as_the_formulas_say():
    paths = path_lengths()
    assert [path.length for path in paths] == [path.expected for path in paths]
    attention, recurrent, contiguous, dilated, restricted = paths
    assert LENGTHS == (27, 81)
    assert attention.length == (1, 1)
    assert recurrent.length == (27, 81)
    assert contiguous.length == (13, 40)
    assert dilated.length == (3, 4)
    assert restricted.length == (7, 20)


def test_layers_are_counted_until_the_ends_meet():
    # Each layer looks one position back, so n - 1 of them are needed.
    def shift(number):
        return lambda x: x + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)

    assert layers_to_connect(shift, 11, 3, most=20) == 10


def test_steps_of_a_recurrent_cell_are_counted_on_the_way_back():
    assert steps_to_connect(lambda x, state: torch.tanh(x + state), 11, 3) == 11
    calls = iter(range(11))
    # A shortcut from the first input to the fifth state leaves seven steps.
    kept = []

    def cell(x, state):
        kept.append(x)
        return x + (state.detach() if (step := next(calls)) < 4 else kept[0] if step == 4 else state)

    assert steps_to_connect(cell, 11, 3) == 7


def test_a_cell_that_forgets_connects_nothing():
    with pytest.raises(ValueError, match="7 steps do not connect the ends of 7 positions"):
        steps_to_connect(lambda x, state: x + 0 * state, 7, 3)


def test_layers_to_connect_rejects_positions_that_never_meet():
    with pytest.raises(ValueError, match="5 layers do not connect the ends of 7 positions"):
        layers_to_connect(lambda number: lambda x: 2 * x, 7, 3, most=5)

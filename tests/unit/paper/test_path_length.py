"""Path lengths found by gradients are those of the formulas, and what never connects is said to."""

from __future__ import annotations

import pytest
import torch

from clearhead.paper.path_length import LENGTHS, layers_to_connect, path_lengths


def test_paths_are_as_long_as_the_formulas_say():
    paths = path_lengths()
    assert [path.layers for path in paths] == [path.expected for path in paths]
    attention, contiguous, dilated, restricted = paths
    assert LENGTHS == (27, 81)
    assert attention.layers == (1, 1)
    assert contiguous.layers == (13, 40)
    assert dilated.layers == (3, 4)
    assert restricted.layers == (7, 20)


def test_layers_are_counted_until_the_ends_meet():
    # Each layer looks one position back, so n - 1 of them are needed.
    def shift(number):
        return lambda x: x + torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)

    assert layers_to_connect(shift, 11, 3, most=20) == 10


def test_positions_that_never_meet_are_told():
    with pytest.raises(ValueError, match="5 layers do not connect the ends of 7 positions"):
        layers_to_connect(lambda number: lambda x: 2 * x, 7, 3, most=5)

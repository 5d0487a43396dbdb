"""Sinusoidal positions equal the formula of section 3.5, value by value."""

from __future__ import annotations

import math
import threading
from itertools import pairwise

import numpy as np
import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.model.other_positions import RotaryPositions
from clearhead.model.positions import SinusoidalPositions, sinusoidal_positions


@pytest.mark.parametrize("d_model", [2, 26, 58])
def test_positions_equal_the_formula_value_by_value(d_model):
    table = sinusoidal_positions(607, d_model)
    assert table.shape == (607, d_model)
    for position in (0, 1, 2, 5, 97, 511, 512, 606):
        for i in range(d_model // 2):
            angle = position / 10_000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_positions_stay_exact_far_out():
    table = sinusoidal_positions(10_007, 26)
    for i in range(13):
        assert table[10_006, 2 * i].item() == pytest.approx(math.sin(10_006 / 10_000 ** (2 * i / 26)), abs=1e-7)


def test_an_odd_width_is_refused():
    with pytest.raises(ConfigError, match=r"d_model \(5\) must be even"):
        sinusoidal_positions(3, 5)


def test_wavelengths_are_a_geometric_progression_from_2_pi_towards_20000_pi():
    table = sinusoidal_positions(2, 46).double()
    angles = torch.atan2(table[1, 0::2], table[1, 1::2])  # how far one position turns each pair
    wavelengths = (2 * math.pi / angles).tolist()
    assert wavelengths[0] == pytest.approx(2 * math.pi, rel=1e-6)
    assert wavelengths[-1] == pytest.approx(2 * math.pi * 10_000 ** (44 / 46), rel=1e-6)
    ratios = [longer / shorter for shorter, longer in pairwise(wavelengths)]
    assert ratios == pytest.approx([10_000 ** (2 / 46)] * 22, rel=1e-5)
    assert max(wavelengths) < 2 * math.pi * 10_000


def test_a_shift_of_position_is_a_rotation():
    # Why the paper chose the sinusoid: PE(pos + k) is a linear function of PE(pos).
    table, shift = sinusoidal_positions(101, 26).double(), 17
    for i in range(13):
        angle = shift / 10_000 ** (2 * i / 26)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double()
        pair = table[:, 2 * i : 2 * i + 2]
        torch.testing.assert_close(pair[shift:], pair[:-shift] @ turn.T, rtol=0, atol=1e-6)


def test_the_table_grows_past_512_positions():
    expected = sinusoidal_positions(3_001, 26)
    assert SinusoidalPositions(d_model=26)(2_997, 3).equal(expected[2_997:3_000])  # at once, far past the end
    positions = SinusoidalPositions(d_model=26)
    for start, length in ((0, 7), (505, 7), (511, 2), (600, 1), (0, 1_409), (3_000, 1), (3, 5)):
        assert positions(start, length).equal(expected[start : start + length]), (start, length)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("layout", ["sinusoidal", "sinusoidal_halves", "sinusoidal_t2t"])
def test_a_grown_table_has_the_layout_and_the_first_position_of_the_table_it_replaces(layout, first):
    # Width 6 has 3 waves: the exponent of 10,000 is 2i / 6, in tensor2tensor i / 2.
    angle = np.arange(first, 607 + first)[:, None] / 10_000 ** (np.arange(3) / (2 if layout == "sinusoidal_t2t" else 3))
    waves = np.sin(angle), np.cos(angle)
    expected = np.stack(waves, -1).reshape(607, 6) if layout == "sinusoidal" else np.concatenate(waves, -1)
    positions = SinusoidalPositions(d_model=6, layout=layout, first=first)
    for start, length in ((0, 512), (511, 2), (600, 7), (0, 3)):
        rows = positions(start, length).numpy()
        np.testing.assert_allclose(rows, expected[start : start + length], rtol=0, atol=1e-7)


def test_the_table_is_neither_learned_nor_saved():
    positions = SinusoidalPositions(d_model=26)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_a_grown_table_keeps_its_precision():
    positions = SinusoidalPositions(d_model=26).double()
    assert positions(0, 601).dtype == torch.float64


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_threads_do_not_shorten_each_others_table_of_positions(monkeypatch, positions):
    # Two threads find the table of 512 positions too short. One stores a longer table, and before it reads that, the
    # other stores its own, which is shorter.
    is_rotary = positions == "rotary"
    table = RotaryPositions(head_dim=16) if is_rotary else SinusoidalPositions(d_model=16)
    kind, found = type(table), {}
    both_are_here, shorter_is_stored = threading.Barrier(2), threading.Event()
    store = kind.__setattr__

    def store_in_the_worst_order(module, name, value):
        longer = value.size(-2) >= 1_300
        try:
            both_are_here.wait(0.5)  # in vain where only one thread may be here
        except threading.BrokenBarrierError:
            return store(module, name, value)
        if longer:
            store(module, name, value)
            both_are_here.wait(5.0)
            shorter_is_stored.wait(5.0)
        else:
            both_are_here.wait(5.0)
            store(module, name, value)
            shorter_is_stored.set()
        return None

    monkeypatch.setattr(kind, "__setattr__", store_in_the_worst_order)

    def ask(longest):
        found[longest] = table.cos_and_sin(longest).size(1) if is_rotary else len(table(0, longest))

    threads = [threading.Thread(target=ask, args=(longest,)) for longest in (1_300, 600)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert found == {1_300: 1_300, 600: 600}

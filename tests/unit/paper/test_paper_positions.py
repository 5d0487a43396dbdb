"""The positional encodings: shifts are rotations, wavelengths are as said, other layouts change what is claimed."""

from __future__ import annotations

import json
import math

import pytest
import torch

from clearhead.model.positions import sinusoidal_positions
from clearhead.paper import positions as module
from clearhead.paper.positions import interleaved_order, positions, shift_matrix


@pytest.mark.parametrize("shift", [1, 7, -4])
def test_a_shift_is_one_matrix_for_all_positions(shift):
    table = sinusoidal_positions(53, 22).double()
    start, end = max(0, -shift), 53 - max(0, shift)
    torch.testing.assert_close(
        table[start:end] @ shift_matrix(shift, 22).T, table[start + shift : end + shift], atol=1e-6, rtol=0.0
    )


def test_shifts_are_rotations_that_add_up():
    one, two, three = (shift_matrix(shift, 14) for shift in (1, 2, 3))
    torch.testing.assert_close(one @ two, three)
    torch.testing.assert_close(three @ three.T, torch.eye(14, dtype=torch.float64))
    torch.testing.assert_close(three @ shift_matrix(-3, 14), torch.eye(14, dtype=torch.float64))
    assert shift_matrix(0, 14).equal(torch.eye(14, dtype=torch.float64))


def test_the_halves_are_the_same_columns_in_another_order():
    order = interleaved_order(22)
    assert sorted(order) == list(range(22))
    assert sinusoidal_positions(31, 22)[:, order].equal(sinusoidal_positions(31, 22, "sinusoidal_halves"))


def test_positions_checks_hold_and_the_longest_wavelength_is_exact():
    part = positions()
    assert part.failures == []
    assert part.data["longest_wavelength"] == pytest.approx(2 * math.pi * 10_000 ** (510 / 512))
    assert part.data["longest_wavelength"] < 2 * math.pi * 10_000
    assert "60,611.5" in part.text
    assert "62,831.9" in part.text
    assert len(part.data["shift_errors"]) == 6
    json.dumps(part.data)


def test_checks_of_positions_fail_for_another_table(monkeypatch):
    def shuffled(length, d_model, layout="sinusoidal"):
        return sinusoidal_positions(length, d_model, "sinusoidal_t2t" if layout == "sinusoidal" else layout)

    monkeypatch.setattr(module, "sinusoidal_positions", shuffled)
    failures = " ".join(positions().failures)
    for claim in ("the table is the printed formula", "longest wave of sinusoidal ", "for k = 1:", "in another order"):
        assert claim in failures


def test_the_picture_is_the_table():
    figure = positions().figures["positions"]
    assert (len(figure.values), len(figure.values[0])) == (100, 128)
    assert figure.values[3][0] == pytest.approx(math.sin(3.0), abs=1e-6)
    assert figure.values[3][1] == pytest.approx(math.cos(3.0), abs=1e-6)
    assert figure.diverging


def test_the_dot_product_of_positions_depends_on_their_distance_alone():
    series = positions().figures["positions-distance"].panels[0].series[0]
    table = sinusoidal_positions(60, 512).double()
    for start in (0, 11, 40):
        assert float(table[start] @ table[start + 13]) == pytest.approx(series.y[13], abs=1e-4)
    assert series.y[0] == 256


def test_the_difference_between_the_layouts_is_drawn():
    paper, difference = (panel.series[0] for panel in positions().figures["positions-distance"].panels)
    for distance in (0, 1, 50):  # PE(pos) . PE(pos + k) is the sum of cos(w k) over the 256 wavelengths
        ours, other = (
            sum(math.cos(distance / 10_000 ** (pair / pairs)) for pair in range(256)) for pairs in (256, 255)
        )
        assert paper.y[distance] == pytest.approx(ours, abs=1e-4)
        assert difference.y[distance] == pytest.approx(other - ours, abs=1e-4)

"""Dropout: at its rate, independently, without moving the mean, and the same again from the same seed."""

from __future__ import annotations

import pytest
import torch

from clearhead.kernels.dropout import Dropout, drawn_by_row, dropout, keep_mask, relu_dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.97])
def test_elements_fall_at_the_rate_and_the_others_grow_to_keep_the_mean(rate):
    mask = keep_mask(torch.empty(1009, 997), rate)
    assert mask.unique().tolist() == [0.0, pytest.approx(1 / (1 - rate), rel=3e-3)]
    deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert (mask == 0).double().mean().item() == pytest.approx(rate, abs=5 * deviation + 2**-17)


def test_every_place_of_a_random_word_is_as_likely_to_fall():
    fallen = (keep_mask(torch.empty(4 * 100_003), 0.1) == 0).double().view(-1, 4)
    assert fallen.mean(dim=0).tolist() == pytest.approx([0.1] * 4, abs=0.005)
    # Neighbours fall together no more often than chance has it.
    assert (fallen[:, :3] * fallen[:, 1:]).mean().item() == pytest.approx(0.01, abs=0.001)


def test_the_gradient_falls_where_the_value_fell():
    x = torch.randn(7, 11, 13, requires_grad=True)
    dropped = Dropout(0.5).train()(x)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, (dropped / x).detach())
    assert 0.3 < (x.grad == 0).double().mean().item() < 0.7


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 4097])
def test_keep_mask_works_for_any_number_of_elements(size):
    mask = keep_mask(torch.empty(size), 0.25)
    assert mask.shape == (size,)
    assert set(mask.tolist()) <= {0.0, torch.tensor(4 / 3).item()}


def test_keep_mask_is_finite_at_the_highest_rates():
    assert keep_mask(torch.empty(97), 0.999999).isfinite().all()


def test_dropout_keeps_bfloat16():
    x = torch.ones(997, dtype=torch.bfloat16)
    assert Dropout(0.5).train()(x).dtype == torch.bfloat16


def test_keep_mask_depends_on_the_seed_alone():
    draws = []
    for seed in (3, 3, 5):
        torch.manual_seed(seed)
        draws.append(keep_mask(torch.empty(997), 0.5))
    assert draws[0].equal(draws[1])
    assert not draws[0].equal(draws[2])


def test_dropout_draws_no_random_numbers_in_eval_or_at_rate_0():
    x = torch.randn(7, 11)
    before = torch.get_rng_state()
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_relu_and_dropout_in_one_are_the_two_after_each_other(rate):
    results = []
    for function in (relu_dropout, lambda x, rate: dropout(torch.relu(x), rate)):
        torch.manual_seed(7)
        x = torch.randn(13, 11, 17, dtype=torch.float64, requires_grad=True)
        result = function(x, rate)
        result.square().sum().backward()
        results.append((result.detach(), x.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=0.0)
    assert 0 < (results[0][0] == 0).double().mean() < 1


SHAPES = [(5, 7, 12), (5, 7, 13), (5, 3, 7, 9)]
"""Of states of an even and an odd width, and of attention weights."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_by_row_neighbours_and_padding_decide_nothing(shape):
    rows = [3, 1, 4, 15, 9]
    with drawn_by_row(7, rows):
        together = [keep_mask(torch.empty(shape), 0.5) for _ in range(2)]
    for place, row in enumerate(rows):
        with drawn_by_row(7, [8, row]):
            longer = [keep_mask(torch.empty(2, *(size + 3 for size in shape[1:-1]), shape[-1]), 0.5) for _ in range(2)]
        for first, second in zip(together, longer, strict=True):
            assert first[place].equal(second[1][tuple(slice(size) for size in shape[1:-1])])


def test_drawn_by_row_masks_differ_by_row_call_and_seed():
    drawn = []
    for seed in (7, 8):
        with drawn_by_row(seed, [3, 1]):
            drawn += [*keep_mask(torch.empty(2, 50, 8), 0.5), *keep_mask(torch.empty(2, 50, 8), 0.5)]
    agree = [(a == b).double().mean().item() for number, a in enumerate(drawn) for b in drawn[:number]]
    assert max(agree) < 0.6  # of 400 elements half agree by chance, give or take 0.025


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.97])
def test_by_row_elements_fall_at_the_rate_in_every_place_of_a_word(rate):
    with drawn_by_row(11, range(200)):
        fallen = (keep_mask(torch.empty(200, 31, 64), rate) == 0).double()
    deviation = (rate * (1 - rate) / fallen.numel() * 4) ** 0.5
    assert fallen.view(-1, 4).mean(dim=0).tolist() == pytest.approx([rate] * 4, abs=5 * deviation + 2**-17)
    assert fallen.mean(dim=(1, 2)).std().item() == pytest.approx((rate * (1 - rate) / (31 * 64)) ** 0.5, rel=0.25)
    for dim in range(3):  # neighbours fall together no more often than chance has it
        size = fallen.size(dim)
        both = fallen.narrow(dim, 0, size - 1) * fallen.narrow(dim, 1, size - 1)
        assert both.mean().item() == pytest.approx(rate**2, abs=0.003)


def test_by_row_the_rows_must_be_those_of_the_batch():
    with drawn_by_row(7, [1, 2]), pytest.raises(ValueError, match="dropout by row needs 2 rows first"):
        keep_mask(torch.empty(3, 5, 8), 0.5)

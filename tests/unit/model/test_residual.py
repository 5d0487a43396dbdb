"""The residual connection: where the norm and the dropout stand (paper sections 3.1 and 5.4)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.model.residual import Residual


def shaken(*, is_pre):
    residual = Residual(nn.LayerNorm(26), dropout=0.0, is_pre=is_pre)
    nn.init.normal_(residual.norm.weight)
    nn.init.normal_(residual.norm.bias)
    return residual


def test_post_norm_is_the_norm_of_the_sum():
    residual, x = shaken(is_pre=False), torch.randn(3, 7, 26)
    torch.testing.assert_close(residual.add_and_norm(x, torch.sin), residual.norm(x + x.sin()))


def test_pre_norm_leaves_the_sum_bare():
    residual, x = shaken(is_pre=True), torch.randn(3, 7, 26)
    torch.testing.assert_close(residual.add_and_norm(x, torch.sin), x + residual.norm(x).sin())


def test_the_norm_has_mean_0_and_variance_1_over_the_features():
    residual = Residual(nn.LayerNorm(26), dropout=0.0)
    out = residual.add_and_norm(3 + 5 * torch.randn(3, 7, 26), torch.zeros_like)
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 7), rtol=0, atol=1e-6)
    torch.testing.assert_close(out.var(-1, unbiased=False), torch.ones(3, 7), rtol=0, atol=1e-4)


@pytest.mark.parametrize("is_pre", [False, True])
def test_residual_dropout_applies_to_the_update_not_the_input(is_pre):
    residual = Residual(nn.Identity(), dropout=0.25, is_pre=is_pre)  # so that the sum itself shows
    x, update = torch.randn(31, 47, 26), torch.full((31, 47, 26), 3.0)
    added = residual.add_and_norm(x, lambda x: update) - x
    dropped = added.abs() < 1e-5
    torch.testing.assert_close(added[~dropped], torch.full_like(added[~dropped], 4.0))  # 3 / (1 - 0.25)
    assert dropped.double().mean().item() == pytest.approx(0.25, abs=0.01)  # 4.5 standard deviations
    assert residual.eval().add_and_norm(x, lambda x: update).equal(x + update)

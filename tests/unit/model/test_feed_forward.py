"""The feed-forward network equals equation 2 at each position."""

from __future__ import annotations

import pytest
import torch

from clearhead.model.feed_forward import FeedForward


def test_feed_forward_equals_equation_2():
    network = FeedForward(d_model=26, d_ff=19).double()
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    w1, b1 = network.up_proj.weight.T, network.up_proj.bias
    w2, b2 = network.down_proj.weight.T, network.down_proj.bias
    assert (w1.shape, w2.shape) == ((26, 19), (19, 26))
    expected = torch.clamp(x @ w1 + b1, min=0) @ w2 + b2
    torch.testing.assert_close(network(x), expected)


def test_feed_forward_computes_each_position_by_itself():
    network = FeedForward(d_model=26, d_ff=19).double()
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    before = network(x)
    x[1, 4] += 1
    changed = (network(x) - before).abs().amax(-1) > 1e-9
    assert changed.nonzero().tolist() == [[1, 4]]


def test_the_network_is_two_convolutions_of_kernel_size_1():
    network = FeedForward(d_model=26, d_ff=19).double()
    x = torch.randn(3, 7, 26, dtype=torch.float64)
    up, down = network.up_proj, network.down_proj
    hidden = torch.conv1d(x.mT, up.weight[:, :, None], up.bias).relu()
    torch.testing.assert_close(network(x), torch.conv1d(hidden, down.weight[:, :, None], down.bias).mT)


@pytest.mark.parametrize("options", [{}, {"activation": "gelu"}, {"activation": "silu", "gated": True}])
def test_dropout_in_training_has_the_untrained_output_for_its_mean(options):
    torch.manual_seed(3)
    network = FeedForward(d_model=26, d_ff=19, dropout=0.2, **options)
    x = torch.randn(3, 7, 26)
    with torch.no_grad():
        plain = network.eval()(x)
        network.train()
        draws = torch.stack([network(x) for _ in range(2_000)])
    assert (draws[0] - plain).abs().max() > 0.05
    deviation = draws.std(dim=0) / len(draws) ** 0.5
    assert ((draws.mean(dim=0) - plain).abs() <= 5 * deviation + 1e-6).all()

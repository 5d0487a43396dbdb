"""The layers of Table 1: operations by formula and as they are counted."""

from __future__ import annotations

import pytest
import torch

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.growth import (
    LAYERS,
    counted_layer_flops,
    exponent,
    one_thread,
    operators_called,
    restricted_attention,
    separable_convolution,
)

EQUATION_1, STEPWISE, FUSED, RNN, _, CONVOLUTION, RESTRICTED = LAYERS


@pytest.mark.parametrize("name", LAYERS)
def test_layer_flops_equal_the_count_of_pytorch(name):
    assert counted_layer_flops(LAYERS[name], 36, 20) == LAYERS[name].flops(36, 20)


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_maps_a_sequence_to_one_of_its_shape(name):
    assert LAYERS[name].build(20)(torch.randn(1, 37, 20)).shape == (1, 37, 20)


def test_exponents_are_slopes_of_logarithms():
    sizes = [3, 7, 19, 64]
    assert exponent(sizes, [5.0 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [4.0] * 4) == pytest.approx(0.0)


def test_a_neighbourhood_that_holds_everything_is_plain_attention():
    x = torch.randn(1, 7, 4)
    torch.testing.assert_close(restricted_attention(x, 15), scaled_dot_product_attention(x, x, x)[0])


def test_restricted_attention_sees_its_neighbourhood_alone():
    x = torch.randn(1, 19, 4)
    other = x.clone()
    other[0, 9] += 3.0
    changed = (restricted_attention(x, 5) != restricted_attention(other, 5)).any(dim=-1)[0]
    assert changed.nonzero().flatten().tolist() == [7, 8, 9, 10, 11]


def test_a_separable_convolution_is_a_kernel_for_each_number_and_a_matrix():
    n, d, kernel = 7, 3, 4
    layer = separable_convolution(kernel)
    assert counted_layer_flops(layer, 36, 20) == layer.flops(36, 20) == 2 * kernel * 36 * 20 + 2 * 36 * 20 * 20
    whole = separable_convolution(n)  # its kernel is as long as the text
    assert counted_layer_flops(whole, n, d) == whole.flops(n, d) == 2 * n * n * d + 2 * n * d * d
    x, module = torch.randn(1, n, d), layer.build(d)
    depthwise, pointwise = (part.weight for part in module.parts)
    for position in range(n):
        window = [x[0, at] if 0 <= at < n else torch.zeros(d) for at in range(position - 2, position + 2)]
        mixed = sum(depthwise[:, 0, place] * one for place, one in enumerate(window))
        torch.testing.assert_close(module(x)[0, position], pointwise @ mixed)


def test_recurrent_layers_alone_run_more_operators_for_more_positions():
    for name in (EQUATION_1, STEPWISE, FUSED, CONVOLUTION, RESTRICTED):
        assert operators_called(LAYERS[name], 40, 8) == operators_called(LAYERS[name], 80, 8)
    assert operators_called(LAYERS[RNN], 80, 8) - operators_called(LAYERS[RNN], 40, 8) >= 40


def test_threads_are_given_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)

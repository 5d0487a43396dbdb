"""Linear layers are PyTorch's, and inside `bf16_products` theirs up to the rounding of whole blocks of rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from clearhead.kernels.bf16_linear import ROUNDED_ROWS, Linear, are_products_bf16, bf16_products
from clearhead.runtime.device import can_multiply_bf16

needs_bf16 = pytest.mark.skipif(not can_multiply_bf16(), reason="this processor multiplies no bfloat16")


def outcome(layer: nn.Linear, x: torch.Tensor, weighting: torch.Tensor) -> list[torch.Tensor]:
    """Return the output and all gradients."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    (y * weighting).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]


def both(shape: tuple[int, ...], bias: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return what PyTorch's layer gives, and ours, rounded."""
    torch.manual_seed(5)
    ours, theirs = Linear(26, 38, bias=bias), nn.Linear(26, 38, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    x, weighting = torch.randn(*shape, 26), torch.randn(*shape, 38)
    with bf16_products():
        y = ours(x.clone().requires_grad_())
    assert y.shape == (*shape, 38)
    expected = outcome(theirs, x, weighting)
    with bf16_products():
        found = outcome(ours, x, weighting)
    assert not are_products_bf16()
    return expected, found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1,), (7, 11), (ROUNDED_ROWS,), (3, 43), (2, ROUNDED_ROWS), (5, 7, 23)])
def test_rounded_layers_are_close_to_exact_ones_in_output_and_gradients(shape, bias):
    for expected, found in zip(*both(shape, bias), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2 * expected.std().item())


def test_rows_left_over_are_exact():
    expected, found = both((ROUNDED_ROWS + 5,), bias=True)
    for exact, rounded in list(zip(expected, found, strict=True))[:2]:
        torch.testing.assert_close(rounded[ROUNDED_ROWS:], exact[ROUNDED_ROWS:])


@needs_bf16
def test_whole_blocks_are_rounded():
    expected, found = both((ROUNDED_ROWS,), bias=True)
    assert [bool((a - b).abs().max() > 1e-4) for a, b in zip(expected[:3], found[:3], strict=True)] == [True] * 3


def test_bf16_linear_outside_its_context_equals_pytorchs_linear():
    torch.manual_seed(5)
    layer, x = Linear(26, 38), torch.randn(200, 26)
    assert layer(x).equal(nn.functional.linear(x, layer.weight, layer.bias))


def test_a_processor_without_bfloat16_rounds_nothing(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    for expected, found in zip(*both((ROUNDED_ROWS,), bias=True), strict=True):
        assert found.equal(expected)


def test_no_process_wide_switch_changes_in_forward_or_backward(switches):
    layer, x = Linear(26, 38), torch.randn(ROUNDED_ROWS + 5, 26)
    with switches, bf16_products():
        outcome(layer, x, torch.randn(ROUNDED_ROWS + 5, 38))
    assert "mm" in switches.operations
    assert len(switches.seen) == 1


def test_rounding_in_other_threads_changes_no_bit_of_a_threads_own_products():
    torch.manual_seed(5)
    layer, x, weighting = Linear(64, 96), torch.randn(ROUNDED_ROWS, 64), torch.randn(ROUNDED_ROWS, 96)
    num_threads = 8
    start = Barrier(num_threads)

    def work(is_rounded: bool) -> list[list[torch.Tensor]]:
        own = Linear(64, 96)
        own.load_state_dict(layer.state_dict())
        start.wait(timeout=600)
        if not is_rounded:
            return [outcome(own, x, weighting) for _ in range(100)]
        with bf16_products():
            return [outcome(own, x, weighting) for _ in range(100)]

    exact = outcome(layer, x, weighting)
    with bf16_products():
        rounded = outcome(layer, x, weighting)
    with ThreadPoolExecutor(num_threads) as pool:
        all_found = list(pool.map(work, [False, True] * (num_threads // 2)))
    for alone, results in zip([exact, rounded] * (num_threads // 2), all_found, strict=True):
        for found in results:
            assert all(a.equal(b) for a, b in zip(found, alone, strict=True))

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.errors import DeviceError
from clearhead.kernels.products import make_product
from clearhead.runtime.device import can_multiply_bf16

needs_vnni = pytest.mark.skipif(
    not torch.cpu._is_vnni_supported(), reason="needs a CPU that multiplies 8-bit integers (VNNI)"
)

needs_bf16 = pytest.mark.skipif(not can_multiply_bf16(), reason="this processor multiplies no bfloat16")

ROUNDED = [
    pytest.param("bf16", False, id="bf16"),
    pytest.param("bf16", True, id="bf16 to logits"),
    pytest.param("int8", False, id="int8", marks=needs_vnni),
    pytest.param("int8", True, id="int8 to logits", marks=needs_vnni),
]

INDEPENDENT = [
    param if param.values != ("bf16", True) else pytest.param(*param.values, id=param.id, marks=needs_bf16)
    for param in ROUNDED
]
"""Whose rows promise to be independent: without bfloat16 logits are in float32, which promises nothing."""

# Largest root mean square error of a row over the size of what a row sums up to. Measured: 4e-3 and 1.2e-2.
BOUNDS = {"bf16": 6e-3, "int8": 2e-2}

WIDTHS = [(26, 40), (67, 131), (512, 96)]


pytestmark = pytest.mark.usefixtures("inference")


def draw(inputs, outputs, num_rows=53):
    """Return a matrix, a bias, and rows some of which are a thousand times the others."""
    rows = torch.randn(num_rows, inputs) * torch.logspace(-2, 1, num_rows)[torch.randperm(num_rows)][:, None]
    return torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs), rows


@pytest.mark.parametrize(("inputs", "outputs"), WIDTHS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_output", [False, True])
def test_float32_gives_what_a_linear_layer_gives(inputs, outputs, has_bias, is_output):
    weight, bias, rows = draw(inputs, outputs)
    bias = bias if has_bias else None
    found = make_product([weight], [bias], "fp32", is_output=is_output)(rows)
    torch.testing.assert_close(found, functional.linear(rows, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("inputs", "outputs"), WIDTHS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("precision", "is_output"), ROUNDED)
def test_a_rounded_product_is_close_and_no_closer(inputs, outputs, has_bias, precision, is_output):
    weight, bias, rows = draw(inputs, outputs)
    found = make_product([weight], [bias if has_bias else None], precision, is_output=is_output)(rows)
    exact = rows.double() @ weight.double().t()
    size = exact.square().mean(dim=1).sqrt() + has_bias
    error = (found - exact - (bias if has_bias else 0.0)).square().mean(dim=1).sqrt() / size
    assert found.dtype == torch.float32
    assert error.max() < BOUNDS[precision]
    if precision == "int8":  # who asks for it gets it; bfloat16 is left to what the processor can
        assert error.max() > 1e-4


@pytest.mark.parametrize("precision", ["fp32", "bf16", pytest.param("int8", marks=needs_vnni)])
def test_several_matrices_give_their_results_side_by_side(precision):
    weights = [torch.randn(outputs, 67) for outputs in (13, 37, 5)]
    biases, rows = [torch.randn(13), torch.randn(37), torch.randn(5)], torch.randn(7, 67)
    found = make_product(weights, biases, precision)(rows).split([13, 37, 5], dim=1)
    for part, weight, bias in zip(found, weights, biases, strict=True):
        alone = make_product([weight], [bias], precision)(rows)
        torch.testing.assert_close(part, alone, rtol=0, atol=1e-4 if precision == "fp32" else 0.15)
    without = make_product(weights, [None] * 3, precision)(rows)
    assert (torch.cat(found, dim=1) - without - torch.cat(biases)).abs().max() < 0.15


@pytest.mark.parametrize(("precision", "is_output"), [*ROUNDED, pytest.param("fp32", False, id="fp32")])
def test_make_product_takes_any_number_of_rows(precision, is_output):
    weight, bias, rows = draw(67, 131)
    product = make_product([weight], [bias], precision, is_output=is_output)
    all_rows = product(rows)
    for num_rows in range(1, 34):
        found = product(rows[:num_rows])
        assert found.shape == (num_rows, 131)
        torch.testing.assert_close(found, all_rows[:num_rows], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("precision", "is_output"), INDEPENDENT)
def test_neighbours_do_not_change_a_row(precision, is_output):
    weight, bias, rows = draw(512, 96)
    product = make_product([weight], [bias], precision, is_output=is_output)
    together = product(rows[:31])
    for row in range(0, 31, 5):
        assert product(rows[row : row + 1]).equal(together[row : row + 1])
    louder = rows[:31].clone()
    louder[11:] *= 1e4
    assert product(louder)[:11].equal(together[:11])


@pytest.mark.parametrize(("precision", "is_output"), [p for p in INDEPENDENT if p.id != "bf16"])
def test_no_number_of_neighbours_changes_a_row(precision, is_output):
    weight, bias, rows = draw(512, 1536, num_rows=131)
    product = make_product([weight], [bias], precision, is_output=is_output)
    together = product(rows)
    for num_rows in (1, 31, 32, 33, 65, 97):
        assert product(rows[:num_rows]).equal(together[:num_rows])
        assert product(rows[-num_rows:]).equal(together[-num_rows:])


@needs_bf16
def test_bf16_rounds_what_meets_in_a_logit_but_not_the_logit():
    weight, bias, rows = draw(512, 1536)
    found = make_product([weight], [bias], "bf16", is_output=True)(rows)
    exact = rows.bfloat16().double() @ weight.bfloat16().double().t()
    # bfloat16 has 8 significant bits; two numbers have 16, and float32 adds up a little less than exactly.
    assert ((found - bias - exact).abs() <= exact.abs() * 2**-16 + 1e-4).all()


@pytest.mark.parametrize(("precision", "is_output"), [*ROUNDED, pytest.param("fp32", False, id="fp32")])
def test_a_product_changes_no_process_wide_switch(precision, is_output, switches):
    weight, bias, rows = draw(67, 131)
    product = make_product([weight], [bias], precision, is_output=is_output)
    with switches:
        product(rows)
    assert switches.operations
    assert len(switches.seen) == 1


@needs_vnni
def test_int8_takes_rows_and_matrices_of_zeros_and_the_ends_of_its_range():
    weight = torch.tensor([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0], [1e-40, 0.0, 0.0], [127.0, -127.0, 1.0]])
    rows = torch.tensor([[0.0, 0.0, 0.0], [127.0, -127.0, 3.0], [-1.0, 1.0, 0.0], [1e-42, 0.0, 0.0]])
    found = make_product([weight], [None], "int8")(rows)
    assert found.isfinite().all()
    torch.testing.assert_close(found, rows @ weight.t(), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16", pytest.param("int8", marks=needs_vnni)])
def test_make_product_does_not_change_its_input(precision):
    weight, bias, rows = draw(67, 131)
    kept = rows.clone()
    make_product([weight], [bias], precision)(rows)
    assert rows.equal(kept)


@pytest.mark.parametrize("precision", ["int8", "bf16x3"])
def test_precisions_of_cpus_are_refused_elsewhere(precision):
    with pytest.raises(DeviceError, match=f"{precision} translation needs a CPU, and the model is on meta; use"):
        make_product([torch.empty(64, 64, device="meta")], [None], precision)


def test_int8_is_refused_where_it_would_overflow(make_model, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    message = "int8 translation without the compiled core needs a CPU with VNNI; use --precision fp32"
    with pytest.raises(DeviceError, match=message):
        make_product([torch.randn(5, 7)], [None], "int8")
    with pytest.raises(DeviceError, match=message):
        _ = PyTorchEngine(make_model(), "int8").packed
    assert PyTorchEngine(make_model(), "fp32").packed

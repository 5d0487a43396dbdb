"""Label smoothing against its formula, and the chunked loss against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.kernels.bf16_linear import ROUNDED_ROWS
from clearhead.training import loss as loss_module
from clearhead.training.loss import chunked_cross_entropy, label_smoothed_cross_entropy


def random_problem(rows: int, width: int = 11, vocab_size: int = 37, dtype=torch.float32):
    states = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocab_size, width, dtype=dtype, requires_grad=True)
    return states, weight, torch.randint(vocab_size, (rows,))


def formula(logits: np.ndarray, target: np.ndarray, eps: float) -> tuple[float, float]:
    """Cross-entropy with q = (1 - eps) * one-hot + eps / V, and with the one-hot alone."""
    vocab_size = logits.shape[1]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    one_hot = np.eye(vocab_size)[target]
    smooth = (1.0 - eps) * one_hot + eps / vocab_size
    return -(smooth * log_probs).sum(), -(one_hot * log_probs).sum()


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.37])
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_smoothed_loss_is_cross_entropy_with_the_mixed_distribution(eps, scale):
    logits, target = torch.randn(13, 29) * scale, torch.randint(29, (13,))
    expected = formula(logits.double().numpy(), target.numpy(), eps)
    found = [value.item() for value in label_smoothed_cross_entropy(logits, target, eps)]
    assert found == pytest.approx(expected, rel=1e-5)


def test_without_smoothing_it_is_cross_entropy():
    logits, target = torch.randn(13, 29, requires_grad=True), torch.randint(29, (13,))
    loss, nll = label_smoothed_cross_entropy(logits, target, 0.0)
    expected = functional.cross_entropy(logits, target, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, expected.detach())
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits))


def test_bf16_logits_are_summed_in_float32():
    logits, target = torch.randn(7, 1009).bfloat16(), torch.randint(1009, (7,))
    loss, _ = label_smoothed_cross_entropy(logits, target, 0.1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(formula(logits.double().numpy(), target.numpy(), 0.1)[0], rel=1e-5)


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 255, 256, 257, 521])
def test_chunked_loss_has_the_value_and_gradients_of_the_plain_one(rows, eps, has_bias):
    states, weight, target = random_problem(rows)
    bias = torch.randn(weight.size(0), requires_grad=True) if has_bias else None
    learned = [states, weight, *([bias] if bias is not None else [])]
    plain, plain_nll = label_smoothed_cross_entropy(functional.linear(states, weight, bias), target, eps)
    chunked, chunked_nll = chunked_cross_entropy(states, weight, bias, target, eps)
    torch.testing.assert_close(chunked, plain)
    torch.testing.assert_close(chunked_nll, plain_nll)
    # As in a training step, the loss is divided by the tokens of the whole batch before it is differentiated.
    expected = torch.autograd.grad(plain / (3 * rows), learned)
    found = torch.autograd.grad(chunked / (3 * rows), learned)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("has_bias", [False, True])
def test_in_bf16_value_and_gradients_are_within_a_hundredth_of_float64(has_bias):
    states, weight, target = random_problem(2 * ROUNDED_ROWS + 7, width=64, vocab_size=199)
    bias = torch.randn(199, requires_grad=True) if has_bias else None
    learned = [states, weight, *([bias] if bias is not None else [])]
    exact = [tensor.detach().double().requires_grad_() for tensor in learned]
    logits = functional.linear(exact[0], exact[1], exact[2] if has_bias else None)
    plain, _ = label_smoothed_cross_entropy(logits, target, 0.1)
    rounded, _ = chunked_cross_entropy(states, weight, bias, target, 0.1, is_bf16=True)
    assert rounded.item() == pytest.approx(plain.item(), rel=1e-3)
    expected, found = torch.autograd.grad(plain, exact), torch.autograd.grad(rounded, learned)
    for ours, right in zip(found, expected, strict=True):
        assert (ours - right).norm() < 1e-2 * right.norm()
    assert (found[0] - expected[0]).norm() > 1e-4 * expected[0].norm()


def test_chunked_gradient_is_the_slope_of_the_loss(monkeypatch):
    monkeypatch.setattr(loss_module, "_CHUNK", 3)
    states, weight, target = random_problem(7, width=5, vocab_size=11, dtype=torch.float64)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True)
    learned = (states, weight, bias)
    assert torch.autograd.gradcheck(lambda s, w, b: chunked_cross_entropy(s, w, b, target, 0.1)[0], learned)


@pytest.mark.parametrize("has_bias", [False, True])
def test_rows_that_do_not_count_have_no_part_in_loss_or_gradient(monkeypatch, has_bias):
    monkeypatch.setattr(loss_module, "_CHUNK", 3)
    states, weight, target = random_problem(11, width=5, vocab_size=13, dtype=torch.float64)
    bias = torch.randn(13, dtype=torch.float64, requires_grad=True) if has_bias else None
    learned = [states, weight, *([bias] if bias is not None else [])]
    is_token = torch.arange(11) % 4 != 1
    logits = functional.linear(states, weight, bias)[is_token]
    expected = [
        functional.cross_entropy(logits, target[is_token], reduction="sum", label_smoothing=e) for e in (0.1, 0)
    ]
    expected_gradients = torch.autograd.grad(expected[0] / 7, learned)
    with torch.no_grad():
        states[~is_token] = 1e4
    found = chunked_cross_entropy(states, weight, bias, target, 0.1, is_token)
    torch.testing.assert_close(list(found), expected)
    torch.testing.assert_close(torch.autograd.grad(found[0] / 7, learned), expected_gradients)


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that an operation makes."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        tensors = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
        self.elements = max([self.elements, *(tensor.numel() for tensor in tensors)])
        return made


def test_on_a_gpu_memory_for_logits_is_bounded():
    """On the device `meta`, which has the chunks of a GPU and no memory."""
    rows, width, vocab_size = 10_000, 64, 32_000
    states, weight = (torch.empty(size, width, device="meta", requires_grad=True) for size in (rows, vocab_size))
    target = torch.empty(rows, dtype=torch.int32, device="meta")
    with Largest() as largest:
        chunked_cross_entropy(states, weight, None, target, 0.1, is_bf16=True)[0].backward()
    assert largest.elements == 2_048 * vocab_size


def test_the_plain_likelihood_is_for_the_log_only():
    states, weight, target = random_problem(7)
    for _, nll in (
        chunked_cross_entropy(states, weight, None, target, 0.1),
        label_smoothed_cross_entropy(states @ weight.t(), target, 0.1),
    ):
        assert not nll.requires_grad

"""Adam against its formula, and its state as plain tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.config import TrainConfig
from clearhead.errors import CheckpointError
from clearhead.files.tensors import read_weights, write_weights
from clearhead.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state

RATES = [1e-3, 2e-3, 3e-3, 2.5e-3, 2e-3]


def small_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def run(model: nn.Module, optimizer: torch.optim.Optimizer, rates: list[float], seed: int = 11) -> None:
    torch.manual_seed(seed)
    for rate in rates:
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()


def adam_by_formula(config: TrainConfig, decay: float) -> dict[str, np.ndarray]:
    """Algorithm 1 of Kingma and Ba, with the decay of Loshchilov and Hutter, in float64."""
    weights = {name: parameter.detach().double().numpy().copy() for name, parameter in small_model().named_parameters()}
    first = {name: np.zeros_like(weight) for name, weight in weights.items()}
    second = {name: np.zeros_like(weight) for name, weight in weights.items()}
    (beta1, beta2), eps = config.adam_betas, config.adam_eps
    torch.manual_seed(11)
    for step, rate in enumerate(RATES, start=1):
        for name, weight in weights.items():
            gradient = torch.randn(*weight.shape).double().numpy()
            first[name] = beta1 * first[name] + (1 - beta1) * gradient
            second[name] = beta2 * second[name] + (1 - beta2) * gradient**2
            m, v = first[name] / (1 - beta1**step), second[name] / (1 - beta2**step)
            if weight.ndim > 1:
                weight -= rate * decay * weight
            weight -= rate * m / (np.sqrt(v) + eps)
    return weights


@pytest.mark.parametrize(
    ("config", "decay"),
    [
        (TrainConfig(), 0.0),
        (TrainConfig(adam_betas=(0.8, 0.99), adam_eps=1e-3), 0.0),
        (TrainConfig(weight_decay=0.3), 0.0),  # adam has no decay
        (TrainConfig(optimizer="adamw", weight_decay=0.3), 0.3),
    ],
    ids=["paper", "other betas", "adam", "adamw"],
)
def test_five_steps_are_those_of_the_formula(config, decay):
    model = small_model()
    run(model, build_optimizer(model, config), RATES)
    for name, expected in adam_by_formula(config, decay).items():
        np.testing.assert_allclose(model.get_parameter(name).detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_adamw_decays_matrices_only():
    model, fresh = small_model(), small_model()
    optimizer = build_optimizer(model, TrainConfig(optimizer="adamw", weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    optimizer.step()
    for name, before in fresh.named_parameters():
        expected = before * (1 - 0.1 * 0.5) if before.dim() > 1 else before
        torch.testing.assert_close(model.get_parameter(name), expected)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_adam_state_resumes_bit_for_bit(kind, tmp_path):
    config = TrainConfig(optimizer=kind, weight_decay=0.1)
    whole, cut, resumed = small_model(), small_model(), small_model()
    optimizers = {id(model): build_optimizer(model, config) for model in (whole, cut, resumed)}
    run(whole, optimizers[id(whole)], RATES[:3])
    run(cut, optimizers[id(cut)], RATES[:3])

    state = optimizer_state(cut, optimizers[id(cut)])
    assert set(state) == {
        f"{name}.{key}" for name, _ in cut.named_parameters() for key in ("step", "exp_avg", "exp_avg_sq")
    }
    write_weights(tmp_path / "optimizer.safetensors", state, {})
    resumed.load_state_dict(cut.state_dict())
    load_optimizer_state(resumed, optimizers[id(resumed)], read_weights(tmp_path / "optimizer.safetensors")[0])
    for model in (whole, resumed):
        run(model, optimizers[id(model)], RATES[3:], seed=13)
    for name, weight in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], weight)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("0.weight.exp_avg", None, r"holds nothing for 0.weight.exp_avg of \(7, 5\)"),
        ("2.bias.step", None, r"holds nothing for 2.bias.step of \(3,\)"),
        ("2.weight.exp_avg_sq", torch.zeros(7, 3), r"holds \(7, 3\) for 2.weight.exp_avg_sq of \(3, 7\)"),
    ],
)
def test_state_that_does_not_fit_is_refused(name, tensor, message):
    model = small_model()
    optimizer = build_optimizer(model, TrainConfig())
    run(model, optimizer, RATES[:1])
    state = optimizer_state(model, optimizer)
    del state[name]
    if tensor is not None:
        state[name] = tensor
    with pytest.raises(CheckpointError, match=message):
        load_optimizer_state(model, optimizer, state)

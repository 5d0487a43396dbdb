"""LoRA against autograd over the thin matrices themselves, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clearhead.config import ModelConfig, TrainConfig
from clearhead.errors import CheckpointError, ConfigError
from clearhead.model.transformer import Transformer
from clearhead.training.optimizer import LowRankAdam, build_optimizer, load_optimizer_state, optimizer_state

RANK, ALPHA = 2, 6.0
ADAM = {"betas": (0.9, 0.98), "eps": 1e-9}
RATES = [1e-2, 2e-2, 3e-2, 2e-2, 1e-2, 5e-3]


def two_matrices() -> list[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(4, 5))]


def loss_of(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(11)
    inputs, wanted = torch.randn(9, 7), torch.randn(9, 4)
    return (torch.tanh(inputs @ first.t()) @ second.t() - wanted).square().mean()


def take_steps(matrices: list[nn.Parameter], optimizer: torch.optim.Optimizer, rates: list[float]) -> None:
    for rate in rates:
        optimizer.zero_grad()
        loss_of(*matrices).backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()


def test_steps_are_those_of_adam_over_the_thin_matrices():
    matrices = two_matrices()
    optimizer = LowRankAdam(matrices, rank=RANK, alpha=ALPHA, **ADAM, seed=5)
    before = [matrix.detach().clone() for matrix in matrices]
    thin = []
    for matrix in matrices:
        rows, columns = matrix.shape
        a, b = optimizer.state[matrix]["thin"].clone().split([columns, rows], dim=1)
        assert a.abs().max() <= columns**-0.5
        assert not b.any()
        thin.append((nn.Parameter(b.t().clone()), nn.Parameter(a.clone())))
    adam = torch.optim.Adam([matrix for pair in thin for matrix in pair], **ADAM)
    for rate in RATES:
        adam.zero_grad()
        loss_of(*(start + ALPHA / RANK * (b @ a) for start, (b, a) in zip(before, thin, strict=True))).backward()
        adam.param_groups[0]["lr"] = rate
        adam.step()
    take_steps(matrices, optimizer, RATES)
    for matrix, start, (b, a) in zip(matrices, before, thin, strict=True):
        torch.testing.assert_close(matrix.detach(), (start + ALPHA / RANK * (b @ a)).detach(), atol=1e-5, rtol=1e-5)
        sizes = torch.linalg.svdvals(matrix.detach() - start)
        assert sizes[RANK - 1] > 1e-3
        assert sizes[RANK] < 1e-5 * sizes[0]


def model_and_optimizer(config: TrainConfig) -> tuple[Transformer, torch.optim.Optimizer]:
    torch.manual_seed(1)
    shape = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}
    model = Transformer(ModelConfig(vocab_size=20, **shape))
    return model, build_optimizer(model, config)


def step(model: Transformer, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(2)
    ids = torch.randint(4, 20, (3, 6))
    model.eval()(ids, ids).square().mean().backward()
    optimizer.param_groups[0]["lr"] = 1e-2
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(("freeze", "still"), [((), ()), (("encoder",), ("encoder.",))])
def test_matrices_inside_layers_move_and_nothing_else(freeze, still):
    model, optimizer = model_and_optimizer(TrainConfig(lora_rank=2, freeze=freeze))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for _ in range(2):
        step(model, optimizer)
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    hidden = {name for name, weight in before.items() if ".layers." in name and weight.dim() == 2}
    assert moved == {name for name in hidden if not name.startswith(still)}


def test_low_rank_optimizer_state_resumes_bit_for_bit():
    config = TrainConfig(lora_rank=3)
    (whole, first), (cut, second), (resumed, third) = (model_and_optimizer(config) for _ in range(3))
    for _ in range(2):
        step(whole, first)
        step(cut, second)
    resumed.load_state_dict(cut.state_dict())
    state = optimizer_state(cut, second)
    load_optimizer_state(resumed, third, state)
    step(whole, first)
    step(resumed, third)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    name = next(name for name in state if name.endswith(".thin"))
    with pytest.raises(CheckpointError, match=r"holds \(1, 2\) for .*\.thin"):
        load_optimizer_state(resumed, third, {**state, name: torch.zeros(1, 2)})
    with pytest.raises(CheckpointError, match=r"holds nothing for source_embedding\.weight\.step"):
        load_optimizer_state(resumed, build_optimizer(resumed, TrainConfig()), state)


def test_a_rank_that_no_matrix_has_is_refused():
    with pytest.raises(
        ConfigError, match=r"train\.lora_rank \(9\) must be at most 8, the rank of the model's smallest"
    ):
        model_and_optimizer(TrainConfig(lora_rank=9))
    with pytest.raises(ConfigError, match="leaves nothing to train"):
        model_and_optimizer(TrainConfig(lora_rank=2, freeze=("encoder", "decoder")))
    with pytest.raises(ConfigError, match=r"adapters moved by Adam, so train\.optimizer must be 'adam', not 'muon'"):
        TrainConfig(lora_rank=2, optimizer="muon")

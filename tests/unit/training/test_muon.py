"""Muon: orthogonal updates for hidden matrices, the same as PyTorch's own, and Adam for everything else."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig, TrainConfig
from clearhead.errors import CheckpointError
from clearhead.model import Transformer
from clearhead.training.optimizer import (
    Muon,
    build_optimizer,
    compiled_muon_directions,
    load_optimizer_state,
    optimizer_state,
    orthogonalised,
)
from processes import call


@pytest.fixture
def model():
    return Transformer(ModelConfig(vocab_size=37, d_model=26, d_ff=19, num_heads=13, num_encoder_layers=1))


def step(model, optimizer, rate=0.01):
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


def muon(model, **settings):
    return build_optimizer(model, TrainConfig(optimizer="muon", **settings))


@pytest.mark.parametrize("shape", [(3, 17, 29), (2, 31, 13), (1, 11, 11)])
def test_orthogonalised_matrix_has_singular_values_near_1(shape):
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
    assert values.min().item() > 0.3
    assert values.max().item() < 1.3


def test_each_matrix_is_orthogonalised_by_itself():
    matrices = torch.randn(3, 17, 29)
    alone = orthogonalised(matrices[1:2], rounded=False)
    torch.testing.assert_close(orthogonalised(matrices, rounded=False)[1:2], alone, rtol=1e-4, atol=1e-5)


def compile_directions() -> None:
    """Move matrices of three shapes together, compiled, and each alone; a break of the graph raises."""
    shapes = [(17, 29), (29, 13), (17, 29), (11, 11), (29, 13), (17, 29)]
    draw = torch.Generator().manual_seed(3)
    starts = [torch.randn(shape, generator=draw) for shape in shapes]
    together = [torch.nn.Parameter(start.clone()) for start in starts]
    alone = [torch.nn.Parameter(start.clone()) for start in starts]
    settings = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.1, "rounded": False}
    whole = Muon(together, [], **settings)
    whole.found_inf = torch.zeros(())
    whole.compiled = compiled_muon_directions(backend="aot_eager")
    single = [Muon([matrix], [], **settings) for matrix in alone]
    for optimizer in (whole, *single):
        optimizer.param_groups[0]["lr"] = torch.tensor(0.05) if optimizer is whole else 0.05
    for number in range(3):
        for ours, other in zip(together, alone, strict=True):
            ours.grad = torch.randn(ours.shape, generator=draw)
            other.grad = ours.grad.clone()
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            whole.step()
        for optimizer in single:
            optimizer.step()
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_compiled_directions_are_one_graph_and_those_of_each_matrix_alone():
    assert call(compile_directions) == 0


@pytest.mark.parametrize(("precision", "rounded"), [("fp32", False), ("auto", True), ("bf16", True)])
def test_iterations_are_rounded_where_the_processor_can_unless_fp32_is_asked_for(
    model, monkeypatch, precision, rounded
):
    kinds = set()
    add = torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda x, *rest, **more: kinds.add(x.dtype) or add(x, *rest, **more))
    for can_round in (False, True):
        monkeypatch.setattr("clearhead.training.optimizer.has_fast_bf16", lambda device, can_round=can_round: can_round)
        kinds.clear()
        step(model, muon(model, precision=precision))
        assert kinds == {torch.bfloat16 if rounded and can_round else torch.float32}


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon to compare with")
def test_matrices_move_as_with_the_muon_of_pytorch():
    ours = torch.nn.Parameter(torch.randn(17, 29))
    theirs = torch.nn.Parameter(ours.detach().clone())
    mine = Muon([ours], [], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.05, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    mine.param_groups[0]["lr"] = 0.05
    start = ours.detach().clone()
    for _ in range(3):
        ours.grad = torch.randn(17, 29)
        theirs.grad = ours.grad.clone()
        mine.step()
        reference.step()
    # PyTorch's iterates in bfloat16, which has 8 significant bits.
    torch.testing.assert_close(ours - start, theirs - start, rtol=0.05, atol=0.01)


def test_embeddings_biases_and_norms_move_as_with_adam_at_three_tenths_of_the_rate(model):
    other = Transformer(model.config)
    other.load_state_dict(model.state_dict())
    step(model, muon(model), rate=0.01)
    step(other, build_optimizer(other, TrainConfig()), rate=0.3 * 0.01)
    adams = dict(other.named_parameters())
    same = {name for name, parameter in model.named_parameters() if torch.equal(parameter, adams[name])}
    hidden = {name for name, p in model.named_parameters() if p.dim() > 1 and name.startswith(("encoder", "decoder"))}
    assert same == set(adams) - hidden


def test_relative_positions_are_a_table_and_move_as_embeddings_do(make_model):
    model = make_model(positions="relative")
    optimizer = muon(model)
    for name, parameter in model.named_parameters():
        is_matrix = parameter.dim() > 1 and name.startswith(("encoder.layers.", "decoder.layers."))
        assert optimizer.moves_as_matrix(parameter) == is_matrix, name


def test_muon_state_resumes_bit_for_bit(model):
    cut = Transformer(model.config)
    cut.load_state_dict(model.state_dict())
    whole = muon(model)
    first = muon(cut)
    step(model, whole)
    step(cut, first)
    resumed = muon(cut)
    load_optimizer_state(cut, resumed, {n: t.clone() for n, t in optimizer_state(cut, first).items()})
    step(model, whole)
    step(cut, resumed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), cut.parameters(), strict=True))


def test_the_state_of_another_optimiser_is_refused(model):
    adam = build_optimizer(model, TrainConfig())
    step(model, adam)
    with pytest.raises(CheckpointError, match="momentum"):
        load_optimizer_state(model, muon(model), optimizer_state(model, adam))

"""One optimiser step: cutting and padding change nothing, randomness follows the step, insanity leaves the weights."""

from __future__ import annotations

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from one_step import BOS, EOS, PAD, VOCAB_SIZE, batch_of, gradients, stepper_of
from torch import Tensor
from torch.nn import functional

from clearhead.config import TrainConfig
from clearhead.data.batches import Batch, collate
from clearhead.data.store import PairStore, StoreWriter
from clearhead.errors import ConfigError
from clearhead.kernels.bf16_linear import are_products_bf16
from clearhead.runtime.device import can_multiply_bf16
from clearhead.training.step import Stepper, StepResult, uses_bf16

LENGTHS = [(3, 11), (7, 2), (2, 7), (13, 5), (5, 3), (11, 13), (1, 1)]


@pytest.fixture
def store(tmp_path) -> PairStore:
    choose = np.random.default_rng(3)
    with StoreWriter(tmp_path / "pairs.arrow") as writer:
        for source, target in LENGTHS:
            ids = [[*choose.integers(3, VOCAB_SIZE, length - 1).tolist(), EOS] for length in (source, target)]
            writer.append("", "", *ids)
    return PairStore.open(tmp_path / "pairs.arrow")


def weights_of(stepper: Stepper) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in stepper.model.state_dict().items()}


def norm_of(grads: dict[str, Tensor]) -> float:
    return torch.cat([grad.flatten() for grad in grads.values()]).norm().item()


CUTS = {
    "two": [(0, 1, 2), (3, 4, 5, 6)],
    "single": [(row,) for row in range(7)],
    "other order": [(6, 2), (5,), (0, 4, 1, 3)],
}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_accumulated_gradient_is_that_of_one_big_batch(store, cut, dropout):
    model = {"attention_dropout": dropout, "feed_forward_dropout": dropout}
    whole, at_once = gradients(stepper_of(dropout=dropout, model=model), [batch_of(store)])
    parts, cut_up = gradients(stepper_of(dropout=dropout, model=model), [batch_of(store, *rows) for rows in cut])
    assert whole.keys() == parts.keys() == dict(stepper_of().model.named_parameters()).keys()
    assert cut_up.loss == pytest.approx(at_once.loss, rel=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-5, atol=1e-6)


def test_accumulation_leads_to_the_same_weights(store):
    # In float64, where the noise of sums is far below Adam's epsilon: it would blow up noise where a gradient is zero.
    whole, parts = stepper_of(torch.float64, clip_norm=0.5), stepper_of(torch.float64, clip_norm=0.5)
    for number in range(1, 6):
        whole.step([batch_of(store)], number=number, rate=1e-2)
        parts.step([batch_of(store, *rows) for rows in CUTS["two"]], number=number, rate=1e-2)
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=0, atol=1e-7)
    assert (
        weights_of(whole)["source_embedding.weight"] - stepper_of().model.source_embedding.weight
    ).abs().max() > 0.02


def test_loss_and_gradient_are_those_of_the_formula(store):
    stepper = stepper_of(label_smoothing=0.1)
    batch = batch_of(store)
    logits = stepper.model(batch.source, batch.target_in)
    expected = functional.cross_entropy(
        logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=0.1
    )
    likelihood = functional.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
    names, parameters = zip(*stepper.model.named_parameters(), strict=True)
    slope = dict(zip(names, torch.autograd.grad(expected, parameters), strict=True))

    found, result = gradients(stepper, [batch])
    assert result.loss == pytest.approx(expected.item(), rel=1e-5)
    assert result.nll == pytest.approx(likelihood.item(), rel=1e-5)
    assert result.target_tokens == sum(target for _, target in LENGTHS)
    assert result.grad_norm == pytest.approx(norm_of(slope), rel=1e-4)
    torch.testing.assert_close(found, slope, rtol=1e-4, atol=1e-6)


def test_extra_padding_does_not_change_loss_and_gradient(store):
    batch = batch_of(store)

    def wider(ids: Tensor, by: int) -> Tensor:
        return functional.pad(ids, (0, by), value=PAD)

    padded = Batch(
        wider(batch.source, 5),
        wider(batch.target_in, 3),
        wider(batch.target_out, 3),
        batch.num_target_tokens,
        batch.rows,
        batch.copies,
    )
    (found, longer), (expected, usual) = (gradients(stepper_of(), [one]) for one in (padded, batch))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert longer.loss == pytest.approx(usual.loss, rel=1e-5)


def test_long_gradients_are_clipped_to_the_norm_and_short_ones_left(store):
    free, _ = gradients(stepper_of(), [batch_of(store)])
    norm = norm_of(free)
    clipped, _ = gradients(stepper_of(clip_norm=norm / 3), [batch_of(store)])
    assert norm_of(clipped) == pytest.approx(norm / 3, rel=1e-4)
    torch.testing.assert_close(clipped, {name: grad / 3 for name, grad in free.items()}, rtol=1e-3, atol=1e-7)
    left, _ = gradients(stepper_of(clip_norm=norm * 3), [batch_of(store)])
    torch.testing.assert_close(left, free, rtol=1e-6, atol=0)
    reported = stepper_of(clip_norm=norm / 3).step([batch_of(store)], number=1, rate=0.0).grad_norm
    assert reported == pytest.approx(norm, rel=1e-5)


def test_dropout_follows_from_seed_and_step_alone(store):
    def loss_of(seed: int, number: int, before: int) -> float:
        stepper = stepper_of(dropout=0.3, seed=seed)
        torch.manual_seed(before)
        torch.rand(before)
        return gradients(stepper, [batch_of(store)], number)[1].loss

    assert loss_of(1, 7, before=11) == loss_of(1, 7, before=23)
    others = {loss_of(1, 7, before=0), loss_of(1, 8, before=0), loss_of(2, 7, before=0), loss_of(2, 8, before=0)}
    assert len(others) == 4


def test_copies_of_a_pair_in_a_step_draw_their_own_dropout_however_the_step_is_cut(store):
    def gradient(*copies: list[int]) -> dict[str, Tensor]:
        batches = [collate(store, [2] * len(some), copies=some, pad_id=PAD, bos_id=BOS) for some in copies]
        stepper = stepper_of(dropout=0.3)
        return gradients(stepper, batches)[0]

    one, other, both = gradient([0]), gradient([1]), gradient([0, 1])
    assert max((one[name] - other[name]).abs().max() for name in one) > 1e-3
    mean = {name: (one[name] + other[name]) / 2 for name in one}
    torch.testing.assert_close(both, mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradient([0], [1]), mean, rtol=1e-4, atol=1e-6)


def test_step_uses_its_rate_and_clears_gradients(store):
    stepper = stepper_of()
    before = weights_of(stepper)
    stepper.step([batch_of(store)], number=1, rate=0.0)
    torch.testing.assert_close(weights_of(stepper), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in stepper.model.parameters())
    first, _ = gradients(stepper, [batch_of(store)])
    second, _ = gradients(stepper, [batch_of(store)])
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    stepper.step([batch_of(store)], number=2, rate=1e-3)
    assert max((weights_of(stepper)[name] - before[name]).abs().max() for name in before) > 1e-4


def assert_skipped(stepper: Stepper, batch: Batch) -> StepResult:
    """Require that a step changes nothing, and return its measurements."""
    before = deepcopy((weights_of(stepper), stepper.optimizer.state_dict()["state"]))
    result = stepper.step([batch], number=17, rate=1e-3)
    after = weights_of(stepper), stepper.optimizer.state_dict()["state"]
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    assert all(parameter.grad is None for parameter in stepper.model.parameters())
    assert result.is_skipped
    return result


def test_nan_stops_before_it_reaches_the_weights(store):
    stepper = stepper_of(clip_norm=1.0)
    with torch.no_grad():
        stepper.model.encoder.layers[0].feed_forward.up_proj.weight[2, 3] = torch.nan
    assert math.isnan(assert_skipped(stepper, batch_of(store)).nll)


def test_an_infinite_gradient_stops_before_it_reaches_the_weights(store, monkeypatch):
    stepper = stepper_of()
    handle = stepper.model.source_embedding.weight.register_hook(lambda grad: grad * torch.inf)
    result = assert_skipped(stepper, batch_of(store))
    assert math.isfinite(result.nll)
    assert not math.isfinite(result.grad_norm)
    handle.remove()
    assert not stepper.step([batch_of(store)], number=18, rate=1e-3).is_skipped


def test_a_step_whose_loss_is_twice_that_of_blind_guessing_is_skipped(store):
    stepper = stepper_of()
    stepper.step([batch_of(store)], number=1, rate=30.0)  # the damage is done after the loss was measured
    assert assert_skipped(stepper, batch_of(store)).nll >= 2 * math.log(37)


@pytest.mark.parametrize(("has_amx", "has_avx"), [(True, False), (False, True), (False, False)])
def test_bf16_on_a_cpu_that_has_instructions_for_it(monkeypatch, has_amx, has_avx):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_avx)
    cpu = torch.device("cpu")
    assert uses_bf16(TrainConfig(precision="bf16"), cpu) == (has_amx or has_avx)
    assert uses_bf16(TrainConfig(precision="auto"), cpu) == (has_amx or has_avx)
    assert not uses_bf16(TrainConfig(precision="fp32"), cpu)
    assert not uses_bf16(TrainConfig(precision="auto", compile=True), cpu)
    with pytest.raises(ConfigError, match="leave one of them out"):
        uses_bf16(TrainConfig(precision="bf16", compile=True), cpu)


def test_precision_is_fp32_on_a_cpu_without_bf16(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert stepper_of(precision="bf16").precision == "fp32"


def test_a_step_in_bf16_changes_no_process_wide_switch(store, switches):
    stepper, batch = stepper_of(precision="bf16"), batch_of(store, *list(range(len(store))) * 4)
    with switches:
        stepper.step([batch], number=1, rate=1e-3)
    assert "mm" in switches.operations
    assert len(switches.seen) == 1


def test_bf16_is_close_to_fp32_and_keeps_the_weights_in_fp32(store):
    exact, rough = stepper_of(), stepper_of(precision="bf16")
    batch = batch_of(store, *range(len(store)), *range(len(store)), *range(len(store)), *range(len(store)))
    for number in range(1, 4):
        expected = exact.step([batch], number=number, rate=1e-3)
        found = rough.step([batch], number=number, rate=1e-3)
        assert found.loss == pytest.approx(expected.loss, rel=2e-2)
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=5e-2)
        assert not can_multiply_bf16() or found.loss != expected.loss
    assert not are_products_bf16()  # what comes after the step is exact again
    assert {tensor.dtype for tensor in weights_of(rough).values()} == {torch.float32}

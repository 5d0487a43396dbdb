"""The loss and the training step on the CPU and on a GPU, each against plain PyTorch on the CPU."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import Batch
from clearhead.model import Transformer
from clearhead.runtime.device import has_fast_bf16
from clearhead.training.log import read_metrics
from clearhead.training.loss import chunked_cross_entropy, label_smoothed_cross_entropy
from clearhead.training.optimizer import build_optimizer
from clearhead.training.run import train_from_values
from clearhead.training.step import Stepper
from clearhead.translation.translator import Translator
from every_run import slow
from small_runs import tiny_settings, write_numbers

PAD, BOS, EOS = 0, 1, 2
VOCAB_SIZE = 37
SMOOTHING = 0.1
RATE = 3e-3
GPU = "cuda"


def copied(tensor: Tensor, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Tensor:
    return tensor.detach().to(device, dtype).requires_grad_()


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 256, 521])
def test_both_losses_have_the_value_and_gradients_of_cross_entropy(device, rows, has_bias):
    drawn = [torch.randn(rows, 11), torch.randn(VOCAB_SIZE, 11), *([torch.randn(VOCAB_SIZE)] if has_bias else [])]
    target = torch.randint(VOCAB_SIZE, (rows,))
    exact = [copied(tensor, "cpu", torch.float64) for tensor in drawn]
    logits = functional.linear(*exact)
    right = functional.cross_entropy(logits, target, reduction="sum", label_smoothing=SMOOTHING)
    right_nll = functional.cross_entropy(logits, target, reduction="sum")
    slopes = torch.autograd.grad(right / (3 * rows), exact)

    for name in ("plain", "chunked"):
        states, weight, *rest = learned = [copied(tensor, device) for tensor in drawn]
        bias = rest[0] if rest else None
        if name == "plain":
            loss, nll = label_smoothed_cross_entropy(
                functional.linear(states, weight, bias), target.to(device), SMOOTHING
            )
        else:
            loss, nll = chunked_cross_entropy(states, weight, bias, target.to(device), SMOOTHING)
        assert loss.device.type == device.type, name
        assert loss.item() == pytest.approx(right.item(), rel=1e-5), name
        assert nll.item() == pytest.approx(right_nll.item(), rel=1e-5), name
        for found, slope in zip(torch.autograd.grad(loss / (3 * rows), learned), slopes, strict=True):
            torch.testing.assert_close(found.cpu().double(), slope, rtol=1e-4, atol=1e-6)


def random_batch(rows: int = 28) -> Batch:
    """Pairs of very different lengths, all in one padded batch."""
    source, target_in, target_out = (torch.full((rows, 14), PAD) for _ in range(3))
    lengths = torch.randint(1, 14, (rows, 2)).tolist()
    for row, (source_length, target_length) in enumerate(lengths):
        source[row, :source_length] = torch.randint(3, VOCAB_SIZE, (source_length,))
        words = torch.randint(3, VOCAB_SIZE, (target_length - 1,))
        target_in[row, :target_length] = torch.cat([torch.tensor([BOS]), words])
        target_out[row, :target_length] = torch.cat([words, torch.tensor([EOS])])
    return Batch(source, target_in, target_out, sum(length for _, length in lengths), tuple(range(rows)), (0,) * rows)


def new_model(dropout: float = 0.0) -> Transformer:
    shape = {"d_model": 26, "d_ff": 19, "num_heads": 13, "num_encoder_layers": 2, "num_decoder_layers": 3}
    return Transformer(ModelConfig(vocab_size=VOCAB_SIZE, **shape, dropout=dropout, norm="pre"))


def stepper_on(device: torch.device | str, model: Transformer, precision: str) -> Stepper:
    """Return a stepper of a copy of the model."""
    settings = TrainConfig(clip_norm=0.0, label_smoothing=SMOOTHING, precision=precision)
    moved = deepcopy(model).to(device).train()
    return Stepper(moved, build_optimizer(moved, settings), settings)


class PlainTraining:
    """The same steps as the textbook has them: all logits, the mean of cross-entropy, Adam; in float64 on the CPU."""

    def __init__(self, model: Transformer) -> None:
        self.model = deepcopy(model).double().train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)

    def step(self, batch: Batch) -> tuple[float, float]:
        """Return the loss a token and the norm of its gradient."""
        logits = self.model(batch.source, batch.target_in).flatten(0, 1)
        loss = functional.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm().item()
        self.optimizer.step()
        return loss.item(), norm


@pytest.mark.parametrize(("precision", "loss_error", "norm_error"), [("fp32", 1e-4, 1e-3), ("bf16", 2e-2, 5e-2)])
def test_training_steps_follow_plain_training_on_the_cpu(device, precision, loss_error, norm_error):
    model, batch = new_model(), random_batch()
    plain, ours = PlainTraining(model), stepper_on(device, model, precision)
    for number in range(1, 6):
        loss, norm = plain.step(batch)
        found = ours.step([batch], number=number, rate=RATE)
        assert found.loss == pytest.approx(loss, rel=loss_error)
        assert found.grad_norm == pytest.approx(norm, rel=norm_error)
        assert found.target_tokens == (batch.target_out != PAD).sum()
    assert {weight.dtype for weight in ours.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("precision", [slow("fp32"), "bf16"])
def test_the_loss_of_a_batch_that_is_seen_again_and_again_falls(device, precision):
    ours, batch = stepper_on(device, new_model(), precision), random_batch()
    losses = [ours.step([batch], number=number, rate=RATE).loss for number in range(1, 18)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.gpu
def test_a_gpu_rounds_products_in_bf16_and_only_there():
    model, batch = new_model(), random_batch()
    exact, rounded = (stepper_on(GPU, model, precision) for precision in ("fp32", "bf16"))
    assert (exact.precision, rounded.precision) == ("fp32", "bf16")
    assert exact.step([batch], number=1, rate=0.0).loss != rounded.step([batch], number=1, rate=0.0).loss
    assert not torch.is_autocast_enabled("cuda")  # what comes after the step is exact again
    assert stepper_on(GPU, model, "auto").is_bf16 == has_fast_bf16(torch.device(GPU))


@pytest.mark.gpu
def test_dropout_on_a_gpu_follows_from_the_step():
    model, batch = new_model(dropout=0.3), random_batch()

    def loss_of(number: int, before: int) -> float:
        ours = stepper_on(GPU, model, "fp32")
        torch.rand(before, device=GPU)
        return ours.step([batch], number=number, rate=0.0).loss

    assert loss_of(7, before=11) == loss_of(7, before=23)
    assert abs(loss_of(7, before=11) - loss_of(8, before=11)) > 1e-3


@pytest.mark.gpu
def test_run_on_a_gpu_resumes_and_its_model_translates_on_the_cpu(tmp_path):
    write_numbers(tmp_path / "numbers.tsv")
    for max_steps in (20, 40):
        run = train_from_values(tiny_settings(tmp_path, {"device": GPU, "train": {"max_steps": max_steps}})).run
    losses = {line["step"]: line["nll"] for line in read_metrics(run / "metrics.jsonl") if line["split"] == "valid"}
    assert list(losses) == [14, 20, 28, 40]
    assert losses[40] < losses[14]
    assert len(Translator.load(run, device="cpu").translate(["drei null", "acht"])) == 2

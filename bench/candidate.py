"""A model of some library and its training step, the same for all but for the library's model and loss.

Every step is a forward pass, the label-smoothed loss of the target tokens, its gradient, clipping to norm 1 and Adam.
All use PyTorch's fused Adam, also the peers, whose own trainers mostly do not. Parameters start alike: matrices
Xavier-uniform, embeddings normal with deviation d_model ** -0.5, biases 0, norms 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import Batch
from clearhead.model import Transformer
from clearhead.training.optimizer import build_optimizer
from clearhead.training.packed_batches import PackedShape
from clearhead.training.packed_step import PackedStepper
from clearhead.training.step import Stepper

__all__ = ["SMOOTHING", "Candidate", "Loss", "Precision", "clearhead", "peer"]

Precision = Literal["fp32", "bf16"]

RATE = 5e-4
SMOOTHING = 0.1
"""Label smoothing."""

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From source, target_in and target_out to the loss, summed over the target tokens."""


@dataclass
class Candidate:
    """A model and its training step."""

    name: str
    model: nn.Module
    step: Callable[[Batch, int], float | Tensor]
    """Train on a batch, as step number n from 1; return the loss for each target token, in nats, without waiting."""
    differences: dict[str, int] = field(default_factory=dict)
    """What the library's model has more (or fewer) of than clearhead's, in parameters."""
    prepare: Callable[[Sequence[Batch]], None] = lambda _: None
    """Called first, with all batches."""

    @property
    def num_parameters(self) -> int:
        """Trained weights; a shared matrix counts once."""
        return sum(weight.numel() for weight in self.model.parameters() if weight.requires_grad)


def clearhead(config: ModelConfig, device: torch.device, precision: Precision) -> Candidate:
    """Return clearhead, trained by what `clearhead train` runs."""
    settings = TrainConfig(label_smoothing=SMOOTHING, precision=precision)
    model = Transformer(config).to(device).train()
    optimizer = build_optimizer(model, settings)
    if device.type == "cuda" and precision == "bf16":
        packed = PackedTraining(model, optimizer, settings)
        return Candidate("clearhead", model, packed.step, prepare=packed.prepare)
    stepper = Stepper(model, optimizer, settings)
    return Candidate("clearhead", model, lambda batch, number: stepper.step([batch], number=number, rate=RATE).loss)


class PackedTraining:
    """Packed batches, as `clearhead train` packs them in a thread: here before the first step."""

    def __init__(self, model: Transformer, optimizer: torch.optim.Optimizer, settings: TrainConfig) -> None:
        self.parts = model, optimizer, settings
        self.special = {"pad_id": model.config.pad_id, "bos_id": model.config.bos_id}

    def prepare(self, batches: Sequence[Batch]) -> None:
        """Pack all batches, and make the stepper for their shape."""
        pad_id = self.special["pad_id"]
        texts = {
            batch.rows: [[row[row != pad_id].numpy() for row in side] for side in (batch.source, batch.target_out)]
            for batch in batches
        }
        lengths = ([np.array([*map(len, side)]) for side in sides] for sides in texts.values())
        shape = PackedShape.of((source, target) for source, target in lengths)
        self.numbers = {rows: shape.pack(*sides, **self.special) for rows, sides in texts.items()}
        model, *rest = self.parts
        is_gpu = model.device.type == "cuda"
        if is_gpu:
            self.numbers = {rows: numbers.pin_memory() for rows, numbers in self.numbers.items()}
        self.stepper = PackedStepper(model, *rest, shape, is_compiled=is_gpu)

    def step(self, batch: Batch, number: int) -> Tensor:
        """Train on a batch, as step `number`, and return the loss for each target token."""
        tokens = batch.num_target_tokens
        measured = self.stepper.step([self.numbers[batch.rows]], number=number, rate=RATE, tokens=tokens)
        if number % 25 == 0:
            self.stepper.results()
        return measured[0] / tokens


def peer(
    name: str,
    model: nn.Module,
    loss: Loss,
    config: ModelConfig,
    device: torch.device,
    precision: Precision,
    differences: dict[str, int],
) -> Candidate:
    """Return a candidate that is trained by a plain loop.

    Args:
        name: Of the library.
        model: With any weights, on any device.
        loss: Of that model.
        config: What the model was made from.
        device: Where it trains.
        precision: Of matrix products; bf16 comes with all that torch.autocast does.
        differences: See `Candidate`.
    """
    _reset_parameters(model, config)
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Batch, number: int) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        ids = (tensor.to(device, non_blocking=True) for tensor in (batch.source, batch.target_in, batch.target_out))
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            total = loss(*ids)
        (total / batch.num_target_tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return total.detach() / batch.num_target_tokens

    return Candidate(name, model, step, differences)


def _reset_parameters(model: nn.Module, config: ModelConfig) -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.MultiheadAttention):
            for part in module.in_proj_weight.data.chunk(3):
                nn.init.xavier_uniform_(part)
            nn.init.zeros_(module.in_proj_bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    for module in model.modules():  # last, for the output projection is one of them
        if isinstance(module, nn.Embedding) and module.num_embeddings == config.vocab_size:
            nn.init.normal_(module.weight, std=config.d_model**-0.5)

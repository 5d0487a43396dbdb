"""One optimiser step of a small model over stored pairs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig, TrainConfig
from clearhead.data.batches import Batch, collate
from clearhead.data.store import PairStore
from clearhead.model import Transformer
from clearhead.training.optimizer import build_optimizer
from clearhead.training.step import Stepper, StepResult

PAD, BOS, EOS, VOCAB_SIZE = 0, 1, 2, 37


def batch_of(store: PairStore, *rows: int) -> Batch:
    return collate(store, rows or range(len(store)), pad_id=PAD, bos_id=BOS)


def stepper_of(
    dtype: torch.dtype = torch.float32, dropout: float = 0.0, model: dict[str, Any] | None = None, **train: Any
) -> Stepper:
    torch.manual_seed(5)
    sizes = {"d_model": 26, "d_ff": 19, "num_heads": 13, "num_encoder_layers": 2, "num_decoder_layers": 3}
    config = ModelConfig(**{"vocab_size": VOCAB_SIZE, **sizes, "dropout": dropout, "norm": "pre", **(model or {})})
    transformer = Transformer(config).to(dtype).train()
    settings = TrainConfig(**{"clip_norm": 0.0, "precision": "fp32", **train})
    return Stepper(transformer, build_optimizer(transformer, settings), settings)


def gradients(stepper: Stepper, parts: list[Batch], number: int = 1) -> tuple[dict[str, Tensor], StepResult]:
    """Make one step at rate 0 and return the gradient the optimiser was given, and what was measured."""
    seen: dict[str, Tensor] = {}

    def note(*_: object) -> None:
        seen.update({name: p.grad.clone() for name, p in stepper.model.named_parameters() if p.grad is not None})

    hook = stepper.optimizer.register_step_pre_hook(note)
    result = stepper.step(parts, number=number, rate=0.0)
    hook.remove()
    return seen, result

"""Optimisers (Adam in paper section 5.3, and others), the weights they train, and their state as named tensors.

The tensors are saved without pickle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.errors import CheckpointError, ConfigError
from clearhead.training.distributed import part_like
from clearhead.training.low_rank import LowRankAdam
from clearhead.training.muon import Muon

_PART = re.compile(r"embeddings|(encoder|decoder)(\.layers\.\d+)?")
_LAYERS = ("encoder.layers.", "decoder.layers.")  # relative-position tables count as embeddings


def weights_to_train(model: nn.Module, config: TrainConfig) -> dict[str, nn.Parameter]:
    """Return the weights that training updates, by name.

    Args:
        model: A Transformer.
        config: Training settings. `freeze` names parts that are not trained: `embeddings`, `encoder`, `decoder`, or
            layers such as `decoder.layers.0`; a matrix shared by several parts belongs to the embeddings. With
            `lora_rank`, only matrices inside layers are trained.

    Raises:
        ConfigError: If a named part does not exist, nothing is left to train, or the LoRA rank exceeds that of a
            matrix.
    """
    named = dict(model.named_parameters())
    moving = {name: weight for name, weight in named.items() if not config.lora_rank or _is_hidden(name, weight)}
    for part in config.freeze:
        names = ("source_embedding.", "target_embedding.") if part == "embeddings" else (f"{part}.",)
        if not _PART.fullmatch(part) or not any(name.startswith(names) for name in named):
            raise ConfigError(
                f"train.freeze: the model has no part {part!r:.100}; parts are embeddings, encoder, decoder, and "
                f"layers such as encoder.layers.0"
            )
        moving = {name: weight for name, weight in moving.items() if not name.startswith(names)}
    if not moving:
        raise ConfigError(f"train.freeze = {list(config.freeze)} leaves nothing to train")
    if config.lora_rank and (least := min(min(weight.shape) for weight in moving.values())) < config.lora_rank:
        raise ConfigError(
            f"train.lora_rank ({config.lora_rank}) must be at most {least}, the rank of the model's smallest matrix"
        )
    return moving


def _is_hidden(name: str, weight: nn.Parameter) -> bool:
    return weight.dim() > 1 and name.startswith(_LAYERS)


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the configured optimiser over `weights_to_train`; all other weights get `requires_grad` = False.

    Weight decay applies to matrices only: biases and norm weights gain nothing from small values.
    """
    named = weights_to_train(model, config)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name in named)
    betas, eps, decay = config.adam_betas, config.adam_eps, config.weight_decay
    if config.lora_rank:
        rank, alpha = config.lora_rank, config.lora_alpha
        return LowRankAdam(named.values(), rank=rank, alpha=alpha, betas=betas, eps=eps, seed=config.seed)
    if config.optimizer == "muon":
        hidden = [weight for name, weight in named.items() if _is_hidden(name, weight)]
        others = [weight for name, weight in named.items() if not _is_hidden(name, weight)]
        rounded = config.precision != "fp32" and not config.plain
        return Muon(hidden, others, betas=betas, eps=eps, weight_decay=decay, rounded=rounded)
    matrices = [weight for weight in named.values() if weight.dim() > 1]
    vectors = [weight for weight in named.values() if weight.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": decay if config.optimizer == "adamw" else 0.0},
        {"params": vectors, "weight_decay": 0.0},
    ]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(groups, lr=0.0, betas=betas, eps=eps, fused=True)


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state tensors, named `parameter.key`, such as `source_embedding.weight.exp_avg`."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load saved state tensors into an optimiser.

    Raises:
        CheckpointError: If a parameter has no saved state, or state of another shape.
    """
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # frozen weights have no optimiser state
        shapes = _state_shapes(optimizer, parameter)
        saved = {key: tensors.get(f"{name}.{key}") for key in shapes}
        for key, tensor in saved.items():
            if tensor is None or tensor.shape != shapes[key]:
                found = "nothing" if tensor is None else tuple(tensor.shape)
                raise CheckpointError(
                    f"optimizer.safetensors holds {found} for {name}.{key} of {tuple(parameter.shape)}"
                )
        # Adam keeps its step count on the CPU unless it is capturable or fused; here it moves with the parameter. A
        # copy is aligned in memory like the original: products of tensors at their alignment in the file may differ in
        # the last bit.
        optimizer.state[parameter] = {
            key: part_like(tensor.to(parameter.device, copy=True), parameter)
            for key, tensor in saved.items()
            if tensor is not None
        }


def _state_shapes(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> Mapping[str, torch.Size]:
    if isinstance(optimizer, LowRankAdam):
        return optimizer.state_shapes(parameter)
    if isinstance(optimizer, Muon) and optimizer.moves_as_matrix(parameter):
        return {"momentum": parameter.shape}
    return {"step": torch.Size(()), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}

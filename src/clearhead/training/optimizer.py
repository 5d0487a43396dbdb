"""Adam (paper section 5.3) and others, and their state as named tensors that can be saved without pickle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.errors import CheckpointError, ConfigError
from clearhead.training.muon import Muon

__all__ = ["build_optimizer", "freeze", "load_optimizer_state", "optimizer_state", "weights_of"]

_PART = re.compile(r"embeddings|(encoder|decoder)(\.layers\.\d+)?")


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Leave the weights of some parts as they are; see `weights_of`."""
    for weight in weights_of(model, parts):
        weight.requires_grad_(False)


def weights_of(model: nn.Module, parts: Sequence[str]) -> list[nn.Parameter]:
    """Return the weights of some parts; a matrix that several share is of the embeddings.

    Args:
        model: A Transformer.
        parts: `embeddings`, `encoder`, `decoder`, or layers such as `decoder.layers.0`.

    Raises:
        ConfigError: If a part is not there, or there are no other weights.
    """
    found: list[nn.Parameter] = []
    for part in parts:
        names = ("source_embedding.", "target_embedding.") if part == "embeddings" else (f"{part}.",)
        of_part = [weight for name, weight in model.named_parameters() if name.startswith(names)]
        if not of_part or not _PART.fullmatch(part):
            raise ConfigError(
                f"train.freeze: the model has no part {part!r:.100}; parts are embeddings, encoder, decoder, and "
                f"layers such as encoder.layers.0"
            )
        found += of_part
    if {id(weight) for weight in found} == {id(weight) for weight in model.parameters()}:
        raise ConfigError(f"train.freeze = {list(parts)} leaves nothing to train")
    return found


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimiser that `config.optimizer` names, over all parameters that are not frozen.

    Weight decay is for matrices only: biases and norms have no use for small values.
    """
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if config.optimizer == "muon":
        layers = ("encoder.layers.", "decoder.layers.")  # relative positions are a table, as embeddings are
        hidden = [p for name, p in named.items() if p.dim() > 1 and name.startswith(layers)]
        is_hidden = {id(parameter) for parameter in hidden}
        others = [parameter for parameter in named.values() if id(parameter) not in is_hidden]
        betas, eps, decay = config.adam_betas, config.adam_eps, config.weight_decay
        rounded = config.precision != "fp32"
        return Muon(hidden, others, betas=betas, eps=eps, weight_decay=decay, rounded=rounded)
    matrices = [parameter for parameter in named.values() if parameter.dim() > 1]
    vectors = [parameter for parameter in named.values() if parameter.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay if config.optimizer == "adamw" else 0.0},
        {"params": vectors, "weight_decay": 0.0},
    ]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(groups, lr=0.0, betas=config.adam_betas, eps=config.adam_eps, fused=True)


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's tensors, named `parameter.key`, such as `source_embedding.weight.exp_avg`."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put saved tensors back.

    Raises:
        CheckpointError: If a parameter has no saved state, or one of another shape.
    """
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue  # frozen: an optimiser knows nothing of it
        saved = {key: tensors.get(f"{name}.{key}") for key in _state_keys(optimizer, parameter)}
        for key, tensor in saved.items():
            if tensor is None or (key != "step" and tensor.shape != parameter.shape):
                found = "nothing" if tensor is None else tuple(tensor.shape)
                raise CheckpointError(
                    f"optimizer.safetensors holds {found} for {name}.{key} of {tuple(parameter.shape)}"
                )
        # Adam counts its steps on the CPU unless it is capturable or fused; it moves with the parameter here.
        optimizer.state[parameter] = {
            key: tensor.to(parameter.device) for key, tensor in saved.items() if tensor is not None
        }


def _state_keys(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> tuple[str, ...]:
    if isinstance(optimizer, Muon) and optimizer.moves_as_matrix(parameter):
        return ("momentum",)
    return ("step", "exp_avg", "exp_avg_sq")

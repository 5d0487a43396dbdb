"""Optimisers (Adam in paper section 5.3, Muon, LoRA), the weights they train, and their state as named tensors.

The tensors are saved without pickle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adam import adam

from clearhead.config import TrainConfig
from clearhead.errors import CheckpointError, ConfigError
from clearhead.runtime.device import has_fast_bf16
from clearhead.training.distributed import part_like, whole

_PART = re.compile(r"embeddings|(encoder|decoder)(\.layers\.\d+)?")
_LAYERS = ("encoder.layers.", "decoder.layers.")  # relative-position tables count as embeddings

_MOMENTUM = 0.95
_ADAM_SIZE = 0.2
"""Root mean square of Adam's usual update, to which Muon's update is scaled (Liu et al. 2025, section 2.2)."""
_ADAM_SHARE = 0.3
"""Factor on the learning rate for the weights that Adam updates.

At Muon's full rate, embeddings keep growing, and validation BLEU falls from 41.3 to 39.7 in a long run (Multi30k).
"""

# Quintic polynomial that moves every singular value towards 1, quickly rather than exactly (Jordan et al. 2024).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


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
                shape = "nothing" if tensor is None else tuple(tensor.shape)
                raise CheckpointError(
                    f"optimizer.safetensors holds {shape} for {name}.{key} of {tuple(parameter.shape)}"
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


def move_by_adam(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor],
    states: Sequence[Mapping[str, Tensor]],
    *,
    rate: float | Tensor,
    group: Mapping[str, Any],
    found_inf: Tensor | None = None,
) -> None:
    """Apply one Adam update (paper section 5.3) to tensors in place, without weight decay.

    Args:
        tensors: Weights of any shapes.
        gradients: One gradient for each tensor, of the same shape.
        states: One state for each tensor: `step` [], and `exp_avg` and `exp_avg_sq` of its shape. Updated in place.
        rate: Learning rate.
        group: Parameter group of the optimiser, from which `betas` and `eps` are read.
        found_inf: 1 if nothing is to move, else 0, as PyTorch's optimisers have it; None to move.
    """
    adam(
        list(tensors),
        list(gradients),
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        fused=True,
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=rate,
        weight_decay=0.0,
        eps=group["eps"],
        maximize=False,
        found_inf=found_inf,
    )


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024): moves each hidden matrix by its momentum with all singular values made nearly equal.

    Args:
        matrices: Hidden weight matrices.
        others: Embeddings, biases and norms, which Adam updates at a fraction of the learning rate.
        betas: Adam's beta_1 and beta_2.
        eps: Adam's epsilon.
        weight_decay: Decoupled weight decay of the matrices, per unit of learning rate.
        rounded: Whether to iterate in bfloat16 where the device supports it. An update direction needs no more digits.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        rounded: bool = True,
    ) -> None:
        self.rounded = rounded
        self.found_inf: Tensor | None = None  # as for `move_by_adam`; with it, the learning rate is a tensor too
        self.compiled: Callable[..., Iterable[Tensor]] | None = None  # `muon_directions`
        groups = [{"params": list(matrices), "is_matrix": True}, {"params": list(others), "is_matrix": False}]
        super().__init__(groups, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def moves_as_matrix(self, parameter: nn.Parameter) -> bool:
        """Return whether a parameter is one of the hidden matrices."""
        return any(parameter is matrix for matrix in self.param_groups[0]["params"])

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter from its gradient."""
        for group in self.param_groups:
            if group["is_matrix"]:
                self._move_matrices(group)
            else:
                self._move_others(group)

    def _move_matrices(self, group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        momenta, gradients = defaultdict(list), defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                if not self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(parameter)
                by_shape[parameter.shape].append(parameter)
                momenta[parameter.shape].append(self.state[parameter]["momentum"])
                gradients[parameter.shape].append(parameter.grad)
        rounded = self.rounded and any(has_fast_bf16(shape[0].device) for shape in momenta.values())
        tensors = [*momenta.values()], [*gradients.values()]
        directions = (self.compiled or muon_directions)(*tensors, rounded, self.found_inf)
        for (shape, parameters), straight in zip(by_shape.items(), directions, strict=True):
            size, rate = _ADAM_SIZE * max(shape) ** 0.5, group["lr"]
            if self.found_inf is not None:
                is_wrong = self.found_inf > 0
                rate = torch.where(is_wrong, 0.0, rate)
                straight = torch.where(is_wrong, 0.0, rate * straight)
            updates = [part_like(update, matrix) for update, matrix in zip(straight.unbind(), parameters, strict=True)]
            torch._foreach_mul_(parameters, 1.0 - rate * group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-size if self.found_inf is not None else -rate * size)

    def _move_others(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["step"] = torch.zeros((), device=parameter.device)
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        move_by_adam(
            parameters, gradients, states, rate=_ADAM_SHARE * group["lr"], group=group, found_inf=self.found_inf
        )


def muon_directions(
    momenta: list[list[Tensor]],
    gradients: list[list[Tensor]],
    rounded: bool,
    found_inf: Tensor | None = None,
) -> Iterator[Float[Tensor, "count rows columns"]]:
    """Add gradients to momenta in place, and yield the directions of the matrices of each shape, one after another.

    Args:
        momenta: Momenta of the matrices of each shape.
        gradients: Their gradients.
        rounded: As for `orthogonalised`.
        found_inf: 1 if the momenta are to stay as they are, whatever is in the gradients; see `move_by_adam`.
    """
    for of_shape, added in zip(momenta, gradients, strict=True):
        if found_inf is None:
            torch._foreach_mul_(of_shape, _MOMENTUM)
            torch._foreach_add_(of_shape, added)
        else:
            moved = torch._foreach_add(torch._foreach_mul(of_shape, _MOMENTUM), added)
            kept = [torch.where(found_inf > 0, *pair) for pair in zip(of_shape, moved, strict=True)]
            torch._foreach_copy_(of_shape, kept)
        # Nesterov momentum: look one step ahead.
        ahead = torch._foreach_add(added, of_shape, alpha=_MOMENTUM)
        yield orthogonalised(torch.stack([whole(matrix) for matrix in ahead]), rounded=rounded)


def compiled_muon_directions(**options: Any) -> Callable[..., Iterable[Tensor]]:
    """Return `muon_directions` compiled into one graph, with options of `torch.compile`; the directions are a list."""

    def directions(*arguments: Any) -> list[Tensor]:
        return list(muon_directions(*arguments))

    return torch.compile(directions, fullgraph=True, dynamic=False, **options)


def orthogonalised(
    matrices: Float[Tensor, "count rows columns"], *, rounded: bool = True
) -> Float[Tensor, "count rows columns"]:
    """Return matrices with singular values moved near 1 (0.7 to 1.2) by Newton-Schulz iterations.

    Args:
        matrices: Matrices of one shape; each is orthogonalised separately.
        rounded: Whether to iterate in bfloat16.
    """
    is_tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.transpose(-2, -1) if is_tall else matrices
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).contiguous()
    if rounded:
        x = x.bfloat16()  # 2.5 times as fast on a CPU with AVX-512 BF16, for the shapes of every step
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.transpose(-2, -1)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # b gram + c gram^2
        x = torch.baddbmm(x, polynomial, x, beta=a)  # a x + polynomial x
    x = x.to(matrices.dtype)
    return x.transpose(-2, -1) if is_tall else x


class LowRankAdam(torch.optim.Optimizer):
    """LoRA (Hu et al. 2021): Adam on two thin matrices A and B for each matrix W = W0 + (alpha / rank) B A.

    The gradients of A and B follow from that of W. After each step W is changed by as much as the product has changed.
    So the model has ordinary weights at every step, and at the end there is nothing to merge.

    Args:
        matrices: The matrices W, each of shape (rows, columns).
        rank: Rank of the update: A is (rank, columns), B is (rows, rank).
        alpha: Scale of the product; it is divided by the rank.
        betas: Adam's beta_1 and beta_2.
        eps: Adam's epsilon.
        seed: Seed of the random initial A. B starts at 0, so W starts at W0.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        rank: int,
        alpha: float,
        betas: tuple[float, float],
        eps: float,
        seed: int,
    ) -> None:
        super().__init__(list(matrices), {"lr": 0.0, "betas": betas, "eps": eps})
        self.scale = alpha / rank
        drawn = torch.Generator().manual_seed(seed)
        for matrix in self.param_groups[0]["params"]:
            rows, columns = matrix.shape
            a = torch.empty(rank, columns).uniform_(-(columns**-0.5), columns**-0.5, generator=drawn)
            thin = torch.cat([a, torch.zeros(rank, rows)], dim=1).to(matrix)  # A and transposed B
            moments = {name: torch.zeros_like(thin) for name in ("exp_avg", "exp_avg_sq")}
            self.state[matrix] = {"thin": thin, **moments, "step": torch.zeros((), device=matrix.device)}

    def state_shapes(self, matrix: nn.Parameter) -> dict[str, torch.Size]:
        """Return the shape of every state tensor of a matrix."""
        return {name: tensor.shape for name, tensor in self.state[matrix].items()}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix from its gradient."""
        group = self.param_groups[0]
        moving = [matrix for matrix in group["params"] if matrix.grad is not None]
        states = [self.state[matrix] for matrix in moving]
        thins = [state["thin"] for state in states]
        before = [self._product(thin, matrix) for thin, matrix in zip(thins, moving, strict=True)]
        gradients = [self._thin_gradient(thin, matrix) for thin, matrix in zip(thins, moving, strict=True)]
        move_by_adam(thins, gradients, states, rate=group["lr"], group=group)
        for matrix, thin, product in zip(moving, thins, before, strict=True):
            matrix.add_(self._product(thin, matrix) - product)

    def _product(self, thin: Float[Tensor, "rank both"], matrix: nn.Parameter) -> Float[Tensor, "rows columns"]:
        a, b_transposed = thin.split([matrix.size(1), matrix.size(0)], dim=1)
        return self.scale * b_transposed.t() @ a

    def _thin_gradient(self, thin: Float[Tensor, "rank both"], matrix: nn.Parameter) -> Float[Tensor, "rank both"]:
        """Return the gradients of A and of B transposed, side by side, by the chain rule on W0 + scale B A."""
        assert matrix.grad is not None, "only matrices with a gradient move"
        a, b_transposed = thin.split([matrix.size(1), matrix.size(0)], dim=1)
        return self.scale * torch.cat([b_transposed @ matrix.grad, a @ matrix.grad.t()], dim=1)

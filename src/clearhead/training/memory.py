"""Memory of a training step, counted on tensors without values: the run's own code makes them, and nothing is computed.

PyTorch's fake tensors have a shape and a device, but no memory. So a step of any size is counted on any machine, and
every option of the model, the loss and the optimiser counts as it is.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.config import Config
from clearhead.data.batches import Batch, BatchOrder, split
from clearhead.errors import ConfigError
from clearhead.model.transformer import Transformer
from clearhead.model.weight_shapes import weight_shapes
from clearhead.runtime.memory import device_memory, process_memory
from clearhead.training.layers import changed
from clearhead.training.optimizer import build_optimizer
from clearhead.training.step import Stepper

Part = Literal["weights", "gradients", "optimizer", "activations", "other"]
"""What memory is for: `activations` are saved for the backward pass, `other` are logits, copies and intermediates."""

PARTS: tuple[Part, ...] = get_args(Part)

_MOST_PAIRS, _SEARCHED_TOKENS = 10_000_000, 4_096

_LIBRARIES, _KEPT, _COPIES = 260_000_000, 1.35, 7
"""What a process takes on a CPU beside that before its first step: bytes of what libraries load and keep; times the
bytes of a step's tensors, since freed memory is kept in pieces; times the bytes of the weights, which are averaged and
published at the end. Measured for tiny, small and paper-base (docs/scaling.md)."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes that a step takes. Not all parts are largest at the same time."""

    at_peak: Mapping[Part, int]
    """Bytes of each part when they take most together."""
    most: Mapping[Part, int]
    """The most bytes that each part takes at any time."""

    @property
    def peak(self) -> int:
        """The most bytes that are taken at once."""
        return sum(self.at_peak.values())

    @property
    def lasting(self) -> int:
        """Bytes of weights, gradients and optimizer, which do not depend on the batch."""
        return self.most["weights"] + self.most["gradients"] + self.most["optimizer"]


class StepSimulation:
    """Steps of padded batches of one worker, of which only the memory is counted.

    Args:
        config: Complete settings.
    """

    def __init__(self, config: Config) -> None:
        train = changed(config, {"train.compile": False}).train
        self._fake, self._counted = FakeTensorMode(), _Allocations()
        with self._fake, self._counted:
            model = Transformer(config.model)
            optimizer = build_optimizer(model, train)
            self._stepper = Stepper(model, optimizer, train)
            for weight in model.parameters():
                self._counted.assign(weight, "weights")
                if weight.requires_grad:
                    weight.register_post_accumulate_grad_hook(self._assign_gradient)
        self.memory(1, 2, 2)  # the first step makes the optimizer's state
        self._trained = list(optimizer.state)
        for state in optimizer.state.values():
            for tensor in state.values():
                self._counted.assign(tensor, "optimizer")

    @property
    def precision(self) -> str:
        """Precision of matrix products, `bf16` or `fp32`."""
        return self._stepper.precision

    def memory(self, pairs: int, source_length: int, target_length: int, *, parts: int = 1) -> StepMemory:
        """Return the memory of a step.

        Args:
            pairs: Sentence pairs of each part.
            source_length: Source tokens of every pair, padding included.
            target_length: Target tokens of every pair, padding included.
            parts: Parts of the step, which are computed one after another; from the second on they do not matter.
        """
        counted = self._counted
        with self._fake, counted, saved_tensors_hooks(counted.assign_activation, lambda saved: saved):
            source, target = (torch.ones(pairs, length, dtype=torch.long) for length in (source_length, target_length))
            batch = Batch(source, target, target, pairs * target_length, tuple(range(pairs)), (0,) * pairs)
            if parts > 1:  # each part after the first finds the gradients of those before it, as large as the weights
                for weight in self._trained:
                    weight.grad = torch.zeros_like(weight)
                    self._assign_gradient(weight)
            counted.peak, counted.most = Counter(), counted.live.copy()
            self._stepper.step([batch], number=1, rate=0.0)
        return StepMemory(*({part: of[part] for part in PARTS} for of in (counted.peak, counted.most)))

    def most_pairs(self, limit: float, source_length: int, target_length: int) -> int:
        """Return how many pairs of a part of a step fit into the memory, about; 0 if not even one does.

        Args:
            limit: Bytes of memory.
            source_length: As for `memory`.
            target_length: As for `memory`.
        """
        few = max(1, _SEARCHED_TOKENS // target_length)
        sizes = (1, few, 2 * few)
        one, some, many = (self.memory(size, source_length, target_length, parts=2).peak for size in sizes)
        # From a few thousand tokens on, memory grows with the pairs at an even rate.
        return min(_MOST_PAIRS, max(1, int(2 * few + few * (limit - many) / (many - some)))) if one <= limit else 0

    def _assign_gradient(self, weight: Tensor) -> None:
        if weight.grad is not None:
            self._counted.assign(weight.grad, "gradients")


class _Allocations(TorchDispatchMode):
    """Counter of the bytes of all tensors that are made, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live, self.peak, self.most = Counter[Part](), Counter[Part](), Counter[Part]()
        self._parts: dict[int, Part] = {}  # by address of the storage

    def assign(self, tensor: Tensor, part: Part) -> None:
        """Count the storage of a tensor, from now on as part of something else if it was counted before."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._parts:
            self.live[self._parts[key]] -= size
        else:
            weakref.finalize(storage, self._free, key, size).atexit = False
        self._parts[key] = part
        self.live[part] += size
        self.most[part] = max(self.most[part], self.live[part])
        if self.live.total() > self.peak.total():
            self.peak = self.live.copy()

    def assign_activation(self, tensor: Tensor) -> Tensor:
        """Count a tensor that is saved for the backward pass, unless it is a weight."""
        if self._parts.get(tensor.untyped_storage()._cdata) == "other":
            self.assign(tensor, "activations")
        return tensor

    def _free(self, key: int, size: int) -> None:
        self.live[self._parts.pop(key)] -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        if func is aten._local_scalar_dense.default:
            return 1.0  # the loss and the norm of the gradient, as any number that is sound
        if func is aten.index.Tensor and args[1][0].dtype == torch.bool:
            result = args[0].flatten(0, args[1][0].dim() - 1).clone()  # as if the mask were true everywhere
        else:
            result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._parts:
                self.assign(tensor, "other")
        return result


def require_memory(config: Config, order: BatchOrder, device: torch.device, num_workers: int) -> None:
    """Require that the largest part of a run fits into the memory of the device.

    On a GPU only weights, gradients and the optimizer's state must fit: there a run cuts its parts itself.

    Args:
        config: Complete settings.
        order: Assignment of pairs to steps.
        device: Device for training.
        num_workers: Number of workers that share every step.

    Raises:
        ConfigError: If it does not fit, with what would.
    """
    train, limit, whose = config.train, device_memory(str(device)), f"{device} has"
    if limit is None:
        return
    if device.type != "cpu" and train.max_memory is not None and train.max_memory < limit:
        limit, whose = train.max_memory, "train.max_memory is"
    size, source, target = worst_part(order, train.micro_batch_tokens)
    if enough_memory(config, size * max(source, target), max(source, target)) <= limit:
        return
    simulation, workers = StepSimulation(config), num_workers if train.shard else 1
    parts = 2 if train.batch_tokens > train.micro_batch_tokens else 1
    memory = simulation.memory(1 if device.type != "cpu" else size, source, target, parts=parts)
    shared = memory.lasting * (workers - 1) // workers  # by the other workers
    needed = (memory.peak if device.type == "cpu" else memory.lasting) - shared
    if needed <= limit:
        return
    fitting = 0 if device.type != "cpu" else simulation.most_pairs(limit + shared, source, target)
    advice = (
        f"cut it into more parts: train.micro_batch_tokens = {fitting * target}"
        if fitting
        else "take a smaller preset or model, or with several devices train.shard = true"
    )
    raise ConfigError(
        f"a step needs about {in_words(needed)} of memory ({in_words(memory.lasting - shared)} of it for weights, "
        f"gradients and {train.optimizer}), and {whose} {in_words(limit)}; {advice}"
    )


def within_budget(config: Config, order: BatchOrder, device: torch.device, num_workers: int) -> Config:
    """Return settings with which a run on a CPU keeps within `train.max_memory`: halve what is computed at once.

    A GPU is limited by its allocator (`limited_gpu_memory`), and a run that meets this limit cuts its parts itself.

    Args:
        config: Complete settings.
        order: Assignment of pairs to steps.
        device: Device for training.
        num_workers: Number of workers that share every step.

    Raises:
        ConfigError: If it does not fit, with what would.
    """
    train = config.train
    if (budget := train.max_memory) is None or device.type != "cpu":
        return config
    simulation, sharing = StepSimulation(config), num_workers if train.shard else 1
    before = process_memory() + _LIBRARIES

    @cache
    def needed(tokens: int) -> float:
        memory = simulation.memory(*worst_part(order, tokens), parts=2 if train.batch_tokens > tokens else 1)
        tensors = memory.peak - memory.lasting * (sharing - 1) // sharing
        return before + _KEPT * tensors + _COPIES * memory.most["weights"]

    halvings = [train.micro_batch_tokens]
    while halvings[-1] > 1:
        halvings.append(max(1, min(halvings[-1], train.batch_tokens) // 2))
    if needed(halvings[0]) <= budget:
        return config
    if (least := needed(1)) > budget:
        _, source, target = worst_part(order, 1)
        raise ConfigError(
            f"train.max_memory ({in_words(budget)}) is too little: even with one pair at a time, of {source} and "
            f"{target} tokens, training takes about {in_words(least)}; train.max_memory = "
            f"'{math.ceil(least / 1e7) * 10 + 20}MB' would do, or a smaller preset or model, or a lower "
            f"data.max_length"
        )
    fitting = bisect_left(halvings, True, lo=1, key=lambda tokens: needed(tokens) <= budget)
    return changed(config, {"train.micro_batch_tokens": halvings[fitting]})


def worst_part(order: BatchOrder, most_tokens: int) -> tuple[int, int, int]:
    """Return the pairs, the source length and the target length of the part of a run with the most padded tokens.

    With fractional weights, which give every epoch other pairs, this is a part of the longest that any epoch may have.
    """
    sizes = (
        (len(part), int(sources[part].max()), int(targets[part].max()))
        for sources, targets in order.most_tokens()
        for part in split(np.arange(len(targets)), targets, most_tokens)
    )
    return max(sizes, key=lambda size: size[0] * (size[1] + size[2]))


def enough_memory(config: Config, tokens: int, longest: int) -> int:
    """Return bytes that are more than enough for a step: a bound that takes no time, where `StepSimulation` takes some.

    Args:
        config: Complete settings.
        tokens: Most tokens of a part on either side, padding included.
        longest: Tokens of the longest text.
    """
    model = config.model
    weights = sum(math.prod(shape) for shape in weight_shapes(model).values())
    layers = 2 + model.num_encoder_layers + 2 * model.num_decoder_layers
    a_token = 16 * model.d_model + 4 * model.d_ff + 6 * model.num_heads * (model.key_dim + model.value_dim + longest)
    return 4 * (8 * weights + tokens * layers * a_token + 2 * tokens * model.vocab_size)


def in_words(num_bytes: float) -> str:
    """Return bytes in words.

    >>> in_words(1_234_000_000), in_words(12_000_000)
    ('1.23 GB', '12 MB')
    """
    return f"{num_bytes / 1e9:,.3g} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:,.3g} MB"

"""A forward pass of a model as the list of its operations, each with its shapes, module and line of code.

Shapes: B sentences, S source length, T target length.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from traceback import walk_stack
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.config import ModelConfig
from clearhead.model.recorder import AttentionWeights, Recorder
from clearhead.model.transformer import Transformer
from clearhead.paper.recording import package_calls

Shape = tuple[int | str, ...]
"""Sizes of the axes: a number that the configuration determines, or the letter of a size of the batch."""

_SIZES: tuple[Mapping[str, int], ...] = ({"B": 4, "S": 2, "T": 3}, {"B": 5, "S": 3, "T": 2})
"""Sizes of two batches. An axis that differs between them is named by the letter whose sizes it has; all others come
from the configuration."""


@dataclass(frozen=True)
class Operation:
    """A call of a PyTorch function that returned new tensors."""

    name: str
    """Name of the PyTorch function, such as `softmax`."""
    module: str
    """Path in the model of the module that called it, such as `encoder.layers.0.self_attn.q_proj`."""
    function: str
    """Qualified name of our function that called it, such as `Embedding.vectors`."""
    file: str
    """File of that function, within the package."""
    line: int
    """The line that ran."""
    inputs: tuple[int, ...]
    """Numbers of the tensors it read, weights excepted."""
    outputs: tuple[int, ...]
    """Numbers of the tensors it returned."""
    weights: tuple[str, ...]
    """Names of the weights it read; a shared matrix has one name."""


@dataclass(frozen=True)
class ForwardPass:
    """The operations of a forward pass, with the shape of every tensor."""

    model: Transformer
    operations: list[Operation]
    shapes: list[Shape]
    """Shape of each tensor, by its number."""
    masks: set[int]
    """Numbers of the boolean tensors."""
    source: int | None
    """Number of the source ids; None for a decoder alone."""
    target: int | None
    """Number of the target ids; None for an encoder alone."""


def shape_text(shape: Iterable[int | str]) -> str:
    """Return a shape as it is written.

    >>> shape_text(("B", "T", 512))
    '(B, T, 512)'
    """
    return f"({', '.join(map(str, shape))})"


def forward_pass(config: ModelConfig) -> ForwardPass:
    """Run a model of a configuration, with one layer of each stack, and return its operations.

    The layers of a stack are alike, so one of each is enough. Attention is computed step by step (equation 1). The
    model has no values (PyTorch's device `meta`), so that the pass costs next to nothing at any size.

    Raises:
        ConfigError: If the model has too few positions (`max_positions`) for three tokens.
    """
    layers = {name: min(1, getattr(config, name)) for name in ("num_encoder_layers", "num_decoder_layers")}
    with torch.device("meta"):
        model = Transformer(config.model_copy(update=layers)).eval()
        first, second = (_run(model, sizes) for sizes in _SIZES)
    shapes = [_named(*shapes) for shapes in zip(first.shapes, second.shapes, strict=True)]
    return ForwardPass(model, first.operations, shapes, first.masks, first.source, first.target)


def _named(first: tuple[int, ...], second: tuple[int, ...]) -> Shape:
    letters = {tuple(sizes[letter] for sizes in _SIZES): letter for letter in _SIZES[0]}
    return tuple(a if a == b else letters[a, b] for a, b in zip(first, second, strict=True))


def _run(model: Transformer, sizes: Mapping[str, int]) -> _Operations:
    has_source, has_target = model.config.num_encoder_layers > 0, model.config.num_decoder_layers > 0
    source = torch.zeros(sizes["B"], sizes["S"], dtype=torch.int64) if has_source else None
    target = torch.zeros(sizes["B"], sizes["T"], dtype=torch.int64) if has_target else None
    recorder = Recorder(AttentionWeights())
    with torch.inference_mode(), _Operations(model, source, target) as operations:
        memory, mask = (None, None) if source is None else model.encode(source, recorder=recorder)
        if target is not None:
            model.output_proj(model.states(target, memory, mask, recorder=recorder)).softmax(dim=-1)
    return operations


class _Operations(TorchFunctionMode):
    """Records every PyTorch function that is called and returns a new tensor."""

    def __init__(self, model: nn.Module, source: Tensor | None, target: Tensor | None) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.shapes: list[tuple[int, ...]] = []
        self.masks: set[int] = set()
        self._modules = {id(module): name for name, module in model.named_modules()}
        self._weights = {id(weight): name for name, weight in model.named_parameters()}
        self._tensors: list[Tensor] = []  # kept, so that no other tensor gets the id of one
        self._numbers: dict[int, int] = {}
        self.source, self.target = (None if ids is None else self._number(ids) for ids in (source, target))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [*_tensors(args), *_tensors((kwargs or {}).values())]
        returned = [tensor for tensor in _tensors((result,)) if not any(tensor is argument for argument in given)]
        if returned:
            here = sys._getframe(1)
            file, call = next(package_calls(here))
            place = self._module(here), call.f_code.co_qualname, file, call.f_lineno
            inputs = tuple(self._number(argument) for argument in given if id(argument) not in self._weights)
            weights = tuple(self._weights[id(argument)] for argument in given if id(argument) in self._weights)
            outputs = tuple(map(self._number, returned))
            self.operations.append(Operation(func.__name__, *place, inputs, outputs, weights))
        return result

    def _number(self, tensor: Tensor) -> int:
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self._tensors)
            self._tensors.append(tensor)
            self.shapes.append(tuple(tensor.shape))
            if tensor.dtype is torch.bool:
                self.masks.add(self._numbers[id(tensor)])
        return self._numbers[id(tensor)]

    def _module(self, frame: FrameType) -> str:
        """Return the path of the innermost module, from a frame outwards."""
        owners = (id(caller.f_locals.get("self")) for caller, _ in walk_stack(frame))
        return next((self._modules[owner] for owner in owners if owner in self._modules), "")


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values, and in the lists and tuples among them."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors

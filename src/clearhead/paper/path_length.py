"""Maximum path length of each layer type, measured by gradients (paper section 4, last column of Table 1).

Shapes: n positions, d width; every layer maps [1, n, d] to [1, n, d].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.growth import KERNEL, Apply, restricted_attention

LENGTHS = (27, 81)
"""Sequence lengths to measure: powers of the kernel size, so that log_k n is an integer."""
_NEIGHBOURHOOD = 9
_WIDTH = 2


@dataclass(frozen=True)
class PathLength:
    """Path length of a layer type: layers between the two ends of a sequence, or steps for a recurrent layer."""

    name: str
    formula: str
    length: tuple[int, ...]
    """Measured path length for each of `LENGTHS`."""
    expected: tuple[int, ...]
    """Path length by the formula for each of `LENGTHS`."""


def path_lengths() -> list[PathLength]:
    """Return the path length of each layer type, measured and by formula."""

    def measured(name: str, formula: str, make: Callable[[int], Apply], expected: Callable[[int], int]) -> PathLength:
        return PathLength(
            name,
            formula,
            tuple(layers_to_connect(make, n, _WIDTH, most=n) for n in LENGTHS),
            tuple(map(expected, LENGTHS)),
        )

    return [
        measured("self-attention", "1", lambda number: _attention, lambda n: 1),
        PathLength(
            "recurrent: steps within its one layer",
            "n",
            tuple(steps_to_connect(_recurrent_cell(), n, _WIDTH) for n in LENGTHS),
            LENGTHS,
        ),
        measured(
            f"convolutional, contiguous (k = {KERNEL})",
            "(n-1)/(k-1)",
            lambda number: _causal_convolution(1),
            lambda n: math.ceil((n - 1) / (KERNEL - 1)),
        ),
        measured(
            f"convolutional, dilated (k = {KERNEL})",
            "log_k n",
            lambda number: _causal_convolution(KERNEL**number),
            lambda n: round(math.log(n, KERNEL)),
        ),
        measured(
            f"restricted self-attention (r = {_NEIGHBOURHOOD})",
            "2(n-1)/(r-1)",
            lambda number: _restricted,
            lambda n: math.ceil(2 * (n - 1) / (_NEIGHBOURHOOD - 1)),
        ),
    ]


def layers_to_connect(make_layer: Callable[[int], Apply], n: int, d: int, *, most: int) -> int:
    """Return how many stacked layers it takes until the last output depends on the first input.

    Args:
        make_layer: Returns the layer for a layer number, counted from 0.
        n: Positions.
        d: Width.
        most: Maximum number of layers to try.

    Raises:
        ValueError: If so many layers do not connect the two ends.
    """
    first = torch.randn(1, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(n)).requires_grad_()
    x: Tensor = first
    for number in range(most):
        x = make_layer(number)(x)
        (gradient,) = torch.autograd.grad(x[0, -1].sum(), first, retain_graph=True)
        if bool((gradient[0, 0] != 0).any()):
            return number + 1
    raise ValueError(f"{most} layers do not connect the ends of {n} positions")


def steps_to_connect(cell: Callable[[Tensor, Tensor], Tensor], n: int, d: int) -> int:
    """Return the number of recurrent steps on the gradient's way from the last state to the first input.

    Args:
        cell: Returns the next state for an input and the previous state, each [1, d].
        n: Positions.
        d: Width.

    Raises:
        ValueError: If no gradient reaches the first input.
    """
    inputs = torch.randn(n, 1, d, dtype=torch.float64, generator=torch.Generator().manual_seed(n)).requires_grad_()
    passed: list[bool] = []
    state = torch.zeros(1, d, dtype=torch.float64)
    for x in inputs:
        state = cell(x, state)
        state.register_hook(lambda gradient: passed.append(bool((gradient != 0).any())))
    (gradient,) = torch.autograd.grad(state.sum(), inputs)
    if not bool((gradient[0] != 0).any()):
        raise ValueError(f"{n} steps do not connect the ends of {n} positions")
    return sum(passed)


def _recurrent_cell() -> nn.RNNCell:
    cell = nn.RNNCell(_WIDTH, _WIDTH, bias=False, dtype=torch.float64)
    for weight in cell.parameters():
        nn.init.eye_(weight)  # so that no paths cancel by chance
    return cell


def _attention(x: Tensor) -> Tensor:
    return scaled_dot_product_attention(x, x, x)[0]


def _restricted(x: Tensor) -> Tensor:
    return restricted_attention(x, _NEIGHBOURHOOD)


def _causal_convolution(dilation: int) -> Apply:
    """Return a causal convolution: the window of k positions ends at the current position."""
    layer = nn.Conv1d(_WIDTH, _WIDTH, KERNEL, dilation=dilation, bias=False, dtype=torch.float64)
    nn.init.ones_(layer.weight)  # so that no paths cancel by chance

    def apply(x: Tensor) -> Tensor:
        padded: Tensor = functional.pad(x.transpose(1, 2), ((KERNEL - 1) * dilation, 0))
        return layer(padded).transpose(1, 2)

    return apply

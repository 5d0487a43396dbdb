"""Layer types of Table 1: their formulas, and counts of their operations (paper section 4).

Shapes: n positions, d width, k kernel, r neighbourhood; every layer maps [1, n, d] to [1, n, d].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import linear_regression
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.paper.counts import counted_flops

KERNEL = 3
NEIGHBOURHOOD = 31
_HEADS = 4

Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """A layer type with its cost by formula and by Table 1."""

    build: Callable[[int], nn.Module]
    """Returns a layer of width d with random weights."""
    flops: Callable[[int, int], int]
    """Floating-point operations of its matrix products, from n and d; additions count like multiplications."""
    formula: str
    """The formula in `flops` as text."""
    stated: tuple[int, int]
    """Exponents of n and d in Table 1."""


def restricted_attention(x: Tensor, neighbourhood: int) -> Tensor:
    """Attend from each position only to its neighbours (restricted self-attention, section 4), without projections.

    Args:
        x: Input used as queries, keys and values, [1, n, d].
        neighbourhood: Number of positions that each query sees, with its own in the middle; odd.
    """
    reach = neighbourhood // 2
    windows = functional.pad(x, (0, 0, reach, reach)).unfold(1, neighbourhood, 1).transpose(-2, -1)  # (1, n, r, d)
    inside = functional.pad(torch.ones(x.size(1), dtype=torch.bool), (reach, reach)).unfold(0, neighbourhood, 1)
    return scaled_dot_product_attention(x[:, :, None], windows, windows, inside[:, None])[0][:, :, 0]


class _Whole(nn.Module):
    """Wrapper that turns a layer of any signature into a map from [1, n, d] to [1, n, d]."""

    def __init__(self, run: Apply, *parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


def _equation_1(d: int) -> nn.Module:
    return _Whole(lambda x: scaled_dot_product_attention(x, x, x)[0])


def _multi_head_attention(d: int, *, fused: bool) -> nn.Module:
    attention = MultiHeadAttention(d_model=d, num_heads=_HEADS)
    return _Whole(lambda x: attention(x, x, weights=None if fused else []), attention)


def _recurrent(kind: Callable[..., nn.Module], d: int) -> nn.Module:
    layer = kind(d, d, bias=False, batch_first=True)
    return _Whole(lambda x: layer(x)[0], layer)


def _convolution(d: int) -> nn.Module:
    layer = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2, bias=False)
    return _Whole(lambda x: layer(x.transpose(1, 2)).transpose(1, 2), layer)


def separable_convolution(kernel: int) -> Layer:
    """Return the separable convolution of section 4 (Chollet 2016): a kernel for each number, then a d x d matrix.

    Args:
        kernel: Kernel size k, also the whole length n.
    """

    def build(d: int) -> nn.Module:
        depthwise, pointwise = nn.Conv1d(d, d, kernel, groups=d, bias=False), nn.Linear(d, d, bias=False)

        def run(x: Tensor) -> Tensor:
            padded = functional.pad(x.transpose(1, 2), (kernel // 2, (kernel - 1) // 2))
            return pointwise(depthwise(padded).transpose(1, 2))

        return _Whole(run, depthwise, pointwise)

    return Layer(build, lambda n, d: 2 * kernel * n * d + 2 * n * d * d, "2 k n d + 2 n d^2", (1, 2))


def _restricted(d: int) -> nn.Module:
    return _Whole(lambda x: restricted_attention(x, NEIGHBOURHOOD))


def _layer_flops(n: int, d: int) -> int:
    return 8 * n * d * d + 4 * n * n * d


LAYERS: Mapping[str, Layer] = {
    "self-attention, equation 1 alone": Layer(_equation_1, lambda n, d: 4 * n * n * d, "4 n^2 d", (2, 1)),
    "self-attention layer, step by step": Layer(
        partial(_multi_head_attention, fused=False), _layer_flops, "8 n d^2 + 4 n^2 d", (2, 1)
    ),
    "self-attention layer, fused kernel": Layer(
        partial(_multi_head_attention, fused=True), _layer_flops, "8 n d^2 + 4 n^2 d", (2, 1)
    ),
    "recurrent (nn.RNN)": Layer(partial(_recurrent, nn.RNN), lambda n, d: 4 * n * d * d, "4 n d^2", (1, 2)),
    "recurrent (nn.LSTM)": Layer(partial(_recurrent, nn.LSTM), lambda n, d: 16 * n * d * d, "16 n d^2", (1, 2)),
    f"convolutional (k = {KERNEL})": Layer(_convolution, lambda n, d: 2 * KERNEL * n * d * d, "2 k n d^2", (1, 2)),
    f"restricted self-attention (r = {NEIGHBOURHOOD})": Layer(
        _restricted, lambda n, d: 4 * NEIGHBOURHOOD * n * d, "4 r n d", (1, 1)
    ),
}
"""Name of the layer type -> how it is built and what it costs."""


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the growth exponent p of values = c * sizes^p, by a least-squares fit of the logarithms.

    >>> round(exponent([2, 4, 8], [12, 48, 192]), 6)
    2.0
    """
    return linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one CPU thread; with several, the growth would also reflect how work is divided among them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def counted_layer_flops(layer: Layer, n: int, d: int) -> int:
    """Return the operations of a layer's matrix products as counted by PyTorch."""
    # On the "meta" device nothing is computed. On the CPU, oneDNN's LSTM and fused kernels would hide their products
    # from the counter; on "meta" they run as separate products.
    with torch.device("meta"):
        return counted_flops(lambda: layer.build(d)(torch.empty(1, n, d)))


class _OperatorCount(TorchDispatchMode):
    """Counter of the operators that PyTorch runs one after another."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def operators_called(layer: Layer, n: int, d: int) -> int:
    """Return how many operators one forward pass runs one after another."""
    apply = layer.build(d)
    x = torch.zeros(1, n, d)
    with torch.no_grad(), _OperatorCount() as counter:
        apply(x)
    return counter.count

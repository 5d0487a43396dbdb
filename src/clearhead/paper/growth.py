"""Layer types of Table 1, and how their operations, time and memory grow with n and d (paper section 4).

Shapes: n positions, d width, k kernel, r neighbourhood; every layer maps [1, n, d] to [1, n, d].
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention

KERNEL = 3
NEIGHBOURHOOD = 31
_HEADS = 4

Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Layer:
    """A layer type with its cost by formula and by Table 1."""

    name: str
    build: Callable[[int], nn.Module]
    """Returns a layer of width d with random weights."""
    flops: Callable[[int, int], int]
    """Floating-point operations of its matrix products, from n and d; additions count like multiplications.
    """
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


def _stepwise_attention(d: int) -> nn.Module:
    attention = MultiHeadAttention(d_model=d, num_heads=_HEADS)
    return _Whole(lambda x: attention(x, x, weights=[]), attention)


def _fused_attention(d: int) -> nn.Module:
    attention = MultiHeadAttention(d_model=d, num_heads=_HEADS)
    return _Whole(lambda x: attention(x, x), attention)


def _recurrent(d: int) -> nn.Module:
    layer = nn.RNN(d, d, bias=False, batch_first=True)
    return _Whole(lambda x: layer(x)[0], layer)


def _long_short_term_memory(d: int) -> nn.Module:
    layer = nn.LSTM(d, d, bias=False, batch_first=True)
    return _Whole(lambda x: layer(x)[0], layer)


def _convolution(d: int) -> nn.Module:
    layer = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2, bias=False)
    return _Whole(lambda x: layer(x.transpose(1, 2)).transpose(1, 2), layer)


def _restricted(d: int) -> nn.Module:
    return _Whole(lambda x: restricted_attention(x, NEIGHBOURHOOD))


LAYERS: Mapping[str, Layer] = {
    layer.name: layer
    for layer in (
        Layer("self-attention, equation 1 alone", _equation_1, lambda n, d: 4 * n * n * d, "4 n^2 d", (2, 1)),
        Layer(
            "self-attention layer, step by step",
            _stepwise_attention,
            lambda n, d: 8 * n * d * d + 4 * n * n * d,
            "8 n d^2 + 4 n^2 d",
            (2, 1),
        ),
        Layer(
            "self-attention layer, fused kernel",
            _fused_attention,
            lambda n, d: 8 * n * d * d + 4 * n * n * d,
            "8 n d^2 + 4 n^2 d",
            (2, 1),
        ),
        Layer("recurrent (nn.RNN)", _recurrent, lambda n, d: 4 * n * d * d, "4 n d^2", (1, 2)),
        Layer("recurrent (nn.LSTM)", _long_short_term_memory, lambda n, d: 16 * n * d * d, "16 n d^2", (1, 2)),
        Layer(
            f"convolutional (k = {KERNEL})",
            _convolution,
            lambda n, d: 2 * KERNEL * n * d * d,
            "2 k n d^2",
            (1, 2),
        ),
        Layer(
            f"restricted self-attention (r = {NEIGHBOURHOOD})",
            _restricted,
            lambda n, d: 4 * NEIGHBOURHOOD * n * d,
            "4 r n d",
            (1, 1),
        ),
    )
}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the growth exponent p of values = c * sizes^p, by a least-squares fit of the logarithms.

    >>> round(exponent([2, 4, 8], [12, 48, 192]), 6)
    2.0
    """
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - mean_x) ** 2 for x in xs)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block on one CPU thread; with several, the growth would also reflect how work is divided among them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def counted_flops(layer: Layer, n: int, d: int) -> int:
    """Return the operations of a layer's matrix products as counted by PyTorch."""
    # On the "meta" device nothing is computed. On the CPU, oneDNN's LSTM and fused kernels would hide their products
    # from the counter; on "meta" they run as separate products.
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer.build(d)(torch.empty(1, n, d))
    return counter.get_total_flops()


def seconds(layer: Layer, n: int, d: int, *, repeats: int) -> float:
    """Return the seconds of the shortest of several forward passes, the one least disturbed by other work."""
    x = torch.randn(1, n, d, generator=torch.Generator().manual_seed(n + d))
    apply = layer.build(d)
    best = math.inf
    with torch.no_grad():
        apply(x)
        for _ in range(repeats):
            start = time.perf_counter()
            apply(x)
            best = min(best, time.perf_counter() - start)
    return best


def bytes_kept(layer: Layer, n: int, d: int) -> int:
    """Return the bytes that a forward pass keeps for the backward pass, not counting the weights."""
    x = torch.randn(1, n, d, generator=torch.Generator().manual_seed(n + d)).requires_grad_()
    apply = layer.build(d)
    not_counted = {tensor.untyped_storage().data_ptr() for tensor in apply.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in not_counted:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = apply(x)
    del y  # the tensors it keeps must live until here, or a new one might reuse an address
    return sum(kept.values())


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

"""Inputs for the errata's checks, and the comparison with a reference computed number by number.

The inputs are seeded random tensors, and small models with reproducible random weights. Nothing here uses torch's
global random state, so a check gives the same result anywhere and in any order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.config.presets import paper_base
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.encoder import EncoderLayer
from clearhead.model.transformer import Transformer
from clearhead.paper.errata.erratum import CheckResult
from clearhead.paper.plain import Matrix

Module = TypeVar("Module", bound=nn.Module)

EXACT = 1e-4
"""Maximum difference between values that should be equal; float32 errors are about 1e-6 here."""


def standard_normal(*shape: int, seed: int) -> Tensor:
    """Return independent random numbers of mean 0 and variance 1."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def word_ids(*words: int) -> Tensor:
    """Return one sentence of token ids, [1, length]."""
    return torch.tensor([words])


def build(make: Callable[[], Module]) -> Module:
    """Return a module in evaluation mode with random weights that depend only on their names and shapes.

    Matrices have variance 1 / fan-in, so that a layer preserves the size of its input. The weights need no gradients.
    """
    with torch.random.fork_rng(devices=[]):
        module = make().eval().requires_grad_(False)
    for name, weight in module.named_parameters():
        noise = standard_normal(*weight.shape, seed=zlib.crc32(name.encode()))
        if weight.dim() > 1:
            weight.copy_(noise / weight.size(1) ** 0.5)
        else:  # norm gains around 1, biases around 0
            weight.copy_(float("norm.weight" in name) + 0.1 * noise)
    return module


def small_model(**settings: Any) -> Transformer:
    """Return a random Transformer with two layers per side and a vocabulary of eleven; ids 0 to 2 are special."""
    sizes = {"vocab_size": 11, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    return build(lambda: Transformer(ModelConfig.model_validate({**sizes, **layers, **settings})))


def on_meta(make: Callable[[], Module]) -> Module:
    """Return a module with shapes but no data: enough to count weights and operations at any size."""
    with torch.device("meta"):
        return make()


@cache
def paper_base_on_meta() -> Transformer:
    """Return the paper's base model with 37,000 embedding rows, without data."""
    return on_meta(lambda: Transformer(paper_base()))


def count_weights(module: nn.Module) -> int:
    """Return the number of weights; a shared weight counts once."""
    return sum(weight.numel() for weight in module.parameters())


def encoder_layer(model: Transformer, index: int) -> EncoderLayer:
    """Return one layer of the encoder, counted from 0."""
    layer = model.encoder.layers[index]
    assert isinstance(layer, EncoderLayer)
    return layer


def input_of(module: nn.Module, run: Callable[[], object]) -> Tensor:
    """Return the input that a module received while `run` was executed."""
    seen: list[Tensor] = []
    with module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        run()
    return seen[0]


def difference(computed: Tensor, wanted: Tensor | Matrix) -> float:
    """Return the largest difference between two tensors; infinite if their shapes differ."""
    wanted = torch.as_tensor(wanted)
    return (computed - wanted).abs().max().item() if computed.shape == wanted.shape else float("inf")


def compared(output: Tensor, wanted: Tensor | Matrix, *, to: str, figures: str, holds: bool = True) -> CheckResult:
    """Return the result of a check that also compares a version's output for random input with a reference.

    Args:
        output: What the version computed.
        wanted: What the reference computed.
        to: Name of the reference.
        figures: Other measured numbers.
        holds: Whether these meet the demand of the check.
    """
    distance = difference(output, wanted)
    return CheckResult(holds and distance < EXACT, f"{figures}; output differs from {to} by {distance:.2f}", output)


def head_matrices(attention: MultiHeadAttention) -> tuple[list[Matrix], list[Matrix], list[Matrix]]:
    """Return the matrices W_i^Q, W_i^K and W_i^V of all heads, as section 3.2.2 writes them."""

    def blocks(projection: nn.Module) -> list[Matrix]:
        weight = projection.weight  # nn.Linear stores the transpose
        assert isinstance(weight, Tensor)
        return [block.T.tolist() for block in weight.chunk(attention.num_heads)]

    return blocks(attention.q_proj), blocks(attention.k_proj), blocks(attention.v_proj)

"""Inputs for the errata's checks: seeded random tensors, and small models with reproducible random weights.

Nothing here uses torch's global random state, so a check gives the same result anywhere and in any order.
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
from clearhead.model.encoder import EncoderLayer
from clearhead.model.transformer import Transformer

Module = TypeVar("Module", bound=nn.Module)


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

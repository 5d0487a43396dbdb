"""Exercises on the encoder and decoder stacks (section 3.1).

Shapes: T length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.errata.outputs import with_inputs
from clearhead.paper.exercises.exercise import equals, exercise_of


def layer_norm(x: Tensor) -> Tensor:
    """Return x [T, D] with mean 0 and variance 1 at each position, without gain and bias.

    Fill in the variance of the D numbers of each position, [T, 1]. The 1e-5 keeps the root away from 0.
    """
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5)


def add_and_norm(x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the output [T, D] of a sub-layer with its residual connection and normalisation.

    `sublayer` and `norm` take and return tensors like x [T, D]. Fill in the formula of the paper, not of later models.
    """
    return norm(x + sublayer(x))


def shift_right(target: list[int], bos_id: int) -> list[int]:
    """Return what the decoder reads while it is trained to write `target`, a list of token ids.

    The list is as long as the target and begins with the start token `bos_id`.
    """
    return [bos_id, *target[:-1]]


def _plain_norm(x: Tensor) -> plain.Matrix:
    return plain.layer_norm(x.tolist(), [1.0] * x.size(1), [0.0] * x.size(1), eps=1e-5)


def _sublayer(x: Tensor) -> Tensor:
    return (3 * x).tanh() + x.roll(1, dims=0)


def _norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


_X = 2 * standard_normal(5, 6, seed=200) + torch.arange(5.0)[:, None]


STACKS_EXERCISES = (
    exercise_of(layer_norm, test=equals(_plain_norm, (_X,))),
    exercise_of(
        add_and_norm,
        test=equals(lambda x, sublayer, norm: _plain_norm(torch.add(x, sublayer(x))), (_X, _sublayer, _norm)),
        errata={44: lambda answer: lambda residual, x, update: answer(x, lambda _: update, residual.norm)},
    ),
    exercise_of(
        shift_right,
        test=equals(lambda target, bos_id: [bos_id, 6, 9, 3], ([6, 9, 3, 2], 1), ([6, 9, 3, 8], 5)),
        errata={38: lambda answer: with_inputs(lambda target: answer(target, 1))},
    ),
)

"""Exercises on the feed-forward network, embeddings and positions (sections 3.3 to 3.5).

Shapes: T length, D d_model, F d_ff, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clearhead.model.feed_forward import FeedForward
from clearhead.model.positions import sinusoidal_positions
from clearhead.model.transformer import Transformer
from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import Answer, equals, exercise_of


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
    """Return equation 2 for x [T, D], with matrices w_1 [D, F] and w_2 [F, D] and biases b_1 [F] and b_2 [D].

    Fill in the hidden layer [T, F].
    """
    hidden = torch.relu(x @ w_1 + b_1)
    return hidden @ w_2 + b_2


def embed(ids: Tensor, table: Tensor) -> Tensor:
    """Return the embeddings [T, D] of token ids [T], rows of the table [V, D] which the output layer shares.

    Fill in the factor of section 3.4.
    """
    return table[ids] * math.sqrt(table.size(1))


def next_token_probabilities(logits: Tensor) -> Tensor:
    """Return the probabilities [T, V] of every token at each position, from logits [T, V].

    Fill in what section 3.4 does with the output of the linear layer.
    """
    return logits.softmax(dim=-1)


def angle(position: int, pair: int, d_model: int) -> float:
    """Return the angle whose sine is number 2i, and whose cosine is number 2i + 1, of a positional encoding.

    `position` and i, which is `pair`, count from 0.
    """
    return position / 10_000 ** (2 * pair / d_model)


def positional_encodings(angles: Tensor) -> Tensor:
    """Return the positional encodings [T, D] from the angles [T, D / 2] of each position.

    Fill in the order of sines and cosines that the paper prints.
    """
    sines, cosines = angles.sin(), angles.cos()
    return torch.stack((sines, cosines), dim=-1).flatten(1)


def first_input(ids: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """Return the input of the first layer [T, D] for token ids [T].

    The embeddings are rows of the table [V, D]; the positional encodings are [T, D]. Do not forget the factor.
    """
    words = table[ids]
    return words * math.sqrt(table.size(1)) + positions


def moved(sine: float, cosine: float, offset: float) -> tuple[float, float]:
    """Return the sine and cosine of an angle that is larger by `offset`, from those of the angle itself.

    This is why PE(pos + k) is a linear function of PE(pos), section 3.5. Fill in the cosine.
    """
    return sine * math.cos(offset) + cosine * math.sin(offset), cosine * math.cos(offset) - sine * math.sin(offset)


def _network(answer: Answer, network: FeedForward, x: Tensor) -> Tensor:
    up, down = network.up_proj, network.down_proj
    output: Tensor = answer(x, up.weight.T, up.bias, down.weight.T, down.bias)
    return output


def _encoder_input(answer: Answer, model: Transformer, ids: Tensor) -> Tensor:
    positions = sinusoidal_positions(ids.size(1), model.config.d_model)
    output: Tensor = answer(ids[0], model.source_embedding.weight, positions)
    return output


def _encodings(angles: Tensor) -> plain.Matrix:
    return [[wave(angle) for angle in row for wave in (math.sin, math.cos)] for row in angles.tolist()]


_TABLE = standard_normal(11, 6, seed=240)
_LONG_TABLE = standard_normal(7, 16, seed=241)


def _scaled(ids: Tensor, table: Tensor) -> plain.Matrix:
    rows = table.tolist()
    return [[number * len(rows[id]) ** 0.5 for number in rows[id]] for id in ids.tolist()]


LAYERS_EXERCISES = (
    exercise_of(feed_forward, errata={30: lambda answer: lambda network, x: _network(answer, network, x)}),
    exercise_of(embed, test=equals(_scaled, (torch.tensor([3, 8, 3]), _TABLE), (torch.tensor([6, 0]), _LONG_TABLE))),
    exercise_of(
        next_token_probabilities,
        errata={36: lambda answer: lambda model, source, target: answer(model(source, target)[0])[None]},
    ),
    exercise_of(
        angle,
        test=equals(
            lambda position, pair, d_model: math.exp(math.log(position) - math.log(10_000) * 2 * pair / d_model),
            *((position, pair, 8) for position in (1, 7, 40) for pair in range(4)),
        ),
    ),
    exercise_of(positional_encodings, test=equals(_encodings, (standard_normal(5, 3, seed=242),))),
    exercise_of(first_input, errata={35: lambda answer: lambda model, ids: _encoder_input(answer, model, ids)}),
    exercise_of(
        moved,
        test=equals(
            lambda sine, cosine, offset: (
                math.sin(math.atan2(sine, cosine) + offset),
                math.cos(math.atan2(sine, cosine) + offset),
            ),
            *((math.sin(start), math.cos(start), offset) for start in (0.3, 2.0) for offset in (0.5, -4.0)),
        ),
    ),
)

"""Exercises on multi-head attention (section 3.2.2).

Shapes: B batch, T length, D d_model, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import equals, exercise_of


def head_width(d_model: int, num_heads: int) -> int:
    """Return d_k, the width of the queries and keys of one head.

    `num_heads` heads share the width `d_model` of the model.
    """
    return d_model // num_heads


def queries_of_a_head(x: Tensor, w_q: Tensor, head: int, d_k: int) -> Tensor:
    """Return the queries x W_i^Q [T, K] of one head, for words x [T, D].

    The columns of w_q [D, H * K] are the matrices W_i^Q of all heads, one after the other; `head` counts from 0.
    """
    columns = slice(head * d_k, (head + 1) * d_k)
    return x @ w_q[:, columns]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Return x [B, T, H * K] as [B, H, T, K]: each head takes K of the H * K numbers of a word.

    The first head takes the first K numbers, the second head the next K, and so on.
    """
    batch, length, _ = x.shape
    return x.view(batch, length, num_heads, -1).transpose(1, 2)


def join_heads(heads: Tensor) -> Tensor:
    """Return the outputs of all heads [B, H, T, K] side by side, [B, T, H * K].

    This is the Concat(head_1, ..., head_h) that W^O multiplies.
    """
    return heads.transpose(1, 2).flatten(2)


def attention_weights(d_model: int, num_heads: int) -> int:
    """Return the number of weights of an attention sub-layer without biases, where d_k = d_v = d_model / num_heads.

    Count W_i^Q, W_i^K and W_i^V of all heads, and W^O.
    """
    return 4 * d_model * d_model


def _queries(x: Tensor, w_q: Tensor, head: int, d_k: int) -> plain.Matrix:
    return [row[head * d_k : (head + 1) * d_k] for row in plain.matmul(x.tolist(), w_q.tolist())]


def _split(x: Tensor, num_heads: int) -> list[list[plain.Matrix]]:
    width = x.size(2) // num_heads
    return [
        [[word[head * width : (head + 1) * width] for word in sentence] for head in range(num_heads)]
        for sentence in x.tolist()
    ]


def _join(heads: Tensor) -> list[plain.Matrix]:
    return [
        [[number for head in sentence for number in head[word]] for word in range(heads.size(2))]
        for sentence in heads.tolist()
    ]


def _count(d_model: int, num_heads: int) -> int:
    d_k = d_model // num_heads
    shapes = [(d_model, d_k)] * 3 * num_heads + [(num_heads * d_k, d_model)]
    return sum(rows * columns for rows, columns in shapes)


HEADS_EXERCISES = (
    exercise_of(head_width, errata={25: lambda answer: lambda config: answer(config.d_model, config.num_heads)}),
    exercise_of(
        queries_of_a_head,
        test=equals(
            _queries, *((standard_normal(5, 6, seed=220), standard_normal(6, 6, seed=221), i, 3) for i in range(2))
        ),
        errata={51: lambda answer: lambda layer, x: answer(x[0], layer.q_proj.weight.T, 0, 8)},
    ),
    exercise_of(split_heads, test=equals(_split, (standard_normal(2, 5, 12, seed=222), 3))),
    exercise_of(join_heads, test=equals(_join, (standard_normal(2, 3, 5, 4, seed=223),))),
    exercise_of(attention_weights, test=equals(_count, (512, 8), (512, 1), (256, 4))),
)

"""Exercises on multi-head attention (section 3.2.2).

Shapes: B batch, T length, D d_model, H heads, K head width.
"""

from __future__ import annotations

from torch import Tensor

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import Exercise, equals


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
    Exercise(
        number=9,
        section="3.2.2",
        solution=head_width,
        blank="d_model // num_heads",
        errata={25: lambda answer: lambda config: answer(config.d_model, config.num_heads)},
        wrong={
            "d_model * num_heads": "The heads share the width of the model; they do not multiply it.",
        },
    ),
    Exercise(
        number=10,
        section="3.2.2",
        solution=queries_of_a_head,
        blank="x @ w_q[:, columns]",
        test=equals(
            _queries, *((standard_normal(5, 6, seed=220), standard_normal(6, 6, seed=221), i, 3) for i in range(2))
        ),
        errata={51: lambda answer: lambda layer, x: answer(x[0], layer.q_proj.weight.T, 0, 8)},
        wrong={
            "x[:, columns]": "This is a slice of the words. A head projects whole words: d_model rows, d_k columns "
            "(erratum 51).",
            "x @ w_q": "These are the queries of all heads. A head has d_k columns of its own (erratum 27).",
        },
    ),
    Exercise(
        number=11,
        section="3.2.2",
        solution=split_heads,
        blank="x.view(batch, length, num_heads, -1).transpose(1, 2)",
        test=equals(_split, (standard_normal(2, 5, 12, seed=222), 3)),
        wrong={
            "x.view(batch, num_heads, length, -1)": "The shape is right, but the numbers are not: a head gets numbers "
            "of several words. Divide each word's numbers first, then exchange the axes.",
            "x.view(batch, length, -1, num_heads).permute(0, 3, 1, 2)": "A head gets every H-th number of a word; it "
            "should get K in a row.",
            "x.view(batch, length, num_heads, -1)": "The numbers are right, but the heads are not yet before the "
            "positions: the order is [B, H, T, K].",
        },
    ),
    Exercise(
        number=12,
        section="3.2.2",
        solution=join_heads,
        blank="heads.transpose(1, 2).flatten(2)",
        test=equals(_join, (standard_normal(2, 3, 5, 4, seed=223),)),
        wrong={
            "heads.reshape(len(heads), heads.size(2), -1)": "The shape is right, but the numbers of several words are "
            "mixed. Exchange the axes of heads and words first.",
            "heads.permute(0, 2, 3, 1).flatten(2)": "The heads alternate; each should have its K numbers in a row, or "
            "the rows of W^O do not fit.",
            "heads.mean(dim=1)": "The heads are averaged; the paper concatenates them.",
        },
    ),
    Exercise(
        number=13,
        section="3.2.2",
        solution=attention_weights,
        blank="4 * d_model * d_model",
        test=equals(_count, (512, 8), (512, 1), (256, 4)),
        wrong={
            "3 * d_model * d_model": "W^O is missing.",
            "4 * num_heads * d_model * d_model": "Each head is only d_model / num_heads wide, so that more heads have "
            "no more weights (erratum 18).",
            "0": "The dot products have no weights, but the projections before and after them do (erratum 13).",
            "3 * d_model * d_model // num_heads + d_model * d_model": "This counts W^Q, W^K and W^V of one head alone.",
        },
    ),
)

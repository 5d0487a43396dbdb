"""Exercises on scaled dot-product attention (section 3.2.1).

Shapes: B batch, T query length, S key length, K head width, V value width.
"""

from __future__ import annotations

from itertools import product

from torch import Tensor

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import Answer, equals, exercise_of


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the dot product of each query q [B, T, K] with each key k [B, S, K] of its sentence.

    Fill in Q K^T for a batch, [B, T, S].
    """
    return q @ k.transpose(-2, -1)


def scaled_weights(q: Tensor, k: Tensor) -> Tensor:
    """Return the attention weights [T, S] of the queries q [T, K] for the keys k [S, K].

    Fill in the number that the dot products are divided by.
    """
    scaled = (q @ k.T) / q.size(-1) ** 0.5
    return scaled.softmax(dim=-1)


def softmax(scores: Tensor) -> Tensor:
    """Return the weights [T, S] of scores [T, S].

    Fill in what the exponentials of a query are divided by.
    """
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the outputs [T, V] of the queries q [T, K], for keys k [S, K] with values v [S, V].

    Fill in what follows the scaled scores in equation 1.
    """
    scores = q @ k.T / q.size(-1) ** 0.5
    return scores.softmax(dim=-1) @ v


def variance_of_a_score(d_k: int) -> float:
    """Return the variance of q . k, if the components of q and k have mean 0 and variance 1 (footnote 4).

    Fill in the variance for vectors of d_k independent components.
    """
    return float(d_k)


def _attention_with(scores: Answer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q, k) / q.size(-1) ** 0.5).softmax(dim=-1) @ v


def _attention_by(softmax: Answer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    output: Tensor = softmax(q @ k.T / q.size(-1) ** 0.5) @ v
    return output


def _variance_over_all_signs(d_k: int) -> float:
    """Return the mean square of q . k over all vectors of +1 and -1."""
    vectors = list(product((-1, 1), repeat=d_k))
    squares = [sum(a * b for a, b in zip(q, k, strict=True)) ** 2 for q in vectors for k in vectors]
    return sum(squares) / len(squares)


ATTENTION_EXERCISES = (
    exercise_of(
        scores,
        test=equals(
            lambda q, k: [plain.matmul(a, plain.transpose(b)) for a, b in zip(q.tolist(), k.tolist(), strict=True)],
            (standard_normal(2, 3, 4, seed=210), standard_normal(2, 5, 4, seed=211)),
        ),
        errata={12: lambda answer: lambda q, k, v: _attention_with(answer, q, k, v)},
    ),
    exercise_of(scaled_weights, errata={number: lambda answer: answer for number in (1, 2, 3, 4)}),
    exercise_of(
        softmax, errata={number: lambda answer: lambda q, k, v: _attention_by(answer, q, k, v) for number in (6, 7)}
    ),
    exercise_of(attention, errata={number: lambda answer: answer for number in (5, 8, 9, 10)}),
    exercise_of(variance_of_a_score, test=equals(_variance_over_all_signs, (1,), (2,), (4,), (5,))),
)

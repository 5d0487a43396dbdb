"""Exercises on scaled dot-product attention (section 3.2.1).

Shapes: B batch, T query length, S key length, K head width, V value width.
"""

from __future__ import annotations

from itertools import product

from torch import Tensor

from clearhead.paper import plain
from clearhead.paper.errata.materials import standard_normal
from clearhead.paper.exercises.exercise import Answer, Exercise, equals


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
    Exercise(
        number=4,
        section="3.2.1",
        solution=scores,
        blank="q @ k.transpose(-2, -1)",
        test=equals(
            lambda q, k: [plain.matmul(a, plain.transpose(b)) for a, b in zip(q.tolist(), k.tolist(), strict=True)],
            (standard_normal(2, 3, 4, seed=210), standard_normal(2, 5, 4, seed=211)),
        ),
        errata={12: lambda answer: lambda q, k, v: _attention_with(answer, q, k, v)},
        wrong={
            "(q @ k.transpose(-2, -1)).softmax(dim=-1)": "These are weights already. The dot products come first, then "
            "the scale, then the softmax.",
        },
    ),
    Exercise(
        number=5,
        section="3.2.1",
        solution=scaled_weights,
        blank="q.size(-1) ** 0.5",
        errata={number: lambda answer: answer for number in (1, 2, 3, 4)},
    ),
    Exercise(
        number=6,
        section="3.2.1",
        solution=softmax,
        blank="exponentials.sum(dim=-1, keepdim=True)",
        errata={number: lambda answer: lambda q, k, v: _attention_by(answer, q, k, v) for number in (6, 7)},
        wrong={
            "exponentials.amax(dim=-1, keepdim=True)": "The largest weight is then 1, but the weights of a query must "
            "sum to 1.",
        },
    ),
    Exercise(
        number=7,
        section="3.2.1",
        solution=attention,
        blank="scores.softmax(dim=-1) @ v",
        errata={number: lambda answer: answer for number in (5, 8, 9, 10)},
        wrong={
            "scores / scores.sum(dim=-1, keepdim=True) @ v": "Scores can be negative, so their shares are no weights: "
            "a softmax comes before the sum (erratum 11).",
        },
    ),
    Exercise(
        number=8,
        section="3.2.1",
        solution=variance_of_a_score,
        blank="float(d_k)",
        test=equals(_variance_over_all_signs, (1,), (2,), (4,), (5,)),
        wrong={
            "math.sqrt(d_k)": "This is the standard deviation, which is why the scores are divided by it.",
            "1.0": "The variance is 1 only after the division by sqrt(d_k).",
            "d_k**2": "The d_k products are independent: their variances are added, not their standard deviations.",
        },
    ),
)

"""The paper's formulas in plain Python numbers and loops, as a reference for the tensor code.

A matrix is a list of rows. This module imports neither torch nor any other part of the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Matrix = list[list[float]]


def matmul(a: Matrix, b: Matrix) -> Matrix:
    """Return the product of two matrices.

    >>> matmul([[1.0, 2.0]], [[3.0], [4.0]])
    [[11.0]]
    """
    return [[sum(x * b[k][column] for k, x in enumerate(row)) for column in range(len(b[0]))] for row in a]


def transpose(a: Matrix) -> Matrix:
    """Return the transpose of a matrix."""
    return [list(column) for column in zip(*a, strict=True)]


def softmax(row: Sequence[float]) -> list[float]:
    """Return e^x_i / sum_j e^x_j; -inf gives 0."""
    largest = max(row)
    powers = [math.exp(x - largest) for x in row]
    return [power / sum(powers) for power in powers]


def masked(scores: Matrix, allowed: Sequence[Sequence[bool]]) -> Matrix:
    """Return the scores with -inf for each query and key that are not allowed (section 3.2.3)."""
    return [
        [score if may else -math.inf for score, may in zip(row, visible, strict=True)]
        for row, visible in zip(scores, allowed, strict=True)
    ]


def attention(
    q: Matrix, k: Matrix, v: Matrix, allowed: Sequence[Sequence[bool]] | None = None
) -> tuple[Matrix, Matrix]:
    """Return softmax(q k^T / sqrt(d_k)) v and the weights (equation 1).

    Args:
        q: Queries, one per row.
        k: Keys, one per row.
        v: Values, one for each key.
        allowed: Whether each query may attend to each key; other scores become -inf before the softmax (section 3.2.3).
    """
    scores = [[score / math.sqrt(len(q[0])) for score in row] for row in matmul(q, transpose(k))]
    if allowed is not None:
        scores = masked(scores, allowed)
    weights = [softmax(row) for row in scores]
    return matmul(weights, v), weights


def multi_head(
    query: Matrix,
    memory: Matrix,
    w_q: Sequence[Matrix],
    w_k: Sequence[Matrix],
    w_v: Sequence[Matrix],
    w_o: Matrix,
) -> Matrix:
    """Return Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (section 3.2.2)."""
    heads = [
        attention(matmul(query, q), matmul(memory, k), matmul(memory, v))[0]
        for q, k, v in zip(w_q, w_k, w_v, strict=True)
    ]
    joined = [[value for head in heads for value in head[row]] for row in range(len(query))]
    return matmul(joined, w_o)


def feed_forward(x: Matrix, w_1: Matrix, b_1: Sequence[float], w_2: Matrix, b_2: Sequence[float]) -> Matrix:
    """Return max(0, x W1 + b1) W2 + b2 (equation 2)."""
    hidden = [[max(0.0, value + bias) for value, bias in zip(row, b_1, strict=True)] for row in matmul(x, w_1)]
    return [[value + bias for value, bias in zip(row, b_2, strict=True)] for row in matmul(hidden, w_2)]


def layer_norm(x: Matrix, gain: Sequence[float], bias: Sequence[float], eps: float) -> Matrix:
    """Return each row normalised to mean 0 and variance 1, times gain, plus bias (Ba et al. 2016)."""
    result = []
    for row in x:
        mean = sum(row) / len(row)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + eps)
        result.append([(value - mean) / deviation * g + b for value, g, b in zip(row, gain, bias, strict=True)])
    return result


def position_encoding(position: int, column: int, d_model: int) -> float:
    """Return PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) or PE(pos, 2i+1) = cos(the same) (section 3.5)."""
    angle = position / 10_000 ** (2 * (column // 2) / d_model)
    return math.cos(angle) if column % 2 else math.sin(angle)


def smoothed_cross_entropy(logits: Sequence[float], target: int, smoothing: float) -> float:
    """Return -sum_i q_i log p_i with q = (1 - eps) at the target and eps / V everywhere (section 5.4)."""
    probabilities = softmax(logits)
    share = smoothing / len(logits)
    return -sum(
        (share + (1.0 - smoothing if token == target else 0.0)) * math.log(probability)
        for token, probability in enumerate(probabilities)
    )


def length_penalty(length: int, alpha: float) -> float:
    """Return lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha (Wu et al. 2016, equation 14; section 6.1)."""
    return (5 + length) ** alpha / (5 + 1) ** alpha


def adam(start: float, gradients: Sequence[float], *, rate: float) -> float:
    """Return a weight after one Adam step per gradient (Kingma and Ba 2015; the paper's betas and eps, section 5.3)."""
    beta_1, beta_2, eps = 0.9, 0.98, 1e-9
    weight, first, second = start, 0.0, 0.0
    for step, gradient in enumerate(gradients, start=1):
        first = beta_1 * first + (1.0 - beta_1) * gradient
        second = beta_2 * second + (1.0 - beta_2) * gradient**2
        weight -= rate * (first / (1.0 - beta_1**step)) / (math.sqrt(second / (1.0 - beta_2**step)) + eps)
    return weight

"""Mistakes in study notes about softmax and the weighted sum in equation 1.

Shapes: B batch, T query length, S key length, K head width, V value width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.errata.erratum import CheckResult, Erratum
from clearhead.paper.errata.materials import standard_normal

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps q, k, v to the output of attention."""

_EQUATION_1 = "Equation 1, section 3.2.1"
_EXACT = 1e-4
"""Maximum difference between values that should be equal; float32 errors are about 1e-6 here."""

# Scores of another input, left over in a notebook; the first wrong version uses them.
_OTHER_INPUT = standard_normal(5, 8, seed=10)
_LEFT_OVER = _OTHER_INPUT @ _OTHER_INPUT.T


def _ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)[0]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / q.size(-1) ** 0.5


def _look_up_known_keys(attend: Attend) -> CheckResult:
    """For each of five orthogonal keys, a query that strongly matches it returns its value."""
    k, v = torch.eye(5, 8), standard_normal(5, 3, seed=11)
    q = 100 * k[[3, 0, 4, 1, 2]]
    output = attend(q, k, v)
    distance = (output - v[[3, 0, 4, 1, 2]]).abs().max().item()
    has_shape = output.shape == (5, 3)
    return CheckResult(
        has_shape and distance < _EXACT,
        f"shape {'as expected' if has_shape else 'wrong'}, largest difference from the expected values {distance:.3f}",
    )


def _keeps_a_constant(attend: Attend) -> CheckResult:
    """Attention to values that are all 1 returns 1, their average."""
    output = attend(standard_normal(4, 8, seed=12), standard_normal(6, 8, seed=13), torch.ones(6, 1))
    low, high = output.min().item(), output.max().item()
    return CheckResult(max(1 - low, high - 1) < _EXACT, f"outputs lie between {low:.2f} and {high:.2f}")


def _stays_among_the_values(attend: Attend) -> CheckResult:
    """Every component of the output lies between the smallest and the largest of the values."""
    v = standard_normal(6, 3, seed=14)
    output = attend(3 * standard_normal(40, 8, seed=15), 3 * standard_normal(6, 8, seed=16), v)
    outside = ((output > v.amax(dim=0) + _EXACT) | (output < v.amin(dim=0) - _EXACT)).float().mean().item()
    return CheckResult(
        outside == 0, f"{100 * outside:.0f} % of the output components lie outside the range of the values"
    )


def _mixes_all_values(attend: Attend) -> CheckResult:
    """A query of zeros, which scores all keys equally, returns the mean of all values."""
    v = standard_normal(5, 3, seed=17)
    output = attend(torch.zeros(5, 8), standard_normal(5, 8, seed=18), v)
    distance = (output - v.mean(dim=0)).abs().max().item()
    return CheckResult(distance < _EXACT, f"largest difference from the mean of the values {distance:.3f}")


def _becomes_an_exact_look_up(attend: Attend) -> CheckResult:
    """At temperature 0.001 a query near one key returns that key's value alone.

    At temperature 100 it returns nearly the mean of all values.
    """
    k, v = torch.eye(4, 8), torch.tensor([[3.0], [1.0], [4.0], [2.0]])
    q = torch.tensor([[0.2, 0.9, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0]])  # nearest to the second key, whose value is 1
    temperatures = (100.0, 1.0, 0.1, 0.001)
    outputs = [attend(q / temperature, k, v).item() for temperature in temperatures]
    return CheckResult(
        abs(outputs[-1] - 1.0) < _EXACT and abs(outputs[0] - v.mean().item()) < 0.05,
        "the nearest key's value is 1, the mean is 2.5; outputs at temperature 100, 1, 0.1, 0.001: "
        + ", ".join(f"{output:.2f}" for output in outputs),
    )


def _batch_is_as_one_by_one(attend: Attend) -> CheckResult:
    """A batch of three sentences gives the same outputs as each sentence alone.

    All sizes are equal, so that a wrong axis does not show in the shapes.
    """
    q, k, v = (standard_normal(3, 3, 3, seed=seed) for seed in (19, 20, 21))
    alone = torch.stack([attend(*sentence) for sentence in zip(q, k, v, strict=True)])
    distance = (attend(q, k, v) - alone).abs().max().item()
    return CheckResult(distance < _EXACT, f"largest difference between the batch and single sentences {distance:.3f}")


def _reverse_axes(x: Tensor) -> Tensor:
    """Return the result of NumPy's `.T`: all axes reversed."""
    return x.permute(*reversed(range(x.dim())))


def _over_the_whole_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    exponentials = _scores(q, k).exp()
    return exponentials / exponentials.sum() @ v


def _share_of_similarity(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    similarity = (q @ k.T).clamp_min(0)
    return similarity / similarity.sum(dim=-1, keepdim=True) @ v


WEIGHTS_ERRATA: tuple[Erratum[Any], ...] = (
    Erratum(
        number=5,
        title="An attention function that ignores its arguments",
        wrong="`def attention(Q, K, V)` computes a product, discards it, and continues with the global variable `num`, "
        "which was computed from another input; its test checks only the shape of the result.",
        right="The weights are computed from the arguments Q and K. Both versions return the right shape, so only a "
        "test of the values distinguishes them.",
        source=_EQUATION_1,
        wrong_version=lambda q, k, v: (_LEFT_OVER / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
        right_version=_ours,
        test=_look_up_known_keys,
    ),
    Erratum(
        number=6,
        title="A sigmoid in place of the softmax",
        wrong="A sigmoid scales the weights to [0, 1].",
        right="The weights are a softmax of the scores over the keys: for each query they are not negative and sum to "
        "1.",
        source=_EQUATION_1,
        wrong_version=lambda q, k, v: _scores(q, k).sigmoid() @ v,
        right_version=_ours,
        test=_keeps_a_constant,
    ),
    Erratum(
        number=7,
        title="A softmax over the whole matrix",
        wrong="softmax(x) = e^x / sum_k e^x, which can be read as one sum over the whole matrix of scores.",
        right="softmax(x)_i = e^(x_i) / sum_j e^(x_j), for each row of Q K^T / sqrt(d_k), which means for each query "
        "separately.",
        source=_EQUATION_1,
        wrong_version=_over_the_whole_matrix,
        right_version=_ours,
        test=_keeps_a_constant,
    ),
    Erratum(
        number=8,
        title="No softmax between scores and values",
        wrong="The product of query and key is scaled and multiplied with the value again.",
        right="The softmax is applied after the scaling and before the multiplication with the values. Without it the "
        "output is not an average of the values.",
        source=_EQUATION_1 + "; figure 2 left",
        wrong_version=lambda q, k, v: _scores(q, k) @ v,
        right_version=_ours,
        test=_stays_among_the_values,
    ),
    Erratum(
        number=9,
        title="A plain sum of the values",
        wrong="The output is the summation of the values.",
        right="It is a sum weighted by the softmax, with different weights for each query.",
        source="Section 3.2: the output is a weighted sum of the values",
        wrong_version=lambda q, k, v: v.sum(dim=0).expand(q.size(0), -1),
        right_version=_ours,
        test=_look_up_known_keys,
    ),
    Erratum(
        number=10,
        title="The value as the output",
        wrong="The value is often regarded as the output.",
        right="An output is a weighted average of the values of all positions. It equals the value of its own position "
        "only if the query may attend to no other.",
        source="Section 3.2: the output is a weighted sum of the values",
        wrong_version=lambda q, k, v: v,
        right_version=_ours,
        test=_mixes_all_values,
    ),
    Erratum(
        number=11,
        title="A soft look-up without the softmax",
        wrong="Attention is a soft look-up: each value is weighted by its key's share of the similarities.",
        right="Each value is weighted by the softmax of the similarities. This has the exact look-up as its limit: as "
        "the temperature approaches 0, the output approaches the value of the nearest key, and as it grows, the mean "
        "of all values. Plain shares do not change with the temperature.",
        source="Section 3.2: queries against key-value pairs; the limit follows from equation 1",
        wrong_version=_share_of_similarity,
        right_version=_ours,
        test=_becomes_an_exact_look_up,
    ),
    Erratum(
        number=12,
        title="`K.T` for a batch",
        wrong="`Q @ K.T` is the product of queries and keys.",
        right="`.T` reverses all axes. In a batch only the last two are exchanged: `k.transpose(-2, -1)`.",
        source=_EQUATION_1 + ": K^T transposes each matrix of keys; `clearhead.model.attention`",
        wrong_version=lambda q, k, v: (q @ _reverse_axes(k) / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
        right_version=_ours,
        test=_batch_is_as_one_by_one,
    ),
)

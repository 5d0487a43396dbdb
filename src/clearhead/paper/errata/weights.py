"""Mistakes in study notes about softmax and the weighted sum in equation 1.

Shapes: B batch, T query length, S key length, K head width, V value width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.model.attention import scaled_dot_product_attention
from clearhead.paper.errata.erratum import CheckResult, erratum
from clearhead.paper.errata.materials import EXACT, compared, standard_normal
from clearhead.paper.plain import attention

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps q, k, v to the output of attention."""

# Scores of another input, left over in a notebook; the first wrong version uses them.
_OTHER_INPUT = standard_normal(5, 8, seed=10)
_LEFT_OVER = _OTHER_INPUT @ _OTHER_INPUT.T


def _ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v)[0]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / q.size(-1) ** 0.5


def _compared_with_equation_1(attend: Attend, holds: bool, figures: str) -> CheckResult:
    """Return a result that also demands equation 1, of queries and keys in general position and of any length."""
    q, k, v = 1.5 * standard_normal(5, 8, seed=22), standard_normal(5, 8, seed=23), standard_normal(5, 3, seed=24)
    wanted = attention(q.tolist(), k.tolist(), v.tolist())[0]
    return compared(attend(q, k, v), wanted, to="equation 1", figures=figures, holds=holds)


def _look_up_known_keys(attend: Attend) -> CheckResult:
    """For each of five orthogonal keys, a query that strongly matches it returns its value.

    Random input gives the output of equation 1, calculated number by number.
    """
    k, v = torch.eye(5, 8), standard_normal(5, 3, seed=11)
    q = 100 * k[[3, 0, 4, 1, 2]]
    output = attend(q, k, v)
    distance = (output - v[[3, 0, 4, 1, 2]]).abs().max().item()
    has_shape = output.shape == (5, 3)
    return _compared_with_equation_1(
        attend,
        has_shape and distance < EXACT,
        f"shape {'as expected' if has_shape else 'wrong'}, largest difference from the expected values {distance:.3f}",
    )


def _keeps_a_constant(attend: Attend) -> CheckResult:
    """Attention to values that are all 1 returns 1, their average.

    Random input gives the output of equation 1, calculated number by number.
    """
    output = attend(standard_normal(4, 8, seed=12), standard_normal(6, 8, seed=13), torch.ones(6, 1))
    low, high = output.min().item(), output.max().item()
    return _compared_with_equation_1(
        attend, max(1 - low, high - 1) < EXACT, f"outputs lie between {low:.2f} and {high:.2f}"
    )


def _stays_among_the_values(attend: Attend) -> CheckResult:
    """Every component of the output lies between the smallest and the largest of the values.

    Random input gives the output of equation 1, calculated number by number.
    """
    v = standard_normal(6, 3, seed=14)
    output = attend(3 * standard_normal(40, 8, seed=15), 3 * standard_normal(6, 8, seed=16), v)
    outside = ((output > v.amax(dim=0) + EXACT) | (output < v.amin(dim=0) - EXACT)).float().mean().item()
    return _compared_with_equation_1(
        attend, outside == 0, f"{100 * outside:.0f} % of the output components lie outside the range of the values"
    )


def _mixes_all_values(attend: Attend) -> CheckResult:
    """A query of zeros, which scores all keys equally, returns the mean of all values.

    Random input gives the output of equation 1, calculated number by number.
    """
    v = standard_normal(5, 3, seed=17)
    output = attend(torch.zeros(5, 8), standard_normal(5, 8, seed=18), v)
    distance = (output - v.mean(dim=0)).abs().max().item()
    return _compared_with_equation_1(
        attend, distance < EXACT, f"largest difference from the mean of the values {distance:.3f}"
    )


def _becomes_an_exact_look_up(attend: Attend) -> CheckResult:
    """At temperature 0.001 a query near one key returns that key's value alone.

    At temperature 100 it returns nearly the mean of all values. Random input gives the output of equation 1, calculated
    number by number.
    """
    k, v = torch.eye(4, 8), torch.tensor([[3.0], [1.0], [4.0], [2.0]])
    q = torch.tensor([[0.2, 0.9, 0.1, 0.3, 0.0, 0.0, 0.0, 0.0]])  # nearest to the second key, whose value is 1
    temperatures = (100.0, 1.0, 0.1, 0.001)
    outputs = [attend(q / temperature, k, v).item() for temperature in temperatures]
    return _compared_with_equation_1(
        attend,
        abs(outputs[-1] - 1.0) < EXACT and abs(outputs[0] - v.mean().item()) < 0.05,
        "the nearest key's value is 1, the mean is 2.5; outputs at temperature 100, 1, 0.1, 0.001: "
        + ", ".join(f"{output:.2f}" for output in outputs),
    )


def _treats_each_sentence_of_a_batch(attend: Attend) -> CheckResult:
    """A batch of three sentences gives the outputs of equation 1, calculated number by number for each sentence.

    All sizes are equal, so that a wrong axis does not show in the shapes.
    """
    q, k, v = (standard_normal(3, 3, 3, seed=seed) for seed in (19, 20, 21))
    wanted = torch.tensor([attention(*each)[0] for each in zip(q.tolist(), k.tolist(), v.tolist(), strict=True)])
    return compared(attend(q, k, v), wanted, to="equation 1", figures="three sentences of three words")


def _reverse_axes(x: Tensor) -> Tensor:
    """Return the result of NumPy's `.T`: all axes reversed."""
    return x.permute(*reversed(range(x.dim())))


def _over_the_whole_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    exponentials = _scores(q, k).exp()
    return exponentials / exponentials.sum() @ v


def _over_the_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention with the softmax over the wrong axis; its weights are then made to sum to 1."""
    weights = _scores(q, k).softmax(dim=-2)
    return _shares(weights) @ v


def _shares(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=-1, keepdim=True)


def _of_the_nearest(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v[_scores(q, k).argmax(dim=-1)]


def _rows_of_the_whole_matrix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _shares(_scores(q, k).flatten().softmax(dim=0).view(q.size(0), -1)) @ v


def _odds(p: Tensor) -> Tensor:
    return p / (1 - p)


def _nearest_or_mean(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _of_the_nearest(q, k, v) if _scores(q, k).amax() > 1 else v.mean(dim=0).expand(q.size(0), -1)


def _share_of_similarity(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    similarity = (q @ k.T).clamp_min(0)
    return similarity / similarity.sum(dim=-1, keepdim=True) @ v


WEIGHTS_ERRATA = (
    erratum(
        "An attention function that ignores its arguments",
        wrong_version=lambda q, k, v: (_LEFT_OVER / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
        right_version=_ours,
        test=_look_up_known_keys,
        mutants={
            "the nearest key's value alone": _of_the_nearest,
            "no scale": lambda q, k, v: (q @ k.T).softmax(dim=-1) @ v,
            "the length of q ignored": lambda q, k, v: _ours(100 * functional.normalize(q, dim=-1), k, v),
            "k ignored": lambda q, k, v: _ours(q, torch.eye(*k.shape), v),
            "q ignored": lambda q, k, v: _ours(100 * k[[3, 0, 4, 1, 2]], k, v),
        },
        also_right={
            "torch's function": functional.scaled_dot_product_attention,
            "each query alone": lambda q, k, v: torch.cat([_ours(each, k, v) for each in q.split(1)]),
        },
    ),
    erratum(
        "A sigmoid in place of the softmax",
        wrong_version=lambda q, k, v: _scores(q, k).sigmoid() @ v,
        right_version=_ours,
        test=_keeps_a_constant,
        mutants={
            "sigmoids divided by their sum": lambda q, k, v: _shares(_scores(q, k).sigmoid()) @ v,
            "a softmax in base 2": lambda q, k, v: _shares(2 ** _scores(q, k)) @ v,
        },
        also_right={"odds of the sigmoid": lambda q, k, v: _shares(_odds(_scores(q, k).sigmoid())) @ v},
    ),
    erratum(
        "A softmax over the whole matrix",
        wrong_version=_over_the_whole_matrix,
        right_version=_ours,
        test=_keeps_a_constant,
        mutants={
            "a softmax over the queries, made to sum to 1": _over_the_queries,
            "a softmax over the queries": lambda q, k, v: _scores(q, k).softmax(dim=0) @ v,
        },
        also_right={
            "over the whole matrix, each row then divided by its sum": _rows_of_the_whole_matrix,
            "base 2 with the scores times log2(e)": lambda q, k, v: _shares(2 ** (_scores(q, k) / math.log(2))) @ v,
        },
    ),
    erratum(
        "No softmax between scores and values",
        wrong_version=lambda q, k, v: _scores(q, k) @ v,
        right_version=_ours,
        test=_stays_among_the_values,
        mutants={
            "positive scores divided by their sum": lambda q, k, v: _shares(_scores(q, k).clamp_min(1e-6)) @ v,
            "equal weights": lambda q, k, v: v.mean(dim=0).expand(q.size(0), -1),
            "the scale after the softmax": lambda q, k, v: (q @ k.T).softmax(dim=-1) / q.size(-1) ** 0.5 @ v,
        },
    ),
    erratum(
        "A plain sum of the values",
        wrong_version=lambda q, k, v: v.sum(dim=0).expand(q.size(0), -1),
        right_version=_ours,
        test=_look_up_known_keys,
        mutants={
            "the nearest key's value alone": _of_the_nearest,
            "no scale": lambda q, k, v: (q @ k.T).softmax(dim=-1) @ v,
        },
    ),
    erratum(
        "The value as the output",
        wrong_version=lambda q, k, v: v,
        right_version=_ours,
        test=_mixes_all_values,
        mutants={
            "the mean of the values": lambda q, k, v: v.mean(dim=0).expand(q.size(0), -1),
            "the same weights for each query": lambda q, k, v: _ours(q.mean(dim=0, keepdim=True), k, v).expand_as(v),
        },
    ),
    erratum(
        "A soft look-up without the softmax",
        wrong_version=_share_of_similarity,
        right_version=_ours,
        test=_becomes_an_exact_look_up,
        mutants={
            "the nearest key's value, or the mean": _nearest_or_mean,
            "shares of the cubed softmax": lambda q, k, v: _shares(_scores(q, k).softmax(dim=-1) ** 3) @ v,
        },
    ),
    erratum(
        "`K.T` for a batch",
        wrong_version=lambda q, k, v: (q @ _reverse_axes(k) / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
        right_version=_ours,
        test=_treats_each_sentence_of_a_batch,
        mutants={
            "k not transposed": lambda q, k, v: (q @ k / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
            "batch and length exchanged": lambda q, k, v: _ours(*(x.transpose(0, 1) for x in (q, k, v))),
            "the scores transposed": lambda q, k, v: _ours(k, q, v),
        },
        also_right={
            "`.mT`": lambda q, k, v: (q @ k.mT / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
            "einsum": lambda q, k, v: (torch.einsum("btk,bsk->bts", q, k) / q.size(-1) ** 0.5).softmax(dim=-1) @ v,
        },
    ),
)

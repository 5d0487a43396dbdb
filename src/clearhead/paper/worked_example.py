"""Figure 2 as a worked example with small numbers: one attention, then two heads (paper sections 3.2.1 and 3.2.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from clearhead.inspection.plots import HeatMap
from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.masks import causal_mask
from clearhead.paper.parts import Check, magnitude, matrix_lines, paragraph
from clearhead.paper.plain import Matrix, attention, masked, matmul, multi_head, softmax, transpose

_Q: Matrix = [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]
_K: Matrix = [[2, 0, 2, 0], [0, 2, 0, 2], [2, 2, 0, 0]]
_V: Matrix = [[1, 0], [0, 1], [1, 1]]

_X: Matrix = [[1, 0, 2, 1], [0, 2, 1, 0], [1, 1, 0, 2]]
_W_Q: list[Matrix] = [[[1, 0], [0, 1], [0, 0], [0, 0]], [[0, 0], [0, 0], [1, 0], [0, 1]]]
_W_K: list[Matrix] = [[[0, 0], [1, 0], [0, 1], [0, 0]], [[0, 0], [0, 0], [0, 1], [1, 0]]]
_W_V: list[Matrix] = [[[1, 0], [0, 0], [0, 0], [0, 1]], [[0, 1], [1, 0], [0, 0], [0, 0]]]
_W_O: Matrix = [[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, -1]]

_TOLERANCE = 1e-12
"""Tolerance in float64, which has 16 digits; these sums lose one or two of them."""


@dataclass(frozen=True)
class WorkedExample:
    """Figure 2 as text lines and a heat map of its weights, with checks that the package computes the same numbers."""

    lines: list[str]
    figure: HeatMap
    checks: tuple[Check, Check]


def worked_example() -> WorkedExample:
    """Return figure 2 with numbers, computed in plain Python and compared with the package."""
    left_lines, weights, left_check = _scaled_dot_product()
    right_lines, right_check = _multi_head()
    names = [str(place) for place in range(1, len(weights) + 1)]
    figure = HeatMap(
        title="Figure 2, left: attention weights under a causal mask",
        values=[[weight or math.nan for weight in row] for row in weights],  # 0: masked
        x_label="key at position",
        y_label="query at position",
        value_label="weight",
        x_names=names,
        y_names=names,
        are_shares=True,
        caption="The worked example of clearhead paper formulas; each row sums to 1.",
    )
    return WorkedExample([*left_lines, *right_lines], figure, (left_check, right_check))


def _scaled_dot_product() -> tuple[list[str], Matrix, Check]:
    d_k, n = len(_Q[0]), len(_Q)
    allowed = [[key <= query for key in range(n)] for query in range(n)]
    products = matmul(_Q, transpose(_K))
    scaled = [[value / math.sqrt(d_k) for value in row] for row in products]
    hidden = masked(scaled, allowed)
    weights = [softmax(row) for row in hidden]
    output = matmul(weights, _V)
    ours, _ = scaled_dot_product_attention(_tensor(_Q), _tensor(_K), _tensor(_V), causal_mask(n))
    lines = [
        *paragraph(f"Figure 2, left: scaled dot-product attention of {n} positions, d_k = {d_k}, d_v = {len(_V[0])}."),
        *matrix_lines("Q", _Q, "queries, one a row", digits=0),
        *matrix_lines("K", _K, "keys", digits=0),
        *matrix_lines("V", _V, "values", digits=0),
        *matrix_lines("Q K^T", products, "MatMul: how well each query fits each key", digits=0),
        *matrix_lines("/ sqrt(d_k)", scaled, "Scale: sqrt(4) = 2", digits=0),
        *matrix_lines("masked", hidden, "Mask (opt.): what comes later is -inf", digits=0),
        *matrix_lines("softmax", weights, "SoftMax: every row sums to 1; -inf became 0"),
        *matrix_lines("weights V", output, "MatMul: the weighted sums of the values"),
    ]
    return lines, weights, _check("figure 2, left: scaled_dot_product_attention ends at these numbers", ours, output)


def _multi_head() -> tuple[list[str], Check]:
    heads = len(_W_Q)
    output = multi_head(_X, _X, _W_Q, _W_K, _W_V, _W_O)
    lines = [
        *paragraph(
            f"Figure 2, right: multi-head self-attention of X, d_model = {len(_X[0])}, h = {heads}, d_k = d_v = 2."
        ),
        *matrix_lines("X", _X, "Q = K = V = X; each head projects them with matrices of its own", digits=0),
    ]
    joined: Matrix = [[] for _ in _X]
    for number, (w_q, w_k, w_v) in enumerate(zip(_W_Q, _W_K, _W_V, strict=True), start=1):
        head, weights = attention(matmul(_X, w_q), matmul(_X, w_k), matmul(_X, w_v))
        lines += [
            *matrix_lines(f"X W_{number}^Q", matmul(_X, w_q), f"Linear: queries of head {number}", digits=0),
            *matrix_lines(f"X W_{number}^K", matmul(_X, w_k), "keys", digits=0),
            *matrix_lines(f"X W_{number}^V", matmul(_X, w_v), "values", digits=0),
            *matrix_lines(f"weights_{number}", weights, f"softmax(Q K^T / sqrt(2)) of head {number}"),
            *matrix_lines(f"head_{number}", head, "weights V"),
        ]
        joined = [left + right for left, right in zip(joined, head, strict=True)]
    lines += [
        *matrix_lines("Concat", joined, "the heads side by side"),
        *matrix_lines("W^O", _W_O, "Linear", digits=0),
        *matrix_lines("MultiHead", output, "Concat W^O"),
    ]
    layer = MultiHeadAttention(d_model=len(_X[0]), num_heads=heads).double()
    with torch.no_grad():
        for projection, matrices in ((layer.q_proj, _W_Q), (layer.k_proj, _W_K), (layer.v_proj, _W_V)):
            # A linear layer stores W^T; the heads are row blocks of one matrix.
            projection.weight.copy_(torch.cat([_tensor(matrix).T for matrix in matrices]))
        layer.out_proj.weight.copy_(_tensor(_W_O).T)
        x = _tensor(_X)[None]
        ours = layer(x, x)[0]
    return lines, _check("figure 2, right: MultiHeadAttention ends at these numbers", ours, output)


def _tensor(matrix: Matrix) -> torch.Tensor:
    return torch.tensor(matrix, dtype=torch.float64)


def _check(name: str, ours: torch.Tensor, expected: Matrix) -> Check:
    difference = float((ours - _tensor(expected)).abs().max())
    return Check(name, difference < _TOLERANCE, f"largest difference {magnitude(difference)}")

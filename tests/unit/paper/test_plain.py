"""The plain formulas give what one works out by hand."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from clearhead.paper import plain


def test_softmax_is_a_share_of_powers():
    assert plain.softmax([0.0, math.log(3.0), -math.inf]) == pytest.approx([0.25, 0.75, 0.0])
    assert plain.softmax([1e4, 1e4]) == [0.5, 0.5]


def test_a_query_that_fits_one_key_alone_reads_its_value():
    output, weights = plain.attention([[100.0, 0.0]], [[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], [[1.0], [2.0], [3.0]])
    assert weights[0] == pytest.approx([0.0, 1.0, 0.0])
    assert output[0] == pytest.approx([2.0])


def test_scores_are_divided_by_the_root_of_the_key_width():
    _, weights = plain.attention([[1.0] * 4], [[1.0] * 4, [0.0] * 4], [[0.0], [0.0]])
    assert weights[0][0] / weights[0][1] == pytest.approx(math.exp(4 / 2))


def test_masked_keys_have_weight_zero():
    _, weights = plain.attention([[5.0]], [[1.0], [9.0]], [[1.0], [1.0]], [[True, False]])
    assert weights == [[1.0, 0.0]]


def test_heads_are_joined_and_mixed():
    identity, swap = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    halves = [[[1.0], [0.0]], [[0.0], [1.0]]]
    x = [[3.0, 7.0]]
    assert plain.multi_head(x, x, halves, halves, halves, identity) == [[3.0, 7.0]]
    assert plain.multi_head(x, x, halves, halves, halves, swap) == [[7.0, 3.0]]


def test_feed_forward_cuts_below_zero():
    assert plain.feed_forward([[2.0]], [[1.0, -1.0]], [0.5, 0.5], [[10.0], [100.0]], [1.0]) == [[26.0]]


def test_layer_norm_has_mean_zero_and_variance_one():
    (row,) = plain.layer_norm([[1.0, 2.0, 3.0]], [1.0] * 3, [0.0] * 3, 0.0)
    assert row == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)])
    assert plain.layer_norm([[1.0, 3.0]], [2.0, 2.0], [5.0, 5.0], 0.0) == [[3.0, 7.0]]


def test_positions_begin_with_sine_zero_and_cosine_one():
    assert [plain.position_encoding(0, column, 6) for column in range(6)] == [0, 1, 0, 1, 0, 1]
    assert plain.position_encoding(5, 2, 4) == pytest.approx(math.sin(5 / 100))


def test_the_smoothed_loss_of_even_scores_is_the_logarithm_of_the_vocabulary():
    for smoothing in (0.0, 0.1, 0.7):
        assert plain.smoothed_cross_entropy([2.0] * 11, 3, smoothing) == pytest.approx(math.log(11))
    assert plain.smoothed_cross_entropy([0.0, math.log(3.0)], 1, 0.0) == pytest.approx(-math.log(0.75))
    half = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert plain.smoothed_cross_entropy([0.0, math.log(3.0)], 1, 0.5) == pytest.approx(half)


def test_the_length_penalty_of_five_tokens():
    assert round(plain.length_penalty(5, 0.6), 4) == 1.3587
    assert plain.length_penalty(1, 0.6) == 1.0


def test_adams_first_step_is_the_rate_whatever_the_gradient():
    assert plain.adam(1.0, [1e-3], rate=0.25) == pytest.approx(0.75)
    assert plain.adam(1.0, [-400.0], rate=0.25) == pytest.approx(1.25)
    # Twice the same gradient: both moments, once corrected, are it and its square again.
    assert plain.adam(1.0, [3.0, 3.0], rate=0.25) == pytest.approx(0.5)


def test_plain_arithmetic_stays_plain():
    tree = ast.parse(Path(plain.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"__future__", "collections.abc", "math"}

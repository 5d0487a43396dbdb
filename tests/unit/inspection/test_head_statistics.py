"""Head statistics of heads whose numbers are plain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from clearhead.inspection.head_statistics import STATISTICS, head_statistics

N = 4
HEADS = {
    "uniform": np.full((N, N), 1 / N),
    "previous": np.eye(N, k=-1) + np.eye(N)[0] * (np.arange(N) == 0)[:, None],
    "itself": np.eye(N),
    "end": np.eye(N)[-1] + np.zeros((N, 1)),
}


@pytest.fixture(scope="module")
def found():
    weights = np.stack([np.stack(list(HEADS.values()))])  # one layer
    return head_statistics(weights, is_self=True, is_causal=False)


def of(found, statistic, head):
    return found[statistic][0, list(HEADS).index(head)]


def test_sharp_heads_have_no_entropy_and_uniform_ones_all_of_it(found):
    assert of(found, "entropy", "uniform") == pytest.approx(math.log(N))
    assert of(found, "peak", "uniform") == pytest.approx(1 / N)
    for head in ("previous", "itself", "end"):
        assert of(found, "entropy", head) == 0
        assert of(found, "peak", head) == 1


def test_distances_are_counted_in_tokens(found):
    assert of(found, "distance", "itself") == 0
    assert of(found, "distance", "previous") == pytest.approx(3 / 4)  # the first row has nothing before it
    assert of(found, "distance", "end") == pytest.approx((3 + 2 + 1 + 0) / 4)
    assert of(found, "distance", "uniform") == pytest.approx(5 / 4)


def test_head_statistics_share_of_previous_same_next_first_and_last(found):
    assert of(found, "previous_share", "previous") == 1
    assert of(found, "same_share", "itself") == 1
    assert of(found, "next_share", "itself") == 0
    assert of(found, "last_share", "end") == 1
    assert of(found, "first_share", "previous") == pytest.approx(2 / 4)  # rows 0 and 1


def test_the_diagonal_of_two_lengths_is_diagonal():
    weights = np.zeros((1, 1, 2, 6))
    weights[0, 0, 0, 0] = weights[0, 0, 1, 3] = 1.0
    cross = head_statistics(weights, is_self=False, is_causal=False)
    assert cross["diagonality"][0, 0] == pytest.approx(1.0)
    off = head_statistics(weights[..., ::-1], is_self=False, is_causal=False)
    assert off["diagonality"][0, 0] < 0.4


def test_statistics_without_meaning_for_a_kind_of_attention_are_left_out(found):
    causal = head_statistics(np.tril(np.full((1, 1, 3, 3), 1.0)), is_self=True, is_causal=True)
    cross = head_statistics(np.full((1, 1, 3, 5), 0.2), is_self=False, is_causal=False)
    assert found.keys() == STATISTICS.keys()
    assert STATISTICS.keys() - causal.keys() == {"last_share", "next_share"}
    assert STATISTICS.keys() - cross.keys() == {"previous_share", "same_share", "next_share"}
    single = head_statistics(np.ones((1, 1, 1, 1)), is_self=True, is_causal=True)
    assert "previous_share" not in single

"""What heads do, told of weights made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.inspection.head_roles import HeadRole, cross_roles, self_roles

SIZE = 10
TOKENS = [f" t{place}" for place in range(SIZE - 1)] + ["</s>"]


def rows(where: np.ndarray, *, share: float = 0.8, columns: int = SIZE, causal: bool = False) -> np.ndarray:
    """Return weights of one head that gives so much to a key of each query, and the rest to all keys alike."""
    sees = np.tril(np.ones((len(where), columns))) if causal else np.ones((len(where), columns))
    weights = (1 - share) * sees / sees.sum(axis=-1, keepdims=True)
    weights[np.arange(len(where)), np.clip(where, 0, columns - 1)] += share
    return weights


def role(weights: np.ndarray, *, causal: bool = False) -> HeadRole:
    return self_roles(weights[None, None].astype(np.float32), TOKENS, is_causal=causal)[0][0]


PLACES = np.arange(SIZE)


@pytest.mark.parametrize(("step", "kind"), [(-1, "previous"), (0, "same"), (1, "next")])
def test_a_head_that_looks_at_a_neighbour_says_which_and_how_much(step, kind):
    found = role(rows(PLACES + step))
    assert found.kind == kind
    assert found.share == pytest.approx(0.8 + 0.2 / SIZE)
    assert "82 % of its weight" in found.sentence


@pytest.mark.parametrize(("step", "kind"), [(-1, "previous"), (0, "same")])
def test_causal_head_roles_ignore_masked_positions(step, kind):
    assert role(rows(PLACES + step, causal=True), causal=True).kind == kind
    even = np.tril(np.ones((SIZE, SIZE)))
    assert role(even / even.sum(axis=-1, keepdims=True), causal=True).kind == "spread"


def test_label_of_a_gathering_head_names_the_token():
    found = role(rows(np.full(SIZE, SIZE - 1)))
    assert (found.kind, found.label) == ("gathers", "gathers on “</s>”")
    [[tab]] = self_roles(rows(np.zeros(2, dtype=int), columns=2)[None, None], ["\t", " a"], is_causal=False)
    assert "\t" not in tab.sentence


def test_head_roles_spread_picks_mixed_near_and_local():
    assert role(np.full((SIZE, SIZE), 1 / SIZE)).kind == "spread"
    far = (PLACES * 7 + 4) % SIZE  # each its own, near none
    assert role(rows(far, share=0.9)).kind == "picks"
    mixed = role(rows(far, share=0.3))
    assert (mixed.kind, mixed.share) == ("mixed", pytest.approx(0.3 + 0.07))
    band = (np.abs(PLACES[:, None] - PLACES) <= 1) * 1.0
    assert role(band / band.sum(axis=-1, keepdims=True)).kind in ("near", "same")
    wide = (np.abs(PLACES[:, None] - PLACES) <= 2) * 1.0 + 2.0 * (np.abs(PLACES[:, None] - PLACES) == 2)
    assert role(wide / wide.sum(axis=-1, keepdims=True)).kind == "local"


@pytest.mark.parametrize(("step", "kind"), [(0, "aligned"), (1, "ahead"), (-1, "behind")])
def test_a_head_of_cross_attention_is_compared_with_the_alignment(step, kind):
    targets, sources = [" a", " b", " c", "</s>"], [*TOKENS[:6], "</s>"]
    place = np.array([3, 1, 4, 2])
    alignment = rows(place, columns=7, share=0.4)
    alignment[:, -1] = 0.9  # the end token has no text, so no word is aligned with it
    has_text = np.array([True] * 6 + [False])
    weights = rows(place + step, columns=7)
    [[found]] = cross_roles(weights[None, None].astype(np.float32), alignment, (targets, sources), has_text)
    assert found.kind == kind


def test_head_role_of_a_single_token_is_spread_or_mixed():
    [[found]] = self_roles(np.ones((1, 1, 1, 1), dtype=np.float32), ["</s>"], is_causal=False)
    assert found.kind in ("spread", "mixed")

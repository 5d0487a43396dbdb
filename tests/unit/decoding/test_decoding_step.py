"""The model in plain code: one step of a search, and forced decoding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from searches import one_by_one

from clearhead.decoding.step import DecodingBatch, next_log_probs, pad_batch, token_log_probs

ENDING = np.arange(37) == 2
"""A mask under which nothing but the end may come."""


def test_pad_batch_pads_shorter_rows_at_the_end():
    assert pad_batch([[5, 2], [7, 11, 13, 2], [2]], 0).tolist() == [[5, 2, 0, 0], [7, 11, 13, 2], [2, 0, 0, 0]]


@torch.inference_mode()
def test_next_log_probs_masks_tokens_without_renormalizing(make_model, make_sources):
    model = make_model()
    batch = DecodingBatch.encode(model, make_sources((5, 3)))
    newest = torch.tensor([1, 1])
    logits, _ = model.decode(newest[:, None], batch.memory, batch.memory_mask)
    expected = logits[:, 0].log_softmax(dim=-1)
    found = next_log_probs(model, batch, newest, [None, ENDING])
    torch.testing.assert_close(found[0, 2:], expected[0, 2:])
    assert found[:, [0, 1]].tolist() == [[float("-inf")] * 2] * 2
    assert found[1, 2].item() == pytest.approx(expected[1, 2].item(), abs=1e-6)
    assert not found[1, 3:].isfinite().any()


@pytest.mark.parametrize(("pad", "start", "possible"), [(0, 2, [False, True, True]), (0, 0, [False, True, True])])
@torch.inference_mode()
def test_the_end_stays_possible_where_it_is_also_the_start(make_model, make_sources, pad, start, possible):
    model = make_model(pad_id=pad, bos_id=start)
    batch = DecodingBatch.encode(model, make_sources((5, 3)))
    found = next_log_probs(model, batch, torch.tensor([start] * 2), [None, ENDING])
    assert found[0].isfinite().tolist() == [*possible, *[True] * 34]
    assert found[1].isfinite().nonzero().flatten().tolist() == [2]


@torch.inference_mode()
def test_rows_may_be_dropped_and_reordered_between_steps(make_model, make_sources):
    model = make_model()
    sources = make_sources((5, 3, 7))

    def batch_of(*indices):
        return DecodingBatch.encode(model, [sources[index] for index in indices])

    batch = batch_of(0, 1, 2)
    next_log_probs(model, batch, torch.tensor([1] * 6), [None] * 6)
    next_log_probs(model, batch, torch.tensor([5, 7, 11, 13, 17, 19]), [None] * 6)
    # Keep sentences 2 and 0, in that order; both rows of sentence 2 go on from its second one.
    batch.select(torch.tensor([5, 5, 1, 0]), torch.tensor([2, 0]))
    found = next_log_probs(model, batch, torch.tensor([23, 29, 31, 3]), [None] * 4)

    fresh = batch_of(2, 2, 0, 0)
    for newest in ([1] * 4, [19, 19, 7, 5]):
        next_log_probs(model, fresh, torch.tensor(newest), [None] * 4)
    torch.testing.assert_close(found, next_log_probs(model, fresh, torch.tensor([23, 29, 31, 3]), [None] * 4))


@torch.inference_mode()
def test_each_token_is_scored_given_the_tokens_before_it(make_model, make_sources):
    model = make_model()
    sources, targets = make_sources((7, 3, 11)), make_sources((5, 13, 1))
    log_probs = token_log_probs(model, sources, targets)
    assert log_probs.shape == (3, 13)
    for row, source, target in zip(log_probs.tolist(), sources, targets, strict=True):
        assert row[: len(target)] == pytest.approx(one_by_one(model, source, target), abs=1e-5)
        assert row[len(target) :] == [0.0] * (13 - len(target))


def test_the_probabilities_of_all_next_tokens_sum_to_one(make_model, make_sources):
    model = make_model()
    source = make_sources((5,))[0]
    # Padding as a target cannot be told from padding of the batch, so its share is left out here.
    targets = [[7, 11, token] for token in range(1, 37)]
    with torch.inference_mode():
        found = token_log_probs(model, [source] * 36, targets)[:, 2].exp().sum().item()
        logits = model(torch.tensor([source]), torch.tensor([[1, 7, 11]]))[0, -1]
    assert found == pytest.approx(1.0 - logits.softmax(dim=-1)[0].item(), abs=1e-5)

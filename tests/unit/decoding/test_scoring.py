from __future__ import annotations

import pytest
import torch

from clearhead.decoding import score
from clearhead.decoding.scoring import token_log_probs


def one_by_one(model, source, target):
    """Return the log-probability of each target token from a pass of its own over what stands before it."""
    values = []
    for position, token in enumerate(target):
        logits = model(torch.tensor([source]), torch.tensor([[1, *target[:position]]]))[0, -1]
        values.append((logits[token] - logits.logsumexp(dim=-1)).item())
    return values


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


def test_scores_come_in_the_order_asked_whatever_the_batches(make_model, make_sources):
    model = make_model()
    lengths = (7, 2, 11, 3, 5, 13, 2)
    sources, targets = make_sources(lengths), make_sources(lengths[::-1])
    done = []
    together = score(model, sources, targets, batch_tokens=10_000)
    alone = score(model, sources, targets, batch_tokens=1, on_progress=done.append)
    assert together == pytest.approx(alone, abs=1e-5)
    assert alone == pytest.approx(
        [sum(one_by_one(model, *pair)) for pair in zip(sources, targets, strict=True)], abs=1e-4
    )
    assert done == [1] * 7

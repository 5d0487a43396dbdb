"""`score`: order, batches, threads, precision, and ids that are refused."""

from __future__ import annotations

import pytest
import torch
from searches import one_by_one

from clearhead.decoding import PyTorchEngine, make_engine, score
from clearhead.decoding.step import token_log_probs


def test_scores_are_in_input_order_for_any_batch_tokens(make_model, make_sources):
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


def test_pytorch_scores_do_not_depend_on_batch_tokens_or_threads(make_sharp_model, make_sources):
    model = make_engine(make_sharp_model())
    assert isinstance(model, PyTorchEngine)
    lengths = (7, 2, 31, 3, 5, 13, 2, 19)
    sources, targets = make_sources(lengths), make_sources(lengths[::-1])
    printed = set()
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            for batch_tokens in (1, 17, 59, 10_000):
                scores = score(model, sources, targets, batch_tokens=batch_tokens)
                printed.add(tuple(f"{value:.9f}" for value in scores))
    finally:
        torch.set_num_threads(1)
    assert len(printed) == 1


def test_a_copy_in_float64_is_the_model_until_its_weights_change(make_sharp_model, make_sources):
    model = make_sharp_model()
    sources, targets = make_sources((7, 3)), make_sources((5, 11))
    copy = PyTorchEngine(model)
    assert copy.is_current()
    with torch.no_grad():
        expected = token_log_probs(model, sources, targets).sum(dim=-1).tolist()
        assert copy.score(sources, targets) == pytest.approx(expected, rel=1e-5)
        assert all(weight.dtype == torch.float32 for weight in model.parameters())
        model.output_proj.weight[5] += 1.0
    assert not copy.is_current()
    assert copy.score(sources, targets) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("engine", [make_engine, PyTorchEngine])
def test_ids_that_no_vocabulary_holds_are_refused_whatever_scores(make_model, engine):
    scoring = engine(make_model(d_model=32, num_heads=2, d_k=16, d_v=16, d_ff=32, source_vocab_size=29, tying="none"))
    with pytest.raises(IndexError, match="sentence 1 has a source id that is not in the vocabulary of 29"):
        score(scoring, [[5, 2], [29, 2]], [[5, 2], [5, 2]], batch_tokens=100)
    with pytest.raises(IndexError, match="sentence 0 has a target id that is not in the vocabulary of 37"):
        score(scoring, [[5, 2]], [[37, 2]], batch_tokens=100)
    with pytest.raises(ValueError, match=r"sentence 0 has target ids that are padding \(0\)"):
        score(scoring, [[5, 2]], [[5, 0, 2]], batch_tokens=100)
    with pytest.raises(ValueError, match="sentence 0 has no target ids"):
        score(scoring, [[5, 2]], [[]], batch_tokens=100)
    with pytest.raises(ValueError, match="shorter"):
        score(scoring, [[5, 2]], [], batch_tokens=100)

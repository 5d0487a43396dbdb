from __future__ import annotations

import pytest
import torch

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import SearchOptions
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.step import token_log_probs
from clearhead.errors import ModelError
from plain_search import plain_search

pytestmark = pytest.mark.usefixtures("inference")


def greedy_without_cache(model, source, max_length):
    tokens = []
    while 2 not in tokens:
        if len(tokens) == max_length - 1:
            return [*tokens, 2]
        logits = model(torch.tensor([source]), torch.tensor([[1, *tokens]]))[0, -1]
        logits[[0, 1]] = float("-inf")
        tokens.append(int(logits.argmax()))
    return tokens


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_cache_changes_nothing(make_sharp_model, make_sources, norm):
    model = make_sharp_model(norm=norm)
    sources, limits = make_sources((7, 2, 13, 3, 5)), [17, 3, 11, 13, 1]
    found = greedy_search(model, sources, max_lengths=limits)
    plain = [greedy_without_cache(model, *case) for case in zip(sources, limits, strict=True)]
    assert [list(hypothesis.tokens) for hypothesis in found] == plain


def test_greedy_search_equals_beam_search_of_size_one(make_sharp_model, make_sources):
    model, sources = make_sharp_model(), make_sources((7, 2, 13, 3, 5))
    limits = [11, 3, 5, 13, 7]
    beam = plain_search(model, sources, max_lengths=limits, beam_size=1, alpha=0.0)
    greedy = greedy_search(model, sources, max_lengths=limits)
    assert [hypothesis.tokens for hypothesis in greedy] == [hypotheses[0].tokens for hypotheses in beam]


def test_greedy_log_prob_equals_the_sum_of_token_log_probs(make_sharp_model, make_sources):
    model, sources = make_sharp_model(), make_sources((7, 2, 13, 3, 5))
    found = greedy_search(model, sources, max_lengths=[11] * 5)
    scores = token_log_probs(model, sources, [list(h.tokens) for h in found]).sum(dim=-1).tolist()
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("sampling", [None, Sampling()])
def test_weights_that_are_not_numbers_are_an_error_of_plain_search(make_sharp_model, sampling):
    model = make_sharp_model(tying="none")
    model.target_embedding.weight.fill_(float("nan"))
    options = SearchOptions(DecodeConfig(beam_size=1), sampling=sampling)
    with pytest.raises(ModelError, match="the model's probabilities are not numbers"):
        list(PlainEngine(model).search([[5, 7, 2]], [7], options))

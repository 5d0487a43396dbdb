"""Beam search finds what the slow plain search finds, though it stops early, batches and caches."""

from __future__ import annotations

import pytest
import torch
from plain_beam import plain_beam_search

from clearhead.decoding import beam_search
from every_run import slow
from plain_search import plain_search

EXTRA_LENGTH = 6


def stop_at_the_first_finished(log_prob, longest_penalty, to_beat):
    return to_beat == float("-inf")


def compare_at_the_present_length(log_prob, longest_penalty, to_beat):
    return log_prob > to_beat


@pytest.fixture
def model_and_sources(make_model):
    def make(norm):
        torch.manual_seed(1)
        model = make_model(norm=norm, num_encoder_layers=1, num_decoder_layers=1)
        with torch.no_grad():
            # Sharp enough that no two hypotheses tie within float32, so token-for-token equality can be asked.
            model.source_embedding.weight.mul_(2.0)
            # An end that is likely early on, so that short and long hypotheses compete.
            model.source_embedding.weight[model.config.eos_id].mul_(-2.0)
        lengths = torch.randint(1, 11, (47,)).tolist()
        return model, [[*torch.randint(3, 37, (length,)).tolist(), model.config.eos_id] for length in lengths]

    return make


def search(model, sources, **settings):
    limits = [len(source) + EXTRA_LENGTH for source in sources]
    return plain_search(model, sources, max_lengths=limits, **settings)


CASES = [("pre", 2, 1, 0.0), ("post", 4, 1, 0.6), ("pre", 5, 3, 0.6), ("post", 3, 3, 1.0), ("pre", 4, 2, 2.5)]


@pytest.mark.parametrize(("norm", "beam_size", "num_best", "alpha"), [*CASES[:2], *(slow(*one) for one in CASES[2:])])
def test_beam_search_that_stops_early_equals_plain_search(model_and_sources, norm, beam_size, num_best, alpha):
    model, sources = model_and_sources(norm)
    settings = {"beam_size": beam_size, "alpha": alpha, "num_best": num_best}
    for source, hypotheses in zip(sources, search(model, sources, **settings), strict=True):
        plain = plain_beam_search(model, source, max_length=len(source) + EXTRA_LENGTH, **settings)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in plain]
        assert [h.rank_score for h in hypotheses] == pytest.approx([score for _, score in plain], abs=1e-4)


@pytest.mark.parametrize(
    ("norm", "beam_size", "num_best", "alpha", "rule"),
    [
        # Without a length penalty the first to finish is the best in all of these.
        ("post", 4, 1, 0.6, stop_at_the_first_finished),
        *(slow(*case, stop_at_the_first_finished) for case in CASES[2:]),
        ("post", 3, 3, 1.0, compare_at_the_present_length),
        slow("pre", 4, 2, 2.5, compare_at_the_present_length),
    ],
)
def test_wrong_stopping_rule_changes_the_search(model_and_sources, monkeypatch, norm, beam_size, num_best, alpha, rule):
    model, sources = model_and_sources(norm)
    settings = {"beam_size": beam_size, "alpha": alpha, "num_best": num_best}
    right = search(model, sources, **settings)
    monkeypatch.setattr(beam_search, "can_win", rule)
    wrong = search(model, sources, **settings)
    differ = [[h.tokens for h in a] != [h.tokens for h in b] for a, b in zip(right, wrong, strict=True)]
    assert any(differ)

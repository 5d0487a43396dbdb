"""Beam search finds what the slow plain search finds, though it stops early, batches and caches."""

from __future__ import annotations

import pytest
import torch
from plain_beam import plain_beam_search

from clearhead.decoding.beam import beam_search

EXTRA_LENGTH = 4


@pytest.mark.parametrize(
    ("norm", "beam_size", "num_best", "alpha"),
    [("pre", 2, 1, 0.0), ("post", 4, 1, 0.6), ("pre", 5, 3, 0.6), ("post", 3, 3, 1.0), ("pre", 4, 2, 2.5)],
)
def test_stopping_early_changes_nothing(make_model, norm, beam_size, num_best, alpha):
    model = make_model(norm=norm, num_encoder_layers=1, num_decoder_layers=1)
    with torch.no_grad():
        # Sharp enough that no two hypotheses tie within float32, so token-for-token equality can be asked.
        model.embedding.weight.mul_(2.0)
        # An end that is likely now and then: hypotheses of many lengths compete.
        model.embedding.weight[model.config.eos_id].mul_(1.5)
    lengths = torch.randint(1, 9, (19,)).tolist()
    sources = [[*torch.randint(3, 37, (length,)).tolist(), model.config.eos_id] for length in lengths]
    limits = [len(source) + EXTRA_LENGTH for source in sources]
    with torch.inference_mode():
        found = beam_search(model, sources, max_lengths=limits, beam_size=beam_size, alpha=alpha, num_best=num_best)
    output_lengths = set()
    for source, limit, hypotheses in zip(sources, limits, found, strict=True):
        plain = plain_beam_search(model, source, max_length=limit, beam_size=beam_size, alpha=alpha, num_best=num_best)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in plain]
        for hypothesis, (_, rank_score) in zip(hypotheses, plain, strict=True):
            assert hypothesis.rank_score == pytest.approx(rank_score, abs=1e-4)
        output_lengths.add(len(hypotheses[0].tokens))
    assert len(output_lengths) > 3  # else nothing about stopping was tested

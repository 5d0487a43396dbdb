"""The observed search with an engine: every step is that of the plain beam search."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import DecodeConfig
from clearhead.decoding.beam_search import beam_search
from clearhead.decoding.decode import make_engine
from clearhead.decoding.recorded_search import recorded_search
from clearhead.decoding.rules import rank_penalty
from clearhead.decoding.sentence import NO_PREFIX, Sentence, given_prefix


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("prefix", [NO_PREFIX, given_prefix((20,))], ids=["free", "given"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_step_is_that_of_the_plain_search(make_bundle, sentences, beam_size, prefix, seed):
    bundle = make_bundle(seed, d_model=64, num_heads=2, d_ff=64)
    config = DecodeConfig(beam_size=beam_size)
    source = bundle.tokenizer.encode_batch([sentences[0]])[0]
    steps, expected = [], []
    found = recorded_search(make_engine(bundle.model), Sentence(0, source, 12, prefix), config, steps.append)
    with torch.inference_mode():
        [[best]] = beam_search(
            bundle.model,
            [source],
            max_lengths=[12],
            beam_size=beam_size,
            alpha=config.length_penalty if beam_size > 1 else 0.0,
            prefixes=[prefix],
            observer=expected.append,
        )
    assert found.tokens == best.tokens
    assert found.was_ended == best.was_ended
    assert found.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert found.rank_score == pytest.approx(found.log_prob / rank_penalty(len(found.tokens), config))
    assert [(step.length, step.ending) for step in steps] == [(step.length, step.ending) for step in expected]
    for one, other in zip(steps, expected, strict=True):
        facts = [[(it.beam, it.token, it.fate, it.becomes) for it in step.candidates] for step in (one, other)]
        assert facts[0] == facts[1]
        numbers = [
            [it.log_prob for it in step.candidates] + [it.score for it in step.candidates] for step in (one, other)
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)

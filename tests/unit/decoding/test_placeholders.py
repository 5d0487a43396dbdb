"""A translation has the placeholders of its source, each as often as the source, in every search."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from searches import assert_same, find, find_plainly

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import Sampling, SearchOptions, decode
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

pytestmark = pytest.mark.usefixtures("inference")

VOCABULARY = 37 + 32
ALONE, OPENING, CLOSING = range(37, 53), range(53, 61), range(61, 69)
SOURCES = [[5, 37, 8, 9, 2], [4, 7, 2], [53, 11, 61, 6, 38, 38, 2], [54, 53, 20, 61, 62, 2], [6, 61, 62, 2]]
LIMITS = [17, 11, 9, 13, 23]


def allowed_after(written, source, max_length=99):
    mask = AllowedTokens(ModelConfig(vocab_size=VOCABULARY, num_placeholders=32)).after(
        written, Sentence(0, source, max_length)
    )
    return None if mask is None else set(mask.nonzero()[0].tolist())


TEXT = set(range(3, 37))


def test_the_end_waits_for_all_placeholders():
    source = [5, 37, 40, 37, 2]
    assert allowed_after([], source) == TEXT | {37, 40}
    assert allowed_after([37, 9], source) == TEXT | {37, 40}
    assert allowed_after([37, 9, 37], source) == TEXT | {40}
    assert allowed_after([37, 9, 37, 40], source) is None


def test_closing_placeholders_are_allowed_in_reverse_order_of_opening():
    source = [53, 54, 61, 62, 2]
    assert allowed_after([], source) == TEXT | {53, 54}
    assert allowed_after([54], source) == TEXT | {53, 62}
    assert allowed_after([54, 53, 7], source) == TEXT | {61}
    assert allowed_after([54, 53, 61], source) == TEXT | {62}


def test_closing_placeholders_without_opening_are_allowed_last():
    source = [61, 61, 53, 37, 2]
    assert allowed_after([], source) == TEXT | {53, 37}
    assert allowed_after([53, 61, 37], source) == TEXT | {61}
    assert allowed_after([], [68, 2], max_length=3) == TEXT | {68}
    assert allowed_after([7], [68, 2], max_length=3) == {68}


def test_near_the_length_limit_only_placeholders_are_allowed():
    source = [53, 61, 37, 2]
    assert allowed_after([9], source, max_length=6) == TEXT | {53, 37}
    assert allowed_after([9, 9], source, max_length=6) == {53, 37}
    assert allowed_after([9, 9, 53], source, max_length=6) == {61, 37}
    assert allowed_after([9, 9, 53, 61, 37], source, max_length=6) == {2}


def test_a_repetition_loop_ends_in_what_is_missing():
    loop = [7, 8, 9] * 8
    assert allowed_after(loop, [5, 2]) == {2}
    assert allowed_after(loop, [5, 37, 2]) == {37}


def test_a_model_without_placeholders_reads_larger_source_ids_as_text():
    config = ModelConfig(vocab_size=37, source_vocab_size=99, tying="decoder")
    assert AllowedTokens(config).after([], Sentence(0, [50, 98, 2], 9)) is None


def assert_kept(source, tokens):
    wanted = Counter(token for token in source if token >= 37)
    assert Counter(token for token in tokens if token >= 37) == wanted
    opened = [token for token in (53, 54) if token not in source]  # what only the source closes
    for token in tokens:
        if token in OPENING:
            opened.append(token)
        elif token in CLOSING:
            assert opened.pop() == token - 8 or token - 8 not in source


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 3}])
def test_every_engine_keeps_placeholders_and_equals_the_plain_search(make_ending_model, form, settings):
    model, config = make_ending_model(vocab_size=VOCABULARY, num_placeholders=32), DecodeConfig(**settings)
    expected = find_plainly(model, SOURCES, LIMITS, config)
    assert_same(find(form(model), SOURCES, LIMITS, config), expected)
    for source, hypotheses in zip(SOURCES, expected, strict=True):
        for hypothesis in hypotheses:
            assert_kept(source, hypothesis.tokens)


def test_samples_and_diverse_hypotheses_keep_all_placeholders(make_ending_model, form):
    model = make_ending_model(vocab_size=VOCABULARY, num_placeholders=32)
    for options in (
        SearchOptions(DecodeConfig(), 3, Sampling(seed=3)),
        SearchOptions(DecodeConfig(beam_size=3), 3, diversity=0.5),
    ):
        for source, hypotheses in zip(SOURCES, decode(form(model), SOURCES, options), strict=True):
            for hypothesis in hypotheses:
                assert_kept(source, hypothesis.tokens)


def test_without_placeholders_in_its_source_a_translation_has_none(make_ending_model, form):
    model = make_ending_model(vocab_size=VOCABULARY, num_placeholders=32)
    with torch.no_grad():
        model.output_proj.bias[37:] = 100.0  # though the model would like to
    found = find(form(model), [[5, 8, 2], [9, 2]], [9, 9], DecodeConfig(beam_size=2))
    assert all(token < 37 for hypotheses in found for hypothesis in hypotheses for token in hypothesis.tokens)

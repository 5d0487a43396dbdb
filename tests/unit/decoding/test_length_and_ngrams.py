"""`min_length` and `no_repeat_ngram_size`, in every search; theirs are compared in tests/reference."""

from __future__ import annotations

from collections import Counter

import pytest
from searches import assert_same, find, find_plainly, tokens

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, Sampling, SearchOptions, decode
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens

pytestmark = pytest.mark.usefixtures("inference")

LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [27, 19, 21, 23, 25]
ALL = set(range(2, 37))


def allowed_after(written, source=(5, 2), max_length=99, prefix=NO_PREFIX, **rules):
    config = ModelConfig(vocab_size=37 + 32, num_placeholders=32)
    mask = AllowedTokens(config, **rules).after(written, Sentence(0, source, max_length, prefix))
    return ALL if mask is None else set(mask.nonzero()[0].tolist())


def test_end_token_requires_min_length_unless_max_length_is_reached():
    assert allowed_after([], min_length=2) == ALL - {2}
    assert allowed_after([5], min_length=2) == ALL
    assert allowed_after([5, 6], min_length=5, max_length=3) == {2}


def test_no_token_completes_a_sequence_that_is_there():
    assert allowed_after([5, 6, 7, 5, 6], no_repeat_ngram_size=3) == ALL - {7}
    assert allowed_after([5, 6, 7, 5, 8, 5], no_repeat_ngram_size=2) == ALL - {6, 8}
    assert allowed_after([5, 6], no_repeat_ngram_size=1) == ALL - {5, 6}
    assert allowed_after([5, 6], no_repeat_ngram_size=3) == ALL


def test_placeholders_prefixes_and_the_only_token_left_are_exempt():
    assert allowed_after([37, 5], source=(37, 37, 2), no_repeat_ngram_size=1) == (ALL | {37}) - {2, 5}
    assert allowed_after([5], prefix=Prefix((5, 5), ((5,), (5,))), no_repeat_ngram_size=1) == {5}


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("rules", [{"min_length": 15}, {"no_repeat_ngram_size": 2}])
def test_every_engine_finds_the_hypotheses_of_the_plain_search(make_ending_model, make_sources, form, rules, beam_size):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, end_loops=False, **rules)
    expected = find_plainly(model, sources, LIMITS, config)
    assert_same(find(form(model), sources, LIMITS, config), expected)
    free = find_plainly(model, sources, LIMITS, DecodeConfig(beam_size=beam_size, end_loops=False))
    assert tokens(expected) != tokens(free)


@pytest.mark.parametrize(
    "options",
    [
        {"config": DecodeConfig(beam_size=3, min_length=9, no_repeat_ngram_size=2)},
        {"config": DecodeConfig(min_length=9, no_repeat_ngram_size=2), "sampling": Sampling(seed=3)},
        {"config": DecodeConfig(beam_size=3, min_length=9, no_repeat_ngram_size=2), "diversity": 0.5},
    ],
    ids=["beam", "samples", "diverse"],
)
def test_every_search_is_long_enough_and_repeats_nothing(make_ending_model, make_sources, form, options):
    for hypotheses in decode(form(make_ending_model()), make_sources(LENGTHS), SearchOptions(num_best=3, **options)):
        for one in hypotheses:
            assert len(one.tokens) >= 9
            assert max(Counter(zip(one.tokens, one.tokens[1:], strict=False)).values()) == 1

"""Translations that must begin with a given text, in every search."""

from __future__ import annotations

import numpy as np
import pytest
from searches import assert_same, find, find_plainly, near, sample, tokens

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, Sampling, SearchOptions, Shortlist, decode, length_limits, score
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.step import token_log_probs
from clearhead.decoding.token_masks import AllowedTokens

LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [17, 11, 9, 13, 23]
PIECES = ["", "", "", *(first + second for first in "abcdef" for second in ("", "a", "ab", "b", "cc"))]
PIECES += ["abc", "abcd", "fcca", "ccc"]
"""What each of 37 tokens reads as; the first three are special."""
ENCODED = [(), (3,), (7, 9, 14), (5, 33, 27, 36), (28, 4)]
"""A prefix for each sentence."""


def prefix_of(tokens):
    """Return a prefix with the completions that the pieces allow, worked out from their texts."""
    rests = ["".join(PIECES[token] for token in tokens[place:]) for place in range(len(tokens))]
    completions = [[token for token in range(3, 37) if PIECES[token].startswith(rest)] for rest in rests]
    return Prefix(tuple(tokens), tuple(map(tuple, completions)))


PREFIXES = [prefix_of(tokens) for tokens in ENCODED]


def fits(written, encoded):
    """Return whether tokens are the beginning of a prefix, or continue one whose rest was a part of a token."""
    if written == encoded[: len(written)] or written[: len(encoded)] == encoded:
        return True
    for place in range(min(len(written), len(encoded))):
        rest = "".join(PIECES[token] for token in encoded[place:])
        if written[:place] == encoded[:place] and PIECES[written[place]].startswith(rest):
            return True
    return False


pytestmark = pytest.mark.usefixtures("inference")


def allowed_after(written, prefix, max_length=99):
    mask = AllowedTokens(ModelConfig(vocab_size=37)).after(written, Sentence(0, [5, 2], max_length, prefix))
    return None if mask is None else set(mask.nonzero()[0].tolist())


def test_prefix_tokens_or_completions_are_forced_then_any_token_is_allowed():
    prefix = Prefix((5, 7, 9), ((), (11,), (9, 13, 17)))
    assert allowed_after([], prefix) == {5}
    assert allowed_after([5], prefix) == {7, 11}
    assert allowed_after([5, 7], prefix) == {9, 13, 17}
    assert allowed_after([5, 7, 13], prefix) is None
    assert allowed_after([5, 11], prefix) is None
    assert allowed_after([], NO_PREFIX) is None


def test_end_token_is_forced_at_max_length():
    assert allowed_after([5, 7, 9], Prefix((5,), ((),)), max_length=4) == {2}
    assert allowed_after([], NO_PREFIX, max_length=1) == {2}


@pytest.mark.parametrize("beam_size", [2, 4])
def test_search_with_prefixes_equals_plain_search(make_ending_model, make_sources, form, plain_beam_search, beam_size):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    settings = {"beam_size": beam_size, "alpha": 0.6, "num_best": 2}
    config = DecodeConfig(beam_size=beam_size, batch_tokens=60)
    found = find(form(model), sources, LIMITS, config, 2, prefixes=PREFIXES)
    free = find(form(model), sources, LIMITS, config, 2)
    same = [ours == theirs for ours, theirs in zip(tokens(found), tokens(free), strict=True)]
    assert same[0]
    assert not any(same[2:])
    completed = 0
    for source, limit, encoded, hypotheses in zip(sources, LIMITS, ENCODED, found, strict=True):
        plain = plain_beam_search(
            model, source, max_length=limit, **settings, may_be_written=lambda written, s=encoded: fits(written, s)
        )
        assert [h.tokens for h in hypotheses] == [written for written, _ in plain]
        assert [h.rank_score for h in hypotheses] == near([score for _, score in plain])
        completed += any(h.tokens[: len(encoded)] != encoded for h in hypotheses)
    assert completed


@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_engine_finds_the_hypotheses_of_the_plain_search(make_ending_model, make_sources, form, beam_size):
    model, sources, config = make_ending_model(), make_sources(LENGTHS), DecodeConfig(beam_size=beam_size)
    expected = find_plainly(model, sources, LIMITS, config, prefixes=PREFIXES)
    assert_same(find(form(model), sources, LIMITS, config, prefixes=PREFIXES), expected)
    assert all(fits(h.tokens, encoded) for (h,), encoded in zip(expected, ENCODED, strict=True))


def test_the_beginning_of_a_translation_as_its_prefix_gives_the_translation(make_ending_model, make_sources, form):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=1, end_loops=False)  # repetition inside a prefix is not a loop
    free = find(form(model), sources, LIMITS, config)
    for length in range(1, 9):
        prefixes = [Prefix(h.tokens[:-1][:length], ((),) * min(length, len(h.tokens) - 1)) for (h,) in free]
        assert_same(find(form(model), sources, LIMITS, config, prefixes=prefixes), free)


def test_samples_with_prefixes_fit_them_and_have_the_models_log_prob(make_model, make_sources):
    model, sources, sampling = make_model(), make_sources(LENGTHS), Sampling(temperature=2.0)
    found = sample(model, sources, max_lengths=LIMITS, sampling=sampling, count=5, prefixes=PREFIXES)
    for source, drawn, encoded in zip(sources, found, ENCODED, strict=True):
        assert all(fits(h.tokens, encoded) for h in drawn)
        scores = token_log_probs(model, [source] * 5, [list(h.tokens) for h in drawn]).sum(dim=-1).tolist()
        assert [h.log_prob for h in drawn] == near(scores)
    assert len({h.tokens for h in found[4]}) > 1


def test_a_shortlist_has_room_for_the_prefix(make_ending_model, make_sources, form):
    model, sources, config = make_ending_model(), make_sources(LENGTHS), DecodeConfig(beam_size=3)
    nothing = np.full((37, 1), -1, dtype=np.int32)
    shortlist = Shortlist(np.array([2, 11, 12], dtype=np.int32), nothing)
    found = find(form(model), sources, LIMITS, config, shortlist=shortlist, prefixes=PREFIXES)
    for (hypothesis,), encoded in zip(found, ENCODED, strict=True):
        assert hypothesis.tokens[: len(encoded)] == encoded
        assert set(hypothesis.tokens[len(encoded) :]) <= {2, 11, 12, *encoded}


def test_a_prefix_longer_than_the_source_leaves_as_much_room_as_any(make_ending_model, form):
    model, config = make_ending_model(), DecodeConfig(beam_size=2, extra_length=5)
    encoded = tuple(range(3, 37))
    assert length_limits(model.config, config, [[5, 2]] * 2, [NO_PREFIX, prefix_of(encoded)]) == [7, 39]
    ((found,),) = decode(form(model), [[5, 2]], SearchOptions(config), prefixes=[prefix_of(encoded)])
    assert found.tokens[:34] == encoded


def test_a_prefix_that_fills_all_positions_is_refused(make_model):
    model = make_model(positions="learned", max_positions=5)
    with pytest.raises(ValueError, match="a prefix has as many tokens as the model has positions"):
        decode(model, [[5, 2]], SearchOptions(DecodeConfig()), prefixes=[prefix_of((3,) * 5)])


GIVEN = [
    Prefix((), ()),
    Prefix((5,), ((5,),), 1),
    Prefix((9, 4), ((9,), (4,)), 2),
    Prefix((5, 7), ((5,), (7,)), 1),
    Prefix((1,), ((1,),), 1),
]
"""What the model is told, in the last but one with a prefix behind it; in the last it is the start token."""


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 3}, {"beam_size": 3, "length_penalty": 0.0}])
def test_given_prefix_tokens_cost_no_log_prob_in_search_and_score(make_ending_model, make_sources, form, settings):
    model, sources, config = make_ending_model(), make_sources(LENGTHS), DecodeConfig(**settings)
    expected = find_plainly(model, sources, LIMITS, config, prefixes=GIVEN)
    assert_same(find(form(model), sources, LIMITS, config, prefixes=GIVEN), expected)
    targets = [list(h.tokens) for (h,) in expected]
    free = [prefix.given for prefix in GIVEN]
    each = token_log_probs(model, sources, targets)
    own = [row[count:].sum().item() for row, count in zip(each, free, strict=True)]
    assert [h.log_prob for (h,) in expected] == near(own)
    assert score(form(model), sources, targets, batch_tokens=60, given=free) == near(own)
    assert score(form(model), sources, targets, batch_tokens=60) == near(each.sum(dim=-1).tolist())


def test_given_prefix_tokens_cost_no_log_prob_in_samples_and_diverse_search(make_ending_model, make_sources, form):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    for options in (
        SearchOptions(DecodeConfig(), 3, Sampling(seed=3)),
        SearchOptions(DecodeConfig(beam_size=3), 3, diversity=0.5),
    ):
        found = decode(form(model), sources, options, prefixes=GIVEN)
        for source, prefix, hypotheses in zip(sources, GIVEN, found, strict=True):
            targets = [list(h.tokens) for h in hypotheses]
            assert all(tuple(ids[: prefix.given]) == prefix.tokens[: prefix.given] for ids in targets)
            each = token_log_probs(model, [source] * len(targets), targets)[:, prefix.given :]
            assert [h.log_prob for h in hypotheses] == near(each.sum(dim=-1).tolist())
    drawn = sample(model, sources, max_lengths=LIMITS, sampling=Sampling(seed=3), count=3, prefixes=GIVEN)
    each = token_log_probs(model, [sources[2]] * 3, [list(h.tokens) for h in drawn[2]])[:, 2:]
    assert [h.log_prob for h in drawn[2]] == near(each.sum(dim=-1).tolist())

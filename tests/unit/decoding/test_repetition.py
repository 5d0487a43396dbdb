"""Repetition loops are told from other repetition, and ended in every search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searches import assert_same, find, find_plainly, near, sample

from clearhead.config import DecodeConfig, ModelConfig, Sampling
from clearhead.decoding import sentence as sentence_module
from clearhead.decoding.repetition import is_loop as is_loop_of_times
from clearhead.decoding.repetition import most_times
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from every_run import slow

LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [61, 47, 53, 29, 67]


def is_loop(written, source):
    return is_loop_of_times(written, lambda: most_times(source))


def times_in_a_row(tokens, period):
    """Return how often the last tokens stand in a row, and over how many tokens, the last perhaps not whole."""
    length = period
    while length < len(tokens) and tokens[-1 - length] == tokens[-1 - length + period]:
        length += 1
    return length // period, length


def is_loop_by_hand(written, source):
    most = max(
        (times_in_a_row(source[:end], period)[0] for end in range(len(source) + 1) for period in range(1, end + 1)),
        default=1,
    )
    found = [times_in_a_row(written, period) for period in range(1, len(written) + 1)]
    return any(times > 3 * most and tokens > 20 for times, tokens in found)


@given(st.lists(st.integers(3, 5), max_size=24))
def test_most_times_is_the_most_repetitions_of_any_period(tokens):
    ends = range(1, len(tokens) + 1)
    by_hand = (times_in_a_row(tokens[:end], period)[0] for end in ends for period in range(1, end + 1))
    assert most_times(tokens) == max(by_hand, default=1)


def test_a_source_is_searched_for_repetition_once(monkeypatch):
    counted = []
    monkeypatch.setattr(sentence_module, "most_times", lambda ids: counted.append(ids) or most_times(ids))
    sentence = Sentence(0, [7] * 40, max_length=500)
    allowed = AllowedTokens(ModelConfig(vocab_size=9))
    assert [allowed.after([5] * size, sentence) is allowed.end for size in (20, 21, 120, 121, 122)] == [
        *[False] * 3,
        True,
        True,
    ]
    assert len(counted) == 1


few = st.lists(st.integers(3, 4), max_size=6)


@given(before=few, repeated=st.lists(st.integers(3, 5), min_size=1, max_size=9), times=st.integers(0, 30), after=few)
def test_a_loop_is_more_than_twenty_tokens_more_than_thrice_as_often_as_in_the_source(before, repeated, times, after):
    written = [*before, *repeated * times, *after]
    for source in ([7, 8, 2], [7, 7, 7, 2], [*repeated * 4, 2], [*repeated * 11, 2]):
        assert is_loop(written, source) == is_loop_by_hand(written, source)


@pytest.mark.parametrize(
    ("written", "source", "expected"),
    [
        ([9] * 20, [3, 2], False),
        ([9] * 21, [3, 2], True),
        ([9] * 22, [3] * 7, True),
        ([9] * 21, [3] * 7, False),  # ha ha ha
        ([*range(11)] * 2, [3, 2], False),
        ([*range(11)] * 3, [3, 2], False),  # thrice is no loop
        ([*range(11)] * 3 + [*range(10)], [3, 2], False),
        ([*range(11)] * 4, [3, 2], True),
        ([*range(11)] * 4, [4, 5, 4, 5, 2], False),
        ([1, *[9, 8, 8] * 7], [3, 2], True),
        ([*[9, 8, 8] * 7, 1], [3, 2], False),  # it went on with something else
        (([5, *[6] * 3] * 5)[:20], [3, 2], False),  # 1,000,000,000,000,000
        ([], [2], False),
    ],
)
def test_is_loop_by_example(written, source, expected):
    assert is_loop(written, source) == expected
    assert is_loop(tuple(written), tuple(source)) == expected


pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture
def make_looping_model(make_ending_model):
    """Return a model that hardly ever ends by itself and knows few tokens, so that it soon repeats itself."""

    def make():
        model = make_ending_model(vocab_size=5)
        model.output_proj.bias[model.config.eos_id] = -9.0
        return model

    return make


@pytest.mark.parametrize("beam_size", [slow(1), 4])
def test_loops_end_and_nothing_else_changes(make_looping_model, make_sources, form, beam_size):
    model, sources = make_looping_model(), make_sources(LENGTHS, 5)
    ended, free = (DecodeConfig(beam_size=beam_size, end_loops=flag) for flag in (True, False))
    found = find(form(model), sources, LIMITS, ended, beam_size)
    assert_same(found, find_plainly(model, sources, LIMITS, ended, beam_size))
    unended = find(form(model), sources, LIMITS, free, beam_size)
    assert_same(unended, find_plainly(model, sources, LIMITS, free, beam_size))
    loops = 0
    for source, limit, ours, theirs in zip(sources, LIMITS, found, unended, strict=True):
        for hypothesis in ours:
            *before, _ = hypothesis.tokens
            assert hypothesis.was_ended == (is_loop_by_hand(before, source) or len(hypothesis.tokens) == limit)
            assert not any(is_loop_by_hand(before[:end], source) for end in range(len(before)))
            loops += hypothesis.was_ended and len(hypothesis.tokens) < limit
        if not any(is_loop_by_hand(h.tokens[:end], source) for h in theirs for end in range(len(h.tokens))):
            assert beam_size > 1 or ours == theirs
    assert loops >= 2


def test_a_search_that_ends_loops_finds_what_a_plain_one_does(
    make_looping_model, make_sources, form, plain_beam_search
):
    model, sources = make_looping_model(), make_sources(LENGTHS[1:4], 5)
    found = find(form(model), sources, LIMITS[1:4], DecodeConfig(beam_size=3), 2)
    for source, limit, hypotheses in zip(sources, LIMITS[1:4], found, strict=True):
        plain = plain_beam_search(
            model,
            source,
            max_length=limit,
            beam_size=3,
            alpha=0.6,
            num_best=2,
            may_be_written=lambda written, s=source: written[-1] == 2 or not is_loop_by_hand(written[:-1], s),
        )
        assert [h.tokens for h in hypotheses] == [written for written, _ in plain]
        assert [h.rank_score for h in hypotheses] == near([score for _, score in plain])


def test_samples_end_in_loops_too_and_only_if_asked(make_looping_model, make_sources, form):
    model, sources = make_looping_model(), make_sources(LENGTHS, 5)
    settings = {"max_lengths": LIMITS, "sampling": Sampling(temperature=0.1)}
    ended, free = (sample(model, sources, **settings, end_loops=flag) for flag in (True, False))
    lengths = [len(drawn.tokens) for (drawn,) in ended]
    assert [drawn.was_ended for (drawn,) in ended] == [True] * len(LENGTHS)
    assert lengths != [len(drawn.tokens) for (drawn,) in free] == LIMITS
    for source, length, (drawn,) in zip(sources, lengths, free, strict=True):
        assert length in LIMITS or is_loop_by_hand(drawn.tokens[: length - 1], source)

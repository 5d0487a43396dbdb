"""Translations that must contain a form of every term, in every engine."""

from __future__ import annotations

import re
from itertools import permutations, product

import numpy as np
import pytest
import torch
from searches import near
from steps import assert_linear

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import Ensemble, SearchOptions, decode, given_prefix, length_penalty, make_engine, score
from clearhead.decoding.constraints import Required, RequiredTerm, WordEdges
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ModelError
from every_run import slow

pytestmark = pytest.mark.usefixtures("inference")

PIECES = ["", "", "", " a", " b", "a", "b", ".", *"#" * 32]
"""What each of 8 tokens reads as, the first three of which are special; behind them are those for placeholders."""


def edges(vocab_size):
    first = [piece[:1] in ("a", "b") and piece != "" for piece in PIECES[:vocab_size]]
    last = [piece[-1:] in ("a", "b") and piece != "" for piece in PIECES[:vocab_size]]
    return WordEdges(np.array(first), np.array(last))


SPELLED = {"a": [(3,)], "ba": [(4, 5)], "bb": [(4, 6)], "aab": [(3, 5, 6)], "b": [(4,)]}
"""Words behind others."""
GLUED = {"a": [(5,)], "ba": [(6, 5)], "bb": [(6, 6)], "aab": [(5, 5, 6)], "b": [(6,)]}
"""The same at the beginning, or behind a sign."""
TERMS = [[("a",)], [("ba", "bb")], [("aab",), ("b",)], [("a",), ("a",)], [("bb",), ("ba", "a")]]


def term(*words):
    later, others = (tuple(ids for word in words for ids in encoded[word]) for encoded in (SPELLED, GLUED))
    return RequiredTerm((*others, *later), later, others)


def required(*terms, given=0, vocab_size=8):
    return Required([term(*words) for words in terms], edges(vocab_size), given)


def has_all(ids, terms):
    """Tell from its text whether a translation has a word of its own for every term."""
    words = re.findall("[ab]+", "".join(PIECES[token] for token in ids))
    return any(
        all(word in forms for word, forms in zip(chosen, terms, strict=True))
        for chosen in permutations(words, len(terms))
    )


def all_texts(longest):
    return [ids for length in range(longest + 1) for ids in product(range(3, 8), repeat=length)]


@pytest.mark.parametrize("terms", TERMS)
def test_progress_remaining_is_zero_exactly_if_the_text_has_all_terms(terms):
    forms = required(*terms)
    for ids in all_texts(5):
        assert (forms.progress(ids).remaining == 0) == has_all(ids, terms), ids


def test_occurrences_of_one_term_are_as_terms_that_are_equal():
    twice, other = term("a", "b"), term("a", "ba")
    alike = Required([term("a", "b"), other, term("a", "b")], edges(8))
    forms = Required([twice, other, twice], edges(8))
    for ids in all_texts(5):
        found = [(one.met, one.remaining, one.next_tokens) for one in (forms.progress(ids), alike.progress(ids))]
        assert found[0] == found[1], ids


def test_many_forms_of_many_occurrences_take_work_proportional_to_both_together():
    def follow(count):
        sequences = tuple((3, 100 + number) for number in range(count))
        one = RequiredTerm(sequences, sequences)
        forms = Required([one] * count, WordEdges(np.zeros(500, bool), np.ones(500, bool)))
        assert forms.progress([3, 100, 3]).met == {0}

    assert_linear(follow, 50)


def test_progress_counts_tokens_and_is_undone_when_the_word_continues():
    forms = required(("aab",), ("b",))
    assert [forms.progress(ids).remaining for ids in ([], [3], [3, 5], [3, 5, 6], [3, 5, 6, 7, 4])] == [4, 3, 2, 1, 0]
    assert forms.progress([3, 5, 6, 6]).remaining == 4
    assert forms.progress([3, 5]).next_tokens == (3, 4, 6)
    assert forms.progress([3, 5, 6]).next_tokens == (4,)
    assert required(("b",), given=1).progress([4]).remaining == 1


def separate(*terms):
    """Return terms of one sequence each, over tokens 3 to 6 that are words of their own."""
    return Required([RequiredTerm((ids,), (ids,)) for ids in terms], WordEdges(np.zeros(40, bool), np.ones(40, bool)))


def test_progress_counts_the_term_around_another_that_is_met_within_it():
    forms = separate((3, 4, 5), (4,))
    assert [forms.progress(ids).remaining for ids in ([], [3], [3, 4], [3, 4, 5], [3, 4, 5, 4])] == [4, 3, 2, 1, 0]
    assert forms.progress([3, 4]).next_tokens == (3, 5)
    assert allowed_after([3], separate((3, 4, 5), (4,)), max_length=5) == {4}
    assert allowed_after([3, 4], separate((3, 4, 5), (4,)), max_length=5) == {5}


@pytest.mark.parametrize(
    "terms", [[(3, 4), (4, 5)], [(3, 4, 5), (4,)], [(3, 3), (3,)], [(3, 4, 3), (4, 3), (3,)], [(3,), (3, 4), (4, 3, 4)]]
)
def test_one_token_less_is_missing_after_the_right_token(terms):
    forms = separate(*terms)
    for length in range(5):
        for ids in product(range(3, 7), repeat=length):
            now = forms.progress(ids)
            then = [forms.after(now, token).remaining for token in range(3, 7)]
            assert now.remaining == 0 or min(then) == now.remaining - 1, ids


def allowed_after(written, forms, max_length=99, source=(5, 2)):
    config = ModelConfig(vocab_size=8 + 32, num_placeholders=32)
    mask = AllowedTokens(config).after(written, Sentence(0, source, max_length, required=forms))
    return None if mask is None else set(mask.nonzero()[0].tolist())


def test_end_token_requires_all_forms_and_near_the_limit_only_forms_are_allowed():
    forms = required(("bb",), vocab_size=8 + 32)
    assert allowed_after([7], forms) == {3, 4, 5, 6, 7}
    assert allowed_after([4, 6], forms) is None
    assert allowed_after([7, 7], forms, max_length=5) == {4, 6}  # 6 behind a sign
    assert allowed_after([7, 3], forms, max_length=5) == {4}
    assert allowed_after([7, 3, 4], forms, max_length=5) == {6}
    assert allowed_after([7, 7, 7], forms, max_length=4) == {2}
    assert allowed_after([7], forms, max_length=5, source=(8, 2)) == {4, 6, 8}
    assert allowed_after([7, 4], forms, max_length=5, source=(8, 2)) == {6}


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("alpha", [slow(0.0), 0.6])
def test_a_wide_search_finds_the_best_of_all_texts_that_have_the_terms(make_ending_model, form, terms, alpha):
    model, source = make_ending_model(vocab_size=8), [3, 5, 7, 2]
    texts = [ids for ids in all_texts(4) if has_all(ids, terms)]
    config = DecodeConfig(beam_size=700, length_penalty=alpha, extra_length=1, end_loops=False, batch_tokens=9_999)
    scores = score(form(model), [source] * len(texts), [[*ids, 2] for ids in texts], batch_tokens=9_999)
    ranks = [one / length_penalty(len(ids) + 1, alpha) for one, ids in zip(scores, texts, strict=True)]
    (found,) = decode(form(model), [source], SearchOptions(config, 3), required=[required(*terms)])
    assert [one.rank_score for one in found] == near(sorted(ranks, reverse=True)[:3])


SOURCES = [[3, 5, 7, 2], [4, 2], [6, 6, 3, 2], [5, 5, 5, 5, 4, 2], [7, 2]]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_every_engine_finds_the_terms_whatever_is_beside_a_sentence(make_ending_model, form, beam_size):
    model = make_ending_model(vocab_size=8)
    options = SearchOptions(DecodeConfig(beam_size=beam_size, extra_length=7), beam_size)
    wanted = [required(*terms) for terms in TERMS]
    found = decode(form(model), SOURCES, options, required=wanted)
    plain = decode(make_engine(model), SOURCES, options, required=wanted)
    for source, terms, hypotheses, others in zip(SOURCES, TERMS, found, plain, strict=True):
        assert [one.tokens for one in hypotheses] == [one.tokens for one in others]
        assert all(has_all(one.tokens[:-1], terms) for one in hypotheses)
        scores = score(
            form(model), [source] * len(hypotheses), [list(one.tokens) for one in hypotheses], batch_tokens=99
        )
        assert [one.log_prob for one in hypotheses] == near(scores)
        (alone,) = decode(form(model), [source], options, required=[required(*terms)])
        assert [one.tokens for one in alone] == [one.tokens for one in hypotheses]


def test_nan_weights_are_an_error_of_searches_with_required_terms(make_ending_model, form):
    model = make_ending_model(vocab_size=8)
    model.decoder.layers[0].feed_forward.up_proj.weight[0, 0] = float("nan")
    options = SearchOptions(DecodeConfig(beam_size=3))
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        decode(form(model), [[3, 4, 2]], options, required=[required(("aab",))])


def test_given_tokens_prefixes_and_ensembles_have_terms_too(make_ending_model, form):
    models = [make_ending_model(vocab_size=8) for _ in range(2)]
    with torch.no_grad():
        for weight in models[1].parameters():
            weight.mul_(0.9)
    options = SearchOptions(DecodeConfig(beam_size=3, extra_length=7))
    wanted = [required(*terms, given=1) for terms in TERMS]
    prefixes = [given_prefix((4,))] * len(TERMS)
    found = decode(Ensemble(tuple(models)), SOURCES, options, None, prefixes, wanted)
    for terms, (one,) in zip(TERMS, found, strict=True):
        assert one.tokens[0] == 4
        assert has_all(one.tokens[1:-1], terms)


def test_a_form_that_does_not_fit_leaves_a_translation_that_was_ended(make_ending_model, form):
    model = make_ending_model(vocab_size=8)
    options = SearchOptions(DecodeConfig(beam_size=2, extra_length=1))
    ((found,),) = decode(form(model), [[7, 2]], options, required=[required(("aab",), ("bb",))])
    assert len(found.tokens) <= 3
    assert found.was_ended

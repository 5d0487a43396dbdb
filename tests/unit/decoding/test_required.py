"""Translations that must contain a form of every term, in every engine."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
import torch
from searches import WIDTHS, near, tokens

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import SearchOptions, decode, length_penalty, score
from clearhead.decoding.allowed import AllowedTokens
from clearhead.decoding.required import Required, RequiredTerm, WordEdges
from clearhead.decoding.sentence import Sentence

pytestmark = pytest.mark.usefixtures("inference")

PIECES = ["", "", "", " a", " b", "a", "b", "."]
"""What each of 8 tokens reads as; the first three are special."""
EDGES = WordEdges(
    np.array([piece[:1] in ("a", "b") for piece in PIECES]), np.array([piece[-1:] in ("a", "b") for piece in PIECES])
)
SPELLED = {"a": (3,), "ba": (4, 5), "bb": (4, 6), "aab": (3, 5, 6), "b": (4,)}
"""Words as they are spelled behind others, and at the beginning."""


def term(*words):
    spellings = tuple(SPELLED[word] for word in words)
    return RequiredTerm(spellings, spellings)


def required(*terms):
    return Required([term(*words) for words in terms], EDGES)


def lacking(ids, terms):
    """Return how many terms have no word of their own in a text, told from the text."""
    words = re.findall(r"\w+", "".join(PIECES[token] for token in ids))
    return min(
        sum(not (word and word in forms) for word, forms in zip(chosen, terms, strict=True))
        for chosen in product([*words, ""], repeat=len(terms))
        if all(chosen.count(word) <= words.count(word) for word in chosen if word)
    )


TERMS = [[("a",)], [("ba", "bb")], [("aab",), ("b",)], [("a",), ("a",)], [("bb",), ("ba", "a")]]


@pytest.mark.parametrize("terms", TERMS)
def test_what_remains_is_told_as_the_text_tells_it(terms):
    forms = required(*terms)
    for length in range(6):
        for ids in product(range(3, 8), repeat=length):
            # Every token of a word whose end is open may still come.
            done = forms.progress(ids).remaining == 0
            if ids[:1] != (5,) and ids[:1] != (6,) and len(terms) == 1:  # glued to nothing: spelled in another way
                continue
            if done:
                assert lacking(ids, terms) == 0, ids


@pytest.fixture
def toy(make_ending_model, form):
    """Return a model of 8 tokens, and sources for it."""
    model = make_ending_model(vocab_size=8)
    return model, [[3, 5, 7, 2], [4, 2], [6, 6, 3, 2]]


def all_texts(longest):
    return [ids for length in range(longest) for ids in product(range(3, 8), repeat=length)]


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_wide_search_finds_the_best_of_all_texts_that_have_the_terms(toy, form, terms, alpha):
    model, sources = toy
    texts = [ids for ids in all_texts(5) if required(*terms).progress(ids).remaining == 0]
    config = DecodeConfig(beam_size=999, length_penalty=alpha, extra_length=1, end_loops=False, batch_tokens=9_999)
    for source in sources:
        config = config.with_changes({"extra_length": 5 - len(source)})
        scores = score(form(model), [source] * len(texts), [[*ids, 2] for ids in texts], batch_tokens=9_999)
        ranks = [one / length_penalty(len(ids) + 1, alpha) for one, ids in zip(scores, texts, strict=True)]
        expected = sorted(ranks, reverse=True)[:3]
        (found,) = decode(form(model), [source], SearchOptions(config, 3), required=[required(*terms)])
        assert [one.rank_score for one in found] == near(expected)

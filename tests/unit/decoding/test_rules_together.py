"""Prefixes, placeholders and terms at once, told from the tokens found: the plain searches share their masks."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from test_constraints import PIECES, has_all, required

from clearhead.config import DecodeConfig
from clearhead.decoding import Prefix, Sampling, SearchOptions, decode

pytestmark = pytest.mark.usefixtures("inference")

VOCABULARY = len(PIECES)
ALONE = range(8, 24)
TERMS = [(("bb",),), (("aab",),), (("ba",), ("b",)), (("a",), ("a",))]


def prefix_of(tokens):
    """Return a prefix, with every token whose piece begins with the rest of its text."""
    rests = ["".join(PIECES[token] for token in tokens[place:]) for place in range(len(tokens))]
    completions = (tuple(token for token in range(3, 8) if PIECES[token].startswith(rest)) for rest in rests)
    return Prefix(tuple(tokens), tuple(completions))


# The first two as if token 7 were a space: " a" and " b" may be one token or two.
PREFIXES = [Prefix((7, 5), ((3,), (5,))), Prefix((7, 6), ((4,), (6,))), prefix_of((3, 5)), prefix_of((4,))]


def cases(count):
    """Return random sources of text and placeholders, each with a prefix and terms."""
    draw = random.Random(7)
    sources = [
        [*draw.choices(range(3, 8), k=draw.randint(1, 4)), *draw.sample(ALONE, draw.randint(0, 3)), 2]
        for _ in range(count)
    ]
    return sources, draw.choices(PREFIXES, k=count), draw.choices(TERMS, k=count)


def num_prefix_tokens(ids, prefix):
    """Return how many tokens write the prefix; fails if they do not."""
    for place, token in enumerate(prefix.tokens):
        if ids[place] != token:
            assert ids[place] in prefix.completions[place]
            return place + 1
    return len(prefix.tokens)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(DecodeConfig(beam_size=1, extra_length=20)),
        SearchOptions(DecodeConfig(beam_size=3, extra_length=20), 3),
        SearchOptions(DecodeConfig(extra_length=20), 3, Sampling(seed=3)),
        SearchOptions(DecodeConfig(beam_size=3, extra_length=20), 3, diversity=0.5),
    ],
    ids=["greedy", "beam", "samples", "diverse"],
)
def test_placeholders_are_whole_behind_a_prefix_that_one_token_completes(make_ending_model, form, options):
    model = make_ending_model(vocab_size=VOCABULARY, num_placeholders=32)
    sources, prefixes, _ = cases(60)
    completed = 0
    for source, prefix, found in zip(
        sources, prefixes, decode(form(model), sources, options, None, prefixes), strict=True
    ):
        for one in found:
            completed += num_prefix_tokens(one.tokens, prefix) < len(prefix.tokens)
            assert Counter(token for token in one.tokens if token >= 8) == Counter(t for t in source if t >= 8)
    assert completed


@pytest.mark.parametrize("beam_size", [1, 3])
def test_terms_and_placeholders_are_whole_behind_a_prefix_that_one_token_completes(make_ending_model, form, beam_size):
    model = make_ending_model(vocab_size=VOCABULARY, num_placeholders=32)
    sources, prefixes, terms = cases(60)
    options = SearchOptions(DecodeConfig(beam_size=beam_size, extra_length=20), beam_size)
    wanted = [required(*own, vocab_size=VOCABULARY) for own in terms]
    completed = 0
    for source, prefix, own, found in zip(
        sources, prefixes, terms, decode(form(model), sources, options, None, prefixes, wanted), strict=True
    ):
        for one in found:
            completed += num_prefix_tokens(one.tokens, prefix) < len(prefix.tokens)
            assert Counter(token for token in one.tokens if token >= 8) == Counter(t for t in source if t >= 8)
            assert has_all(one.tokens[:-1], own), one.tokens
    assert completed

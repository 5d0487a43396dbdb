"""Searches whose hypotheses do not compete, but for plain sampling: diverse beam search; and minimum Bayes risk."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from sacrebleu.metrics.chrf import CHRF
from searches import near

from clearhead.config import DecodeConfig
from clearhead.decoding import Sampling, SearchOptions, decode, expected_chrf, length_penalty, score
from clearhead.decoding.batched_sampling import choose_diverse, chrf_of_pairs
from clearhead.decoding.scheduler import search
from clearhead.errors import ConfigError
from every_run import slow

LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [17, 11, 2, 13, 7]
ODD = [
    "",
    " ",
    "a",
    "aa",
    "aaa aaa aaa",
    "ab ab",
    "baba",
    "犬が走る。",
    "a\u00a0b",
    "A dog runs.",
    "A  dog\truns.",
    "\n",
]

pytestmark = pytest.mark.usefixtures("inference")


def diverse_by_hand(model, source, limit, groups, diversity):
    """Return what diverse beam search with one hypothesis a group finds, without batch and cache."""
    config = model.config
    written, totals, is_open = [[] for _ in range(groups)], [0.0] * groups, [True] * groups
    for place in range(1, limit + 1):
        before = Counter()
        for group in range(groups):
            if not is_open[group]:
                continue
            target = torch.tensor([[config.bos_id, *written[group]]])
            log_probs = model(torch.tensor([source]), target)[0, -1].log_softmax(dim=-1).tolist()
            may_come = [config.eos_id] if place == limit else range(config.eos_id, config.vocab_size)
            token = max(may_come, key=lambda one: log_probs[one] - diversity * before[one])
            before[token] += 1
            written[group].append(token)
            totals[group] += log_probs[token]
            is_open[group] = token != config.eos_id
    ranked = [
        (total / length_penalty(len(tokens), 0.6), tuple(tokens)) for tokens, total in zip(written, totals, strict=True)
    ]
    return sorted(ranked, reverse=True)


@pytest.mark.parametrize(("diversity", "groups"), [(0.3, 2), slow(2.0, 5), slow(100.0, 5)])
def test_diverse_search_finds_the_hypotheses_of_its_rule(make_ending_model, make_sources, form, diversity, groups):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    for batch_tokens in (13 * groups, 1_000_000):
        config = DecodeConfig(beam_size=groups, batch_tokens=batch_tokens, end_loops=False)
        options = SearchOptions(config, num_best=groups, diversity=diversity)
        found = dict(search(form(model), sources, LIMITS, options))
        for number, (source, limit) in enumerate(zip(sources, LIMITS, strict=True)):
            expected = diverse_by_hand(model, source, limit, groups, diversity)
            assert sorted(one.tokens for one in found[number]) == sorted(tokens for _, tokens in expected)
            assert [one.rank_score for one in found[number]] == near([rank for rank, _ in expected])


def test_a_token_costs_the_diversity_for_each_earlier_row_of_its_sentence_with_it():
    rows = [[-1.0, -1.5, -9.0, -9.0], [-1.0, -1.5, -2.5, -9.0], [-1.0, -1.4, -2.5, -9.0], [-0.5, -0.6, -9.0, -9.0]]
    log_probs = np.array(rows, dtype=np.float32)
    # A token costs 1 more for each earlier row: 0, then 1 (-1.5 before -2), then 0 (-2 before -2.4); the next sentence
    # begins anew.
    assert choose_diverse(log_probs, [3, 1], 1.0).tolist() == [0, 1, 0, 0]
    assert choose_diverse(log_probs, [3, 1], 9.0).tolist() == [0, 1, 2, 0]
    assert choose_diverse(log_probs, [1, 3], 1.0).tolist() == [0, 0, 1, 0]
    assert choose_diverse(log_probs, [4], 1.0).tolist() == [0, 1, 0, 1]


def test_the_first_tokens_differ_where_a_token_costs_more_than_it_gains(make_ending_model, make_sources, form):
    options = SearchOptions(DecodeConfig(beam_size=5), num_best=5, diversity=99.0)
    for found in decode(form(make_ending_model()), make_sources(LENGTHS), options):
        assert len({one.tokens[0] for one in found}) == 5


def test_scores_of_diverse_search_are_those_of_score(make_ending_model, make_sources, form):
    engine, sources = form(make_ending_model()), make_sources(LENGTHS)
    options = SearchOptions(DecodeConfig(beam_size=3, extra_length=5), num_best=3, diversity=1.0)
    for source, found in zip(sources, decode(engine, sources, options), strict=True):
        scores = score(engine, [source] * 3, [list(one.tokens) for one in found], batch_tokens=99)
        assert [one.log_prob for one in found] == near(scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_best": 1, "diversity": 0.5}, "diversity is that of the n best translations: ask for several"),
        ({"num_best": 2, "diversity": -0.5}, r"diversity \(-0.5\) must be at least 0 and at most 100"),
        ({"num_best": 2, "diversity": math.nan}, r"diversity \(nan\) must be"),
        ({"num_best": 2, "diversity": 101.0}, r"diversity \(101.0\) must be"),
        ({"num_best": 2, "diversity": 0.5, "sampling": Sampling()}, "diversity has no meaning for samples"),
        ({"num_best": 2, "diversity": 0.5, "config": DecodeConfig(shortlist=True)}, "it has no shortlist"),
        ({"num_best": 5, "diversity": 0.5}, "must not be more than the beam size"),
    ],
)
def test_diversity_without_a_meaning_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SearchOptions(**{"config": DecodeConfig(), **settings})


def random_texts(count, seed=1):
    draw = random.Random(seed)
    return ["".join(draw.choices("ab c", k=draw.randrange(25))) for _ in range(count)]


@pytest.mark.parametrize("texts", [ODD, random_texts(23), ["x"], ["", " "]], ids=["odd", "random", "one", "empty"])
def test_chrf_of_pairs_is_that_of_sacrebleu(texts):
    metric, found = CHRF(), chrf_of_pairs(texts)
    for row, text in zip(found.tolist(), texts, strict=True):
        assert row == pytest.approx([metric.sentence_score(text, [other]).score for other in texts], abs=1e-9)


def test_expected_chrf_is_the_mean_over_the_others_as_often_as_they_were_drawn():
    metric, samples = CHRF(), [*random_texts(5), *random_texts(3), *ODD[:9], "baba", "", "aa"]
    for place, (utility, text) in enumerate(zip(expected_chrf(samples), samples, strict=True)):
        others = samples[:place] + samples[place + 1 :]
        scores = [metric.sentence_score(text, [other]).score for other in others]
        assert utility == pytest.approx(sum(scores) / len(scores), abs=1e-9)

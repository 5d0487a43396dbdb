from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from searches import sample

from clearhead.config import DecodeConfig
from clearhead.decoding import NO_PREFIX, Hypothesis, Prefix, Sampling, SearchOptions, decode, score
from clearhead.decoding.batched_sampling import draw_token, likely_tokens, seed_of, uniform_numbers
from clearhead.decoding.rules import TOGETHER
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.scheduler import search
from clearhead.decoding.step import token_log_probs
from clearhead.errors import ConfigError
from every_run import slow

IMPOSSIBLE = float("-inf")


def likely(log_probs, sampling):
    """Return the probabilities to draw from."""
    probs = np.zeros(log_probs.shape)
    for own, row in zip(probs, log_probs.numpy(), strict=True):
        tokens, weights = likely_tokens(row, sampling)
        own[tokens] = weights / weights.sum()
    return torch.from_numpy(probs).float()


pytestmark = pytest.mark.usefixtures("inference")


def draw(model, sources, *, number=0, limit=13, **settings):
    limits = [limit] * len(sources)
    found = sample(model, sources, max_lengths=limits, sampling=Sampling(**settings), count=number + 1)
    return [samples[number].tokens for samples in found]


def test_equal_seeds_give_equal_samples_whatever_else_is_in_the_batch(make_model, make_sources):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    together = draw(model, sources, seed=5)
    assert [draw(model, [source], seed=5)[0] for source in sources] == together
    assert draw(model, sources[::-1], seed=5) == together[::-1]


def test_another_seed_and_another_draw_give_other_samples(make_model, make_sources):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    samples = [draw(model, sources, seed=5), draw(model, sources, seed=6), draw(model, sources, seed=5, number=1)]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert all(a != b for a, b in zip(samples[first], samples[second], strict=True))


def test_more_samples_change_none(make_model, make_sources):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    expected = [draw(model, sources, number=number) for number in range(3)]
    found = sample(model, sources, max_lengths=[13] * 5, sampling=Sampling(), count=3)
    assert [[samples[number].tokens for samples in found] for number in range(3)] == expected


def test_the_score_of_a_sample_is_the_models_own(make_model, make_sources):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    sampling = Sampling(temperature=2.0, top_k=7, top_p=0.9)
    found = [samples[0] for samples in sample(model, sources, max_lengths=[11] * 5, sampling=sampling)]
    scores = token_log_probs(model, sources, [list(h.tokens) for h in found]).sum(dim=-1).tolist()
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx(scores, abs=1e-4)


def test_samples_end_once_and_within_their_limit(make_model, make_sources):
    limits = [1, 3, 11, 2]
    found = sample(make_model(), make_sources((5, 3, 2, 7)), max_lengths=limits, sampling=Sampling(temperature=9.0))
    for limit, (hypothesis,) in zip(limits, found, strict=True):
        assert len(hypothesis.tokens) <= limit
        assert hypothesis.tokens.index(2) == len(hypothesis.tokens) - 1
        assert not {0, 1} & set(hypothesis.tokens)


@pytest.mark.parametrize(
    ("settings", "exponent"), [({}, 1.0), ({"temperature": 2.0}, 0.5), slow({"temperature": 0.5}, 2.0)]
)
def test_tokens_are_drawn_as_often_as_they_are_probable(make_model, make_sources, settings, exponent):
    model = make_model(num_encoder_layers=1, num_decoder_layers=1)
    sources = make_sources((5,) * 3_001)  # all different, so all draws are independent
    drawn = Counter(tokens[0] for tokens in draw(model, sources, limit=2, epsilon=0.0, **settings))
    logits = model(torch.tensor(sources), torch.ones(len(sources), 1, dtype=torch.int64))[:, 0]
    logits[:, [0, 1]] = IMPOSSIBLE
    probs = (exponent * logits).softmax(dim=-1)
    expected, variance = probs.sum(dim=0).tolist(), (probs * (1 - probs)).sum(dim=0).tolist()
    for token in range(37):
        # Five standard deviations: a right sampler fails once in two million tokens, and the seed is fixed.
        assert abs(drawn[token] - expected[token]) <= 5 * math.sqrt(variance[token]) + 1e-9


def test_no_token_below_epsilon_is_ever_drawn(make_model, make_sources):
    model, sources = make_model(num_encoder_layers=1, num_decoder_layers=1), make_sources((5,) * 1_001)
    start = torch.ones(len(sources), 1, dtype=torch.int64)
    probs = model(torch.tensor(sources), start)[:, 0].softmax(dim=-1)

    def drawn(epsilon):
        tokens = torch.tensor([written[0] for written in draw(model, sources, limit=2, epsilon=epsilon)])
        assert not torch.isin(tokens, torch.tensor([0, 1])).any()
        return probs.gather(1, tokens[:, None])[:, 0]

    assert drawn(0.0).min() < 0.015 < 0.03 <= drawn(0.03).min()
    best = probs[:, 2:].amax(dim=-1)
    torch.testing.assert_close(drawn(0.999), best)  # all are below it, and the most probable one stays


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        slow({}, 1),
        slow({}, 2 * TOGETHER + 5),
        ({}, TOGETHER + 3),
        slow({"epsilon": 0.0}, 3),
        ({"temperature": 1.7, "top_k": 9, "top_p": 0.8}, 5),
        slow({"temperature": 1.7, "top_k": 9, "top_p": 0.8}, TOGETHER),
    ],
)
def test_the_engines_draw_what_the_plain_form_draws(make_ending_model, make_sources, form, settings, count):
    model, sources = make_ending_model(), make_sources((7, 1, 13, 3, 5))
    limits, sampling = [11, 7, 1, 9, 5], Sampling(seed=3, **settings)
    prefix = Prefix((5, 6), ((7,), (8, 9)))
    prefixes = [prefix, prefix, NO_PREFIX, NO_PREFIX, prefix]
    expected = sample(model, sources, max_lengths=limits, sampling=sampling, count=count, prefixes=prefixes)
    for batch_tokens in (13 * 16, 1_000_000):
        options = SearchOptions(DecodeConfig(batch_tokens=batch_tokens), num_best=count, sampling=sampling)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for index, drawn in search(form(model), sources, limits, options, prefixes):
            found[index] += drawn
        for ours, theirs in zip(found, expected, strict=True):
            ours, theirs = (sorted(some, key=lambda one: one.tokens) for some in (ours, theirs))
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
            assert [one.was_ended for one in ours] == [one.was_ended for one in theirs]
            assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], abs=1e-3)


def test_the_core_finds_the_scores_of_samples(make_ending_model, make_sources, form):
    engine, sources = form(make_ending_model()), make_sources((7, 2, 13, 3, 5))
    options = SearchOptions(DecodeConfig(extra_length=9), num_best=5, sampling=Sampling())
    found = decode(engine, sources, options)
    scores = [
        score(engine, [ids] * 5, [list(h.tokens) for h in drawn], batch_tokens=999)
        for ids, drawn in zip(sources, found, strict=True)
    ]
    drawn = [[one.log_prob for one in some] for some in found]
    assert drawn == [sorted(some, reverse=True) for some in drawn]
    assert drawn == (scores if engine.finds_scores else [pytest.approx(some, abs=1e-3) for some in scores])


@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 1e-300, 5e-324])
def test_the_lowest_temperatures_take_the_most_probable_token(make_model, make_sources, temperature):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    greedy = [hypothesis.tokens for hypothesis in greedy_search(model, sources, max_lengths=[13] * 5)]
    assert draw(model, sources, temperature=temperature) == greedy


def test_one_token_to_draw_from_is_the_most_probable(make_model, make_sources):
    model, sources = make_model(), make_sources((7, 2, 11, 3, 5))
    greedy = [hypothesis.tokens for hypothesis in greedy_search(model, sources, max_lengths=[13] * 5)]
    assert draw(model, sources, top_k=1) == greedy
    assert draw(model, sources, top_p=1e-6) == greedy


@pytest.mark.parametrize("temperature", [1e6, 1e300])
def test_the_highest_temperatures_make_all_possible_tokens_alike(temperature):
    log_probs = torch.tensor([[IMPOSSIBLE, -0.1, -3.0, -7.0]])
    probs = likely(log_probs, Sampling(temperature=temperature, epsilon=0.0))
    torch.testing.assert_close(probs, torch.tensor([[0.0, 1 / 3, 1 / 3, 1 / 3]]), atol=1e-5, rtol=0)


def likely_by_hand(probs: list[float], sampling: Sampling) -> list[float]:
    """Return the probabilities to draw from, worked out one token at a time."""
    weights = [p ** (1 / sampling.temperature) for p in probs]
    order = sorted(range(len(weights)), key=lambda token: -weights[token])
    order = [token for token in order if probs[token] >= sampling.epsilon] or order[:1]
    if sampling.top_k:
        order = order[: sampling.top_k]
    total = sum(weights[token] for token in order)
    kept, held = [], 0.0
    for token in order:
        kept.append(token)
        held += weights[token] / total
        if held >= sampling.top_p:
            break
    total = sum(weights[token] for token in kept)
    return [weights[token] / total if token in kept else 0.0 for token in range(len(weights))]


def test_likely_applies_temperature_top_k_top_p_and_epsilon():
    values = product((0.7, 1.0, 1.9), (0, 1, 3, 11, 23, 99), (0.05, 0.5, 0.93, 1.0), (0.0, 0.02, 0.1, 0.99))
    for temperature, top_k, top_p, epsilon in values:
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, epsilon=epsilon)
        log_probs = (3 * torch.randn(5, 23)).log_softmax(dim=-1)
        found = likely(log_probs, sampling).tolist()
        for row, probs in zip(found, log_probs.double().exp().tolist(), strict=True):
            np.testing.assert_allclose(row, likely_by_hand(probs, sampling), atol=1e-5, err_msg=str(sampling))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature = 0.0: Input should be greater than 0"),
        ({"temperature": -1.0}, "temperature = -1.0: "),
        ({"temperature": math.nan}, "temperature = nan: Input should be a finite number"),
        ({"temperature": math.inf}, "temperature = inf: "),
        ({"top_p": 0.0}, "top_p = 0.0: Input should be greater than 0"),
        ({"top_p": 1.1}, "top_p = 1.1: Input should be less than or equal to 1"),
        ({"top_p": math.nan}, "top_p = nan: "),
        ({"epsilon": -0.1}, "epsilon = -0.1: Input should be greater than or equal to 0"),
        ({"epsilon": 1.0}, "epsilon = 1.0: Input should be less than 1"),
        ({"top_k": -1}, "top_k = -1: Input should be greater than or equal to 0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Sampling(**settings)


@pytest.mark.parametrize("top_p", [1e-300, 5e-324])
def test_the_smallest_top_p_leaves_the_best_token(top_p):
    log_probs = torch.randn(3, 17).log_softmax(dim=-1)
    left = likely(log_probs, Sampling(top_p=top_p)) > 0
    assert left.sum(dim=-1).tolist() == [1, 1, 1]
    assert left.int().argmax(dim=-1).tolist() == log_probs.argmax(dim=-1).tolist()


@pytest.mark.parametrize("temperature", [1e-30, 5e-324])
def test_lowest_temperatures_draw_the_most_probable_token_only(temperature):
    log_probs = np.log(np.array([0.25, 0.4, 0.3, 0.05], dtype=np.float32))
    assert [draw_token(log_probs, chance, Sampling(temperature=temperature)) for chance in (0.0, 0.999)] == [1, 1]


def test_the_random_numbers_of_a_seed_are_those_of_pytorch():
    seeds = [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, seed_of(1, 0, [5, 2]), seed_of(7, 3, [11, 4, 2])]
    for seed, numbers in zip(seeds, uniform_numbers(seeds, 700), strict=True):  # more than the generator's state holds
        generator = torch.Generator().manual_seed(seed)
        assert numbers.tolist() == [torch.rand(1, generator=generator).item() for _ in range(700)]
    # PyTorch's own documentation shows these for the seed 0.
    assert [round(float(number), 4) for number in uniform_numbers([0], 3)[0]] == [0.4963, 0.7682, 0.0885]


def test_seed_of_gives_the_seeds_of_earlier_versions():
    assert [seed_of(1, 0, [5, 2]), seed_of(7, 3, [11, 4, 2])] == [1604020221091118862, 584459856946079949]


@pytest.mark.parametrize(
    ("settings", "drawn"),
    [
        ({"epsilon": 0.0}, [1, 1, 2, 2, 2, 4, 4]),  # up to 0.3, 0.9, 1
        ({}, [1, 1, 2, 2, 2, 4, 4]),
        ({"epsilon": 0.2}, [1, 1, 2, 2, 2, 2, 2]),  # up to 1/3, 1
        ({"top_k": 1}, [2, 2, 2, 2, 2, 2, 2]),
        ({"top_k": 2}, [1, 1, 2, 2, 2, 2, 2]),
        ({"top_p": 0.7}, [1, 1, 2, 2, 2, 2, 2]),
        ({"top_p": 0.5}, [2, 2, 2, 2, 2, 2, 2]),
        ({"temperature": 0.5}, [1, 2, 2, 2, 2, 2, 4]),  # weights 9, 36, 1: up to 0.196, 0.978, 1
    ],
)
def test_the_token_drawn_is_the_one_whose_share_holds_the_number(settings, drawn):
    log_probs = np.array([IMPOSSIBLE, np.log(0.3), np.log(0.6), IMPOSSIBLE, np.log(0.1)], dtype=np.float32)
    chances = (0.0, 0.25, 0.35, 0.6, 0.85, 0.95, 0.99)
    assert [draw_token(log_probs, chance, Sampling(**settings)) for chance in chances] == drawn

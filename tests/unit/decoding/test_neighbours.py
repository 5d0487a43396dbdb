"""Retrieved pairs in the search: the formula, the plain search, and the compiled core."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import NativeEngine, SearchOptions, Shortlist, decode, neighbour_keys, neighbours
from clearhead.decoding.beam_state import SearchState
from clearhead.decoding.neighbour_keys import KeyCache
from clearhead.decoding.neighbours import REACH, TEMPERATURE, Neighbours, Pair, automatic_weight
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.step import decoder_states
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.kernels.library import library

pytestmark = pytest.mark.usefixtures("inference")
needs_core = pytest.mark.skipif(library() is None, reason="needs the compiled core")

END = 2
LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [17, 11, 5, 13, 7]
WIDTHS = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 32, "d_ff": 192}
PAIRS = (
    Pair((5, 9, 7, 11, END), (21, 22, 23, 22, 24, END)),
    Pair((5, 9, END), (25, 22, END)),
)


def near(weight: float = 0.6, pairs: tuple[Pair, ...] = PAIRS) -> Neighbours:
    return Neighbours(pairs, weight)


@pytest.fixture
def model(make_sharp_model):
    return make_sharp_model(**WIDTHS, output_bias=True)


@pytest.fixture
def far(monkeypatch):
    """Let the neighbours of random models reach far: their states are not near each other."""
    monkeypatch.setattr(neighbours, "REACH", 50.0)


def mixture(log_probs, state, keys, values, most_weight, temperature, reach):
    """Return equations 2 and 3 of Khandelwal et al. (2021) for one state, in plain Python.

    The weight is that of Dai et al. (2023): ReLU(1 - distance of the nearest / reach), here times the most.
    """
    distances = [sum((float(a) - float(b)) ** 2 for a, b in zip(state, key, strict=True)) for key in keys]
    weight = most_weight * max(0.0, 1 - min(distances) / reach)
    total = sum(math.exp(-distance / temperature) for distance in distances)
    mixed = []
    for token, log_prob in enumerate(log_probs):
        votes = [math.exp(-d / temperature) for d, value in zip(distances, values, strict=True) if value == token]
        mixed.append((1 - weight) * math.exp(log_prob) + weight * sum(votes) / total)
    return mixed


def keys_of(model, pairs):
    return np.concatenate(decoder_states(model, pairs))


def test_mixture_follows_the_formula_of_the_paper(model):
    keys = keys_of(model, PAIRS)
    own = Neighbours(PAIRS, 0.3, keys)
    rng = np.random.default_rng(5)
    size = float((keys.astype(np.float64) ** 2).sum() / len(keys))
    # Equal to a key, near one, and far from all.
    scales = np.array([[0.0], [0.3], [2.0]]) * math.sqrt(size / 64)
    states = (keys[[1, 7, 3]] + scales * rng.normal(size=(3, 64))).astype(np.float32)
    log_probs = np.log(rng.dirichlet(np.ones(37), size=3)).astype(np.float32)
    values = [token for pair in PAIRS for token in pair.target]
    constants = 0.3, TEMPERATURE * size, REACH * size
    expected = [mixture(*row, keys, values, *constants) for row in zip(log_probs, states, strict=True)]
    np.testing.assert_allclose(np.exp(own.mix(log_probs, states)), expected, rtol=1e-4)
    weights = own.weights(states)
    assert weights[0] == pytest.approx(0.3)
    assert 0 < weights[1] < weights[0]
    assert weights[2] == 0
    np.testing.assert_allclose(np.sum(expected, axis=1), 1.0, rtol=1e-5)


def test_tokens_that_are_not_allowed_stay_impossible(far, model):
    own = Neighbours(PAIRS, 0.9, keys_of(model, PAIRS))
    log_probs = np.full((1, 37), -math.log(36), dtype=np.float32)
    log_probs[0, 22] = -np.inf
    mixed = own.mix(log_probs, own.keys[:1])
    assert np.isneginf(mixed[0]).nonzero()[0].tolist() == [22]


def test_a_key_is_the_state_that_writes_its_value(model):
    """The key of the n-th target token is the decoder's output after the tokens before it."""
    (states,) = decoder_states(model, PAIRS[:1])
    source = torch.tensor([PAIRS[0].source])
    memory, mask = model.encode(source)
    for number in range(len(PAIRS[0].target)):
        before = torch.tensor([[model.config.bos_id, *PAIRS[0].target[:number]]])
        torch.testing.assert_close(torch.from_numpy(states[number]), model.states(before, memory, mask)[0, -1])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_plain_search_writes_what_the_neighbours_say(far, model, make_sources, beam_size):
    sources = make_sources(LENGTHS)
    options = SearchOptions(DecodeConfig(beam_size=beam_size, batch_tokens=40))
    alone = decode(PlainEngine(model), sources, options)
    found = decode(PlainEngine(model), sources, options, neighbours=[None, near(0.95), None, near(0.95), None])
    assert [found[number] for number in (0, 2, 4)] == [alone[number] for number in (0, 2, 4)]
    assert all({21, 25} & set(found[number][0].tokens) for number in (1, 3))


@needs_core
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("settings", [{}, {"output_scale": True}, {"norm": "post"}])
def test_the_core_finds_what_plain_code_finds(far, make_sharp_model, make_sources, beam_size, settings):
    model, sources = make_sharp_model(**{**WIDTHS, "output_bias": True, **settings}), make_sources(LENGTHS)
    every = [near(0.5), None, near(0.2, PAIRS[1:]), near(0.8), None]
    for num_best in {1, beam_size}:
        options = SearchOptions(DecodeConfig(beam_size=beam_size), num_best)
        plain = decode(PlainEngine(model), sources, options, neighbours=every)
        core = decode(NativeEngine(model), sources, options, neighbours=every)
        for theirs, ours in zip(plain, core, strict=True):
            assert [h.tokens for h in theirs] == [h.tokens for h in ours]
            np.testing.assert_allclose([h.log_prob for h in ours], [h.log_prob for h in theirs], rtol=2e-4, atol=1e-4)


@needs_core
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_all_log_probabilities_of_the_core_are_those_of_the_formula(far, model, precision):
    engine, source = NativeEngine(model, precision), [5, 9, 8, END]
    keys = np.concatenate(engine.decoder_states(PAIRS))
    own = Neighbours(PAIRS, 0.4, keys)
    rows = {}
    for consulted in (None, own):
        slots = engine.slots(1, 1)
        sentence = Sentence(0, source, 9, neighbours=consulted)
        slots.enter(slots.encode([sentence]))
        allowed = AllowedTokens(model.config)
        rows[consulted is None] = slots.log_probs([SearchState.begin(sentence, model.config.bos_id, allowed)])
    (state,) = engine.decoder_states([Pair(tuple(source), (END,))])  # after the start token alone
    np.testing.assert_allclose(rows[False], own.mix(rows[True], state), rtol=1e-4, atol=1e-5)
    assert not np.allclose(rows[False], rows[True], atol=0.01)


@needs_core
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("scores", [False, True])
def test_other_sentences_of_a_batch_change_nothing(far, model, make_sources, precision, beam_size, scores):
    sources, every = make_sources(LENGTHS), [near(0.5), None, near(0.2, PAIRS[1:]), near(0.8), None]
    options = SearchOptions(DecodeConfig(beam_size=beam_size), scores=scores)
    together = decode(NativeEngine(model, precision), sources, options, neighbours=every)
    for source, own, expected in zip(sources, every, together, strict=True):
        (alone,) = decode(NativeEngine(model, precision), [source], options, neighbours=[own])
        assert alone[0].tokens == expected[0].tokens
        if own is not None or scores:
            assert alone == expected


@needs_core
def test_a_shortlist_gains_the_tokens_of_the_neighbours(far, model, make_sources):
    sources = make_sources(LENGTHS)
    rows = np.full((37, 1), 30, dtype=np.int32)
    shortlist = Shortlist(np.array([END, 31, 33], dtype=np.int32), rows)
    options = SearchOptions(DecodeConfig(beam_size=3), shortlist=shortlist)
    found = decode(NativeEngine(model), sources, options, neighbours=[None, near(0.9), None, near(0.9), None])
    written = [set(hypotheses[0].tokens) for hypotheses in found]
    assert all(tokens <= {END, 30, 31, 33} for tokens in written[::2])
    assert all(tokens & {21, 22, 23, 24, 25} for tokens in written[1::2])


@needs_core
def test_samples_come_from_the_mixture(monkeypatch, model, make_sources):
    monkeypatch.setattr(neighbours, "REACH", 1e6)
    sources = make_sources(LENGTHS)
    options = SearchOptions(DecodeConfig(), sampling=Sampling(epsilon=0.0, seed=3))
    found = decode(NativeEngine(model), sources, options, neighbours=[near(0.999)] * len(sources))
    assert all(set(samples[0].tokens) <= {21, 22, 23, 24, 25, END} for samples in found)


def test_cached_keys_are_computed_once_and_bounded(monkeypatch):
    computed = []

    def states(pairs):
        computed.append(list(pairs))
        return [np.zeros((len(pair.target), 3), dtype=np.float32) for pair in pairs]

    third = Pair((4, END), (4, 4, 4, 4, END))
    monkeypatch.setattr(neighbour_keys, "CACHE_BYTES", 9 * 3 * 4)
    cache = KeyCache()
    assert cache([*PAIRS, PAIRS[0]], states, 100).keys() == set(PAIRS)
    cache(PAIRS[:1], states, 100)
    assert [set(pairs) for pairs in computed] == [set(PAIRS)]
    cache([third], states, 100)  # the second pair, used the longest ago, has to go, then the first
    cache([PAIRS[1], third], states, 100)
    assert computed[1:] == [[third], [PAIRS[1]]]


def test_the_automatic_weight_grows_with_the_similarity():
    assert automatic_weight(0.29) == 0.0
    assert 0.0 < automatic_weight(0.3) < automatic_weight(0.5) < automatic_weight(1.0) < 1.0

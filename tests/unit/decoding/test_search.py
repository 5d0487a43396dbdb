from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from clearhead.config import DecodeConfig
from clearhead.decoding import search as search_module
from clearhead.decoding.beam import beam_search
from clearhead.decoding.lanes import Lanes
from clearhead.decoding.packed import BLOCK, PackedModel
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.search import search
from clearhead.decoding.stepper import best_tokens
from clearhead.errors import ModelError

LENGTHS = (7, 1, 13, 3, 5, 1, 29, 2, 11)
LIMITS = [17, 11, 1, 13, 7, 3, 23, 2, 19]


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


@pytest.fixture
def make_ending_model(make_sharp_model):
    """Return a function like `make_sharp_model` whose models end some translations early and some at the limit."""

    def make(norm="pre", **settings):
        torch.manual_seed(3)
        model = make_sharp_model(norm=norm, output_bias=True, **settings)
        model.output_proj.bias[model.config.eos_id] = 2.0 if norm == "pre" else 0.0
        torch.manual_seed(5)  # of the sources
        return model

    return make


@pytest.fixture
def plain_beam_search(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "reference")
    from plain_beam import plain_beam_search

    return plain_beam_search


def find(model, sources, limits, config, num_best=1):
    packed = model if isinstance(model, PackedModel) else PackedModel(model)
    found = list(search(packed, sources, limits, config, num_best))
    assert sorted(number for number, _ in found) == list(range(len(sources)))
    return [hypotheses for _, hypotheses in sorted(found)]


def find_plainly(model, sources, limits, config, num_best=1):
    if config.beam_size == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, sources, max_lengths=limits)]
    return beam_search(
        model,
        sources,
        max_lengths=limits,
        beam_size=config.beam_size,
        alpha=config.length_penalty,
        form=config.length_penalty_form,
        num_best=num_best,
    )


def tokens(found):
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


def assert_same(found, expected):
    assert tokens(found) == tokens(expected)
    for name in ("log_prob", "rank_score"):
        scores = [[getattr(hypothesis, name) for row in rows for hypothesis in row] for rows in (found, expected)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("form", ["gnmt", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.5])
def test_it_finds_what_the_plain_form_finds_whoever_comes_and_goes(make_ending_model, make_sources, norm, form, alpha):
    model, sources = make_ending_model(norm), make_sources(LENGTHS)
    packed = PackedModel(model)
    for beam_size, num_best in ((4, 1), (5, 3)):
        config = DecodeConfig(beam_size=beam_size, length_penalty=alpha, length_penalty_form=form)
        expected = find_plainly(model, sources, LIMITS, config, num_best)
        for batch_tokens in (29 * beam_size * 2, 1_000_000):
            config = config.model_copy(update={"batch_tokens": batch_tokens})
            assert_same(find(packed, sources, LIMITS, config, num_best), expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), (2, 1), (3, 3)])
@pytest.mark.parametrize("batch_tokens", [1, 60, 1_000_000])
def test_it_finds_that_with_any_beam_and_room(make_ending_model, make_sources, norm, beam_size, num_best, batch_tokens):
    model, sources = make_ending_model(norm), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=batch_tokens)
    expected = find_plainly(model, sources, LIMITS, config, num_best)
    assert_same(find(model, sources, LIMITS, config, num_best), expected)


@pytest.mark.parametrize(
    ("norm", "alpha", "num_best"), [("pre", 0.0, 1), ("post", 0.6, 1), ("pre", 1.0, 4), ("post", 2.5, 2)]
)
def test_it_finds_what_a_search_without_cache_batch_and_early_end_finds(
    make_ending_model, make_sources, plain_beam_search, norm, alpha, num_best
):
    model, sources = make_ending_model(norm), make_sources((7, 1, 5, 3, 11, 2))
    limits = [7, 11, 1, 9, 5, 3]
    config = DecodeConfig(beam_size=4, length_penalty=alpha, batch_tokens=60)
    found = find(model, sources, limits, config, num_best)
    for source, limit, hypotheses in zip(sources, limits, found, strict=True):
        plain = plain_beam_search(model, source, max_length=limit, beam_size=4, alpha=alpha, num_best=num_best)
        assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in plain]
        assert [h.rank_score for h in hypotheses] == pytest.approx([score for _, score in plain], abs=1e-4)


def test_sentences_enter_while_others_are_in_flight_and_all_lengths_occur(make_ending_model, make_sources, monkeypatch):
    in_flight, moved = [], []
    enter, leave = Lanes.enter, Lanes.leave
    monkeypatch.setattr(Lanes, "enter", lambda lanes, *args: (in_flight.append(len(lanes)), enter(lanes, *args))[1])
    monkeypatch.setattr(
        Lanes, "leave", lambda lanes, lane: (moved.append(lane < len(lanes) - 1), leave(lanes, lane))[1]
    )
    model, sources = make_ending_model(), make_sources(LENGTHS)
    found = find(model, sources, LIMITS, DecodeConfig(beam_size=5, batch_tokens=29 * 5 * 2))
    assert len([number for number in in_flight if number > 0]) > 1
    assert any(moved)
    lengths = [len(hypotheses[0].tokens) for hypotheses in found]
    assert any(length < limit for length, limit in zip(lengths, LIMITS, strict=True))
    assert any(length == limit > 2 for length, limit in zip(lengths, LIMITS, strict=True))
    assert len(set(lengths)) >= 5


@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), (4, 2)])
def test_neither_order_nor_neighbours_change_a_translation(make_ending_model, make_sources, beam_size, num_best):
    packed, sources = PackedModel(make_ending_model()), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=150)
    together = find(packed, sources, LIMITS, config, num_best)
    alone = [
        find(packed, [source], [limit], config, num_best)[0] for source, limit in zip(sources, LIMITS, strict=True)
    ]
    assert_same(alone, together)
    order = list(range(len(sources))) * 2  # and everybody twice
    random.Random(3).shuffle(order)
    shuffled = find(packed, [sources[at] for at in order], [LIMITS[at] for at in order], config, num_best)
    assert_same(shuffled, [together[at] for at in order])


def test_a_sentence_comes_as_soon_as_it_is_found(make_ending_model, make_sources):
    packed, sources = PackedModel(make_ending_model()), make_sources((5, 5, 5))
    found = search(packed, sources, [37, 1, 37], DecodeConfig(beam_size=3))
    assert next(found)[0] == 1


def test_nothing_in_is_nothing_out(make_model):
    assert list(search(PackedModel(make_model()), [], [], DecodeConfig())) == []


@pytest.fixture
def with_penalty_of_the_longest(monkeypatch):
    """Return a function that makes sentences believe in another penalty of their longest output."""

    def use(change):
        def hold(sentence, penalty):
            sentence.__dict__["longest_penalty"] = change(penalty)

        held = property(lambda sentence: sentence.__dict__["longest_penalty"], hold)
        monkeypatch.setattr(search_module._Sentence, "longest_penalty", held)

    return use


@pytest.fixture
def rows_computed(monkeypatch):
    counts = []
    advance = Lanes.advance
    monkeypatch.setattr(
        Lanes, "advance", lambda lanes, index, parents: (counts.append(len(index)), advance(lanes, index, parents))[1]
    )
    return counts


@pytest.mark.parametrize(("alpha", "num_best"), [(0.0, 1), (0.6, 1), (0.6, 3), (2.5, 1)])
def test_dropping_hopeless_hypotheses_changes_nothing(
    make_ending_model, make_sources, with_penalty_of_the_longest, rows_computed, alpha, num_best
):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=5, length_penalty=alpha)
    found = find(model, sources, LIMITS, config, num_best)
    with_dropping = sum(rows_computed)
    rows_computed.clear()
    with_penalty_of_the_longest(lambda _: float("inf"))  # so none is hopeless
    assert_same(find(model, sources, LIMITS, config, num_best), found)
    assert with_dropping < 0.9 * sum(rows_computed)


def test_dropping_too_many_would_show(make_ending_model, make_sources, with_penalty_of_the_longest):
    model, sources = make_ending_model(), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=5, length_penalty=1.0)
    found = find(model, sources, LIMITS, config, 3)
    with_penalty_of_the_longest(lambda longest: longest / 2)
    assert tokens(find(model, sources, LIMITS, config, 3)) != tokens(found)


@pytest.mark.parametrize("beam_size", [31, 33, 257])
def test_a_beam_may_be_wider_than_the_vocabulary(make_sharp_model, make_sources, beam_size):
    model, sources = make_sharp_model(vocab_size=6, d_model=6, num_heads=3), make_sources((5, 2), 6)
    config = DecodeConfig(beam_size=beam_size)
    assert_same(
        find(model, sources, [6, 5], config, beam_size), find_plainly(model, sources, [6, 5], config, beam_size)
    )


@pytest.mark.parametrize(
    "special", [{"pad_id": 5}, {"bos_id": 0}, {"bos_id": 2}, {"pad_id": 4, "bos_id": 36, "eos_id": 7}]
)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_special_tokens_may_have_any_id(make_ending_model, special, beam_size):
    model = make_ending_model(**special)
    words = [
        token for token in range(37) if token not in (model.config.pad_id, model.config.bos_id, model.config.eos_id)
    ]
    draw = random.Random(5)
    sources = [[*draw.choices(words, k=length - 1), model.config.eos_id] for length in LENGTHS]
    config = DecodeConfig(beam_size=beam_size, batch_tokens=200)
    found = find(model, sources, LIMITS, config)
    assert_same(found, find_plainly(model, sources, LIMITS, config))
    for hypotheses in found:
        *body, end = hypotheses[0].tokens
        assert end == model.config.eos_id
        assert not {model.config.pad_id, model.config.bos_id, model.config.eos_id} & set(body)


@pytest.mark.parametrize(("vocab_size", "count"), list(product([1, 31, 32, 37, 64, 307, 1_001], [1, 2, 5, 33, 67])))
def test_best_tokens_are_those_of_topk(vocab_size, count):
    scattered = torch.randn(7, vocab_size)
    together = torch.arange(vocab_size, dtype=torch.float32).expand(3, -1)  # the best all in one block
    reversed_ = together.flip(1)
    log_probs = torch.cat([scattered, together, reversed_])
    padded = functional.pad(log_probs, (0, -vocab_size % BLOCK), value=float("-inf"))
    values, ids = best_tokens(padded, count)
    expected_values, expected_ids = padded.topk(min(count, padded.size(1)), dim=1)
    assert values.equal(expected_values)
    assert ids[:, :vocab_size].equal(expected_ids[:, :vocab_size])  # beyond there is nothing but minus infinity


def test_best_tokens_find_the_one_that_is_possible():
    log_probs = torch.full((3, 5 * BLOCK), float("-inf"))
    for row, token in enumerate((2, BLOCK, 5 * BLOCK - 1)):
        log_probs[row, token] = -3.0
    values, ids = best_tokens(log_probs, 4)
    assert values.tolist() == [[-3.0, *[float("-inf")] * 3]] * 3
    assert ids[:, 0].tolist() == [2, BLOCK, 5 * BLOCK - 1]


def test_weights_that_are_no_numbers_are_named(make_model, make_sources):
    model = make_model()
    model.decoder.layers[0].feed_forward.up_proj.weight[0, 0] = float("nan")
    for beam_size in (1, 3):
        with pytest.raises(ModelError, match="probabilities are not numbers"):
            list(search(PackedModel(model), make_sources((5, 3)), [7, 7], DecodeConfig(beam_size=beam_size)))

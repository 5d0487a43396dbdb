from __future__ import annotations

from itertools import product

import pytest
import torch

from clearhead.config import DecodeConfig
from clearhead.decoding import PyTorchEngine, length_penalty, make_engine
from clearhead.decoding.beam_search import beam_search
from clearhead.decoding.pytorch.module_engine import ModuleEngine
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.rules import rank_penalty
from clearhead.decoding.sentence import NO_PREFIX, given_prefix, sentences_of
from clearhead.decoding.step import token_log_probs
from clearhead.errors import ConfigError, ModelError
from every_run import slow
from plain_search import plain_search

pytestmark = pytest.mark.usefixtures("inference")


def every_translation(model, source, max_length, alpha):
    """Return all translations of at most `max_length` tokens with their rank scores, best first."""
    words = range(3, model.config.vocab_size)
    ended = [(*words_, 2) for length in range(max_length) for words_ in product(words, repeat=length)]
    log_probs = token_log_probs(model, [source] * len(ended), [list(tokens) for tokens in ended]).sum(dim=-1).tolist()
    ranked = [
        (tokens, log_prob / length_penalty(len(tokens), alpha))
        for tokens, log_prob in zip(ended, log_probs, strict=True)
    ]
    return sorted(ranked, key=lambda found: -found[1])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", [1, slow(5)])
@pytest.mark.parametrize(("vocab_size", "max_lengths"), [(6, (4, 2)), (5, (3, 5)), (4, (7, 1))])
def test_a_beam_wide_enough_finds_what_exhaustive_search_finds(
    make_sharp_model, make_sources, alpha, seed, vocab_size, max_lengths
):
    torch.manual_seed(seed)
    model = make_sharp_model(vocab_size=vocab_size, d_model=6, num_heads=3)
    sources = make_sources((5, 2), vocab_size)
    # As the end is a candidate at every step, at most (V - 2) ** length hypotheses can be open.
    beam_size = (vocab_size - 2) ** max(max_lengths)
    for num_best in (1, beam_size):
        found = plain_search(
            model, sources, max_lengths=list(max_lengths), beam_size=beam_size, alpha=alpha, num_best=num_best
        )
        for source, max_length, hypotheses in zip(sources, max_lengths, found, strict=True):
            exhaustive = every_translation(model, source, max_length, alpha)[:num_best]
            assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in exhaustive]
            assert [h.rank_score for h in hypotheses] == pytest.approx([score for _, score in exhaustive], abs=1e-4)


def test_the_score_of_a_hypothesis_is_what_scoring_its_tokens_gives(make_sharp_model, make_sources):
    model = make_sharp_model()
    sources = make_sources((7, 3, 11, 2))
    found = plain_search(model, sources, max_lengths=[9, 13, 5, 17], beam_size=5, alpha=0.6, num_best=3)
    for source, hypotheses in zip(sources, found, strict=True):
        for hypothesis in hypotheses:
            log_prob = token_log_probs(model, [source], [list(hypothesis.tokens)]).sum().item()
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            penalty = length_penalty(len(hypothesis.tokens), 0.6)
            assert hypothesis.rank_score == pytest.approx(log_prob / penalty, abs=1e-4)


def test_the_n_best_are_distinct_and_sorted(make_sharp_model, make_sources):
    found = plain_search(
        make_sharp_model(), make_sources((7, 3, 11)), max_lengths=[9] * 3, beam_size=7, alpha=0.6, num_best=7
    )
    for hypotheses in found:
        scores = [hypothesis.rank_score for hypothesis in hypotheses]
        assert len(hypotheses) == 7
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == 7


def test_more_hypotheses_asked_for_do_not_change_the_first(make_sharp_model, make_sources):
    model, sources = make_sharp_model(), make_sources((7, 3, 11, 5))
    settings = {"max_lengths": [13] * 4, "beam_size": 5, "alpha": 0.6}
    few = plain_search(model, sources, **settings, num_best=2)
    many = plain_search(model, sources, **settings, num_best=5)
    assert [[h.tokens for h in row] for row in few] == [[h.tokens for h in row[:2]] for row in many]


def test_every_hypothesis_ends_once_and_within_its_limit(make_sharp_model, make_sources):
    model = make_sharp_model()
    with torch.no_grad():
        model.source_embedding.weight[2].zero_()  # an end that is never likely: only the limit stops the search
    limits = [1, 3, 11, 7]
    found = plain_search(model, make_sources((5, 3, 2, 7)), max_lengths=limits, beam_size=3, alpha=0.6, num_best=3)
    for limit, hypotheses in zip(limits, found, strict=True):
        # One token is room for the end alone.
        assert len(hypotheses) == (1 if limit == 1 else 3)
        for hypothesis in hypotheses:
            assert len(hypothesis.tokens) <= limit
            assert hypothesis.tokens.index(2) == len(hypothesis.tokens) - 1
            assert not {0, 1} & set(hypothesis.tokens)
    assert {len(hypotheses[0].tokens) for hypotheses in found} > {1, 3}


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("prefix", [NO_PREFIX, given_prefix((20,))], ids=["free", "given"])
@pytest.mark.parametrize("make", [make_engine, PyTorchEngine, ModuleEngine])
def test_every_engine_takes_the_steps_of_plain_code(make_bundle, sentences, beam_size, prefix, make):
    bundle = make_bundle(1, d_model=64, num_heads=2, d_ff=64)
    config = DecodeConfig(beam_size=beam_size)
    sources = bundle.tokenizer.encode_batch(sentences[:3])
    given = sentences_of(sources, [12, 7, 9], [prefix] * 3)

    def searched(engine):
        steps = []
        with engine.computing():
            found = beam_search(engine, given, config, num_best=beam_size, observer=steps.append)
        return found, sorted(steps, key=lambda step: (step.sentence, step.length))

    found, steps = searched(make(bundle.model))
    expected, expected_steps = searched(PlainEngine(bundle.own_module))
    for one, other in zip(found, expected, strict=True):
        assert [(it.tokens, it.was_ended) for it in one] == [(it.tokens, it.was_ended) for it in other]
        assert [it.log_prob for it in one] == pytest.approx([it.log_prob for it in other], abs=1e-4)
        for it in one:
            assert it.rank_score == pytest.approx(it.log_prob / rank_penalty(len(it.tokens), config))
    for step, other in zip(steps, expected_steps, strict=True):
        assert (step.sentence, step.length, step.ending) == (other.sentence, other.length, other.ending)
        facts = [[(it.beam, it.token, it.fate, it.becomes) for it in some.candidates] for some in (step, other)]
        assert facts[0] == facts[1]
        numbers = [[number for it in some.candidates for number in (it.log_prob, it.score)] for some in (step, other)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-4)


def test_weights_that_are_not_numbers_are_an_error(make_sharp_model):
    model = make_sharp_model()
    with torch.no_grad():
        model.source_embedding.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="the model's probabilities are not numbers"):
        plain_search(model, [[5, 7, 2]], max_lengths=[7], beam_size=3, alpha=0.6)


@pytest.mark.parametrize("num_best", [0, 4])
def test_beam_search_refuses_a_num_best_outside_the_beam(make_sharp_model, make_sources, num_best):
    with pytest.raises(ConfigError, match=rf"nbest \({num_best}\) must"):
        plain_search(make_sharp_model(), make_sources((2,)), max_lengths=[5], beam_size=3, alpha=0.6, num_best=num_best)

from __future__ import annotations

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from searches import WIDTHS, assert_same, find, near

from clearhead.config import DecodeConfig
from clearhead.decoding import Ensemble, NativeEngine, PyTorchEngine, Sampling, SearchOptions, Shortlist, decode, score
from clearhead.decoding.ensemble import mean_log_probs
from clearhead.decoding.ensemble_engine import EnsembleEngine
from clearhead.errors import ConfigError
from every_run import slow

LENGTHS = (7, 1, 13, 3, 5)
LIMITS = [9, 7, 1, 8, 5]


pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture
def make_engine(form):
    """Return a function that makes the engine of some models."""

    def make(*models):
        return EnsembleEngine(Ensemble(models), [form(model) for model in models])

    return make


@pytest.fixture
def models(make_sharp_model, form):
    """Return three models that agree in nothing but their vocabulary."""
    made = []
    for seed, layers in ((3, 1), (7, 2), (11, 1)):
        torch.manual_seed(seed)
        model = make_sharp_model(**WIDTHS[form], num_decoder_layers=layers, output_bias=True)
        model.output_proj.bias[model.config.eos_id] = 1.5
        made.append(model)
    torch.manual_seed(5)  # of the sources
    return made


def probabilities(models, source, written):
    """Return the mean of what the models say may come next, one sentence and one position at a time."""
    target = torch.tensor([[models[0].config.bos_id, *written]])
    of_each = [deepcopy(model).double()(torch.tensor([source]), target)[0, -1].softmax(dim=-1) for model in models]
    return (sum(of_each) / len(models)).tolist()


def all_log_probs(models, source, texts):
    """Return the log-probability of every translation there is; all in one batch."""
    longest = max(map(len, texts))
    targets = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
    shifted = torch.cat([torch.full((len(texts), 1), models[0].config.bos_id), targets[:, :-1]], dim=1)
    sources = torch.tensor([source] * len(texts))
    mean = sum(deepcopy(model).double()(sources, shifted).softmax(dim=-1) for model in models) / len(models)
    each = mean.log().gather(2, targets[..., None])[..., 0]
    return [row[: len(text)].sum().item() for row, text in zip(each, texts, strict=True)]


def log_prob_of(models, source, tokens):
    """Return the log-probability of a whole translation."""
    rows = [probabilities(models, source, tokens[:place]) for place in range(len(tokens))]
    return sum(torch.tensor(row[token]).log().item() for row, token in zip(rows, tokens, strict=True))


def test_ensemble_beam_search_finds_the_best_of_all_possible_translations(make_model):
    torch.manual_seed(2)
    models = [make_model(vocab_size=7, num_encoder_layers=1, num_decoder_layers=1) for _ in range(3)]
    for model in models:  # sure enough that they differ
        model.source_embedding.weight.mul_(3.0)
    source, limit = [4, 6, 3, 2], 4
    texts = [(*body, 2) for length in range(limit) for body in product(range(3, 7), repeat=length)]
    expected = sorted(zip(all_log_probs(models, source, texts), texts, strict=True), reverse=True)
    engine = EnsembleEngine(Ensemble(tuple(models)), [PyTorchEngine(model) for model in models])
    config = DecodeConfig(beam_size=len(texts), length_penalty=0.0)
    (found,) = find(engine, [source], [limit], config, num_best=9)
    assert [one.tokens for one in found] == [text for _, text in expected[:9]]
    assert [one.log_prob for one in found] == pytest.approx([value for value, _ in expected[:9]], abs=1e-4)
    alone = sorted(zip(all_log_probs(models[:1], source, texts), texts, strict=True), reverse=True)
    assert [text for _, text in alone[:9]] != [text for _, text in expected[:9]]  # the others have a say


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ensemble_log_probs_are_those_of_mean_probabilities_also_if_infinite_or_below_exp_range(dtype):
    impossible = -np.inf
    members = np.array(
        [
            [np.log(0.5), np.log(0.2), impossible, impossible, -2_000.0, np.nan, np.nan],
            [np.log(0.1), np.log(0.2), impossible, np.log(0.6), -2_000.0, -1.0, impossible],
            [np.log(0.3), np.log(0.2), impossible, impossible, -2_001.0, -1.0, -1.0],
        ],
        dtype=dtype,
    )
    tiny = -2_000 + np.log((2 + np.exp(-1)) / 3)
    expected = [np.log(0.3), np.log(0.2), impossible, np.log(0.2), tiny, np.nan, np.nan]
    found = mean_log_probs(list(members))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert mean_log_probs([members[0]]).tolist()[:5] == members[0].tolist()[:5]


@pytest.mark.parametrize("beam_size", [slow(1), 4])
def test_beams_are_those_of_the_mean_probabilities(models, make_engine, make_sources, plain_beam_search, beam_size):
    class Mean(torch.nn.Module):
        config = models[0].config

        def forward(self, source, target):
            return torch.stack([model(source, target).softmax(dim=-1) for model in models]).mean(dim=0).log()

    sources = make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, end_loops=False)
    expected = [
        plain_beam_search(Mean(), ids, max_length=limit, beam_size=beam_size, alpha=0.6, num_best=1)
        for ids, limit in zip(sources, LIMITS, strict=True)
    ]
    for batch_tokens in (13 * beam_size, 1_000_000):
        config = config.model_copy(update={"batch_tokens": batch_tokens})
        found = find(make_engine(*models), sources, LIMITS, config)
        assert [one.tokens for (one,) in found] == [plain[0][0] for plain in expected]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_model_with_itself_is_the_model(models, make_engine, make_sources, form, beam_size):
    sources, config = make_sources(LENGTHS), DecodeConfig(beam_size=beam_size)
    expected = find(form(models[0]), sources, LIMITS, config, beam_size)
    for count in (1, 2, 3):
        assert_same(find(make_engine(*models[:1] * count), sources, LIMITS, config, beam_size), expected)


def test_scores_are_those_of_the_mean_probabilities(models, make_engine, make_sources, form):
    sources, targets = make_sources(LENGTHS), make_sources((5, 2, 1, 9, 4))
    engine, batches = make_engine(*models), (11, 1_000)
    found = [score(engine, sources, targets, batch_tokens=batch_tokens) for batch_tokens in batches]
    expected = [log_prob_of(models, source, target) for source, target in zip(sources, targets, strict=True)]
    for scores in found:
        assert scores == near(expected)


def test_ensemble_score_equals_log_prob_of_found_hypotheses(models, make_engine, make_sources):
    engine, sources = make_engine(*models), make_sources(LENGTHS)
    for options in (
        SearchOptions(DecodeConfig(extra_length=7), num_best=3),
        SearchOptions(DecodeConfig(extra_length=7), num_best=3, sampling=Sampling(seed=4)),
    ):
        for source, found in zip(sources, decode(engine, sources, options), strict=True):
            scores = score(engine, [source] * len(found), [list(one.tokens) for one in found], batch_tokens=999)
            assert [one.log_prob for one in found] == near(scores)


def test_samples_are_drawn_from_the_mean(make_model, make_sources):
    models = [make_model(num_encoder_layers=1, num_decoder_layers=1) for _ in range(2)]
    engine = EnsembleEngine(Ensemble(tuple(models)), [PyTorchEngine(model) for model in models])
    (source,) = make_sources((5,))
    options = SearchOptions(DecodeConfig(extra_length=1), num_best=4_000, sampling=Sampling(epsilon=0.0))
    (found,) = decode(engine, [source], options)
    probs = probabilities(models, source, [])
    total = sum(probs[2:])
    for token in range(2, 37):
        drawn, expected = sum(one.tokens[0] == token for one in found), 4_000 * probs[token] / total
        assert abs(drawn - expected) <= 5 * expected**0.5 + 1e-9


@pytest.mark.parametrize("form", [NativeEngine], indirect=True)
def test_members_may_have_engines_of_different_kinds(models, make_sources):
    sources, config = make_sources(LENGTHS), DecodeConfig(beam_size=3)
    mixed = EnsembleEngine(Ensemble(tuple(models)), [NativeEngine(models[0]), *map(PyTorchEngine, models[1:])])
    assert_same(
        find(mixed, sources, LIMITS, config),
        find(EnsembleEngine(Ensemble(tuple(models)), list(map(NativeEngine, models))), sources, LIMITS, config),
    )
    assert mixed.num_workers(9) == 1
    targets = make_sources((5, 2, 1, 9, 4))
    expected = [log_prob_of(models, source, target) for source, target in zip(sources, targets, strict=True)]
    assert score(mixed, sources, targets, batch_tokens=99) == near(expected)


def test_the_end_of_any_members_positions_is_the_end(make_model):
    models = (make_model(), make_model(positions="learned", max_positions=23), make_model(positions="learned"))
    assert Ensemble(models).config == models[1].config
    assert Ensemble(models[:1]).config == models[0].config


def test_a_shortlist_is_refused(models, make_engine):
    ids = np.zeros(1, dtype=np.int32)
    with pytest.raises(ConfigError, match="a shortlist is learned from one model"):
        make_engine(*models).slots(1, 1, Shortlist(ids, ids[None]))

"""Decoding on the CPU and on a GPU, each against simple searches in float64 on the CPU."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import PyTorchEngine, SearchOptions, Shortlist, decode, length_limits, score
from clearhead.decoding.sampling import greedy_search
from clearhead.errors import DeviceError
from clearhead.model import Transformer
from every_run import slow
from plain_search import plain_search

LENGTHS = (7, 1, 13, 3, 5, 1, 17, 2, 11)
EXTRA_LENGTH = 6
GPU = "cuda"
# Of float32's 24 bits a long sum keeps fewer.
TOLERANCE = {"abs": 1e-4, "rel": 1e-5}


pytestmark = pytest.mark.usefixtures("inference")


@pytest.fixture
def model(make_sharp_model):
    """Return a model on the CPU that ends some translations early and some at the limit."""
    torch.manual_seed(3)
    model = make_sharp_model(output_bias=True)
    model.output_proj.bias[model.config.eos_id] = 2.0
    return model


@pytest.fixture
def sources(make_sources):
    return make_sources(LENGTHS)


def plain_log_prob(model: Transformer, source: list[int], target: tuple[int, ...]) -> float:
    """Return the log-probability of a translation; the model is on the CPU, in float64."""
    logits = model(torch.tensor([source]), torch.tensor([[model.config.bos_id, *target[:-1]]]))
    return logits[0].log_softmax(dim=-1)[range(len(target)), list(target)].sum().item()


def plain_greedy_search(model: Transformer, source: list[int], max_length: int) -> tuple[int, ...]:
    """Take the most probable token at every step, without a cache."""
    config = model.config
    tokens: list[int] = []
    while len(tokens) < max_length - 1 and tokens[-1:] != [config.eos_id]:
        logits = model(torch.tensor([source]), torch.tensor([[config.bos_id, *tokens]]))[0, -1]
        logits[[config.pad_id, config.bos_id]] = float("-inf")
        tokens.append(int(logits.argmax()))
    return tuple(tokens if tokens[-1:] == [config.eos_id] else [*tokens, config.eos_id])


@pytest.mark.parametrize("form", ["plain form", "engine"])
def test_greedy_search_takes_the_most_probable_tokens(device, model, sources, form):
    exact, model = deepcopy(model).double(), model.to(device)
    config = DecodeConfig(beam_size=1, extra_length=EXTRA_LENGTH)
    limits = length_limits(model.config, config, sources)
    if form == "engine":
        found = [best for (best,) in decode(PyTorchEngine(model), sources, SearchOptions(config))]
    else:
        found = greedy_search(model, sources, max_lengths=limits)
    expected = [plain_greedy_search(exact, *pair) for pair in zip(sources, limits, strict=True)]
    assert [hypothesis.tokens for hypothesis in found] == expected
    assert {len(tokens) == limit for tokens, limit in zip(expected, limits, strict=True)} == {False, True}
    right = [plain_log_prob(exact, *pair) for pair in zip(sources, expected, strict=True)]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx(right, **TOLERANCE)


@pytest.mark.parametrize("form", ["plain form", "engine"])
@pytest.mark.parametrize(("beam_size", "num_best", "alpha"), [slow(2, 1, 0.0), (4, 3, 0.6)])
def test_beam_search_finds_what_the_plain_one_finds(
    device, model, sources, plain_beam_search, form, beam_size, num_best, alpha
):
    exact, model = deepcopy(model).double(), model.to(device)
    config = DecodeConfig(beam_size=beam_size, length_penalty=alpha, extra_length=EXTRA_LENGTH)
    limits = length_limits(model.config, config, sources)
    settings = {"beam_size": beam_size, "alpha": alpha, "num_best": num_best}
    if form == "engine":
        found = decode(PyTorchEngine(model), sources, SearchOptions(config, num_best=num_best))
    else:
        found = plain_search(model, sources, max_lengths=limits, **settings)
    for source, limit, hypotheses in zip(sources, limits, found, strict=True):
        plain = plain_beam_search(exact, source, max_length=limit, **settings)
        assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for tokens, _ in plain]
        scores = [hypothesis.rank_score for hypothesis in hypotheses]
        assert scores == pytest.approx([rank_score for _, rank_score in plain], **TOLERANCE)


def test_scores_are_the_model_s_in_float64(device, model, sources):
    exact, model = deepcopy(model).double(), model.to(device)
    targets = [[*torch.randint(3, 37, (length % 7,)).tolist(), model.config.eos_id] for length in LENGTHS]
    right = [plain_log_prob(exact, *pair) for pair in zip(sources, map(tuple, targets), strict=True)]
    assert score(model, sources, targets, batch_tokens=31) == pytest.approx(right, rel=1e-9)


def test_bf16_decoding_ends_every_translation_and_scores_it_roughly(device, model, sources):
    exact, model = deepcopy(model).double(), model.to(device)
    config = DecodeConfig(beam_size=3, extra_length=EXTRA_LENGTH, precision="bf16")
    limits = length_limits(model.config, config, sources)
    found = [best for (best,) in decode(PyTorchEngine(model, "bf16"), sources, SearchOptions(config))]
    for source, limit, hypothesis in zip(sources, limits, found, strict=True):
        assert hypothesis.tokens.index(model.config.eos_id) == len(hypothesis.tokens) - 1 < limit
        right = plain_log_prob(exact, source, hypothesis.tokens)
        assert hypothesis.log_prob / len(hypothesis.tokens) == pytest.approx(right / len(hypothesis.tokens), abs=0.2)


@pytest.mark.gpu
def test_a_gpu_searches_more_sentences_at_once(model):
    assert PyTorchEngine(model).batch_factor == 1
    assert PyTorchEngine(model.to(GPU)).batch_factor == 16


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_gpu_repeats_recorded_steps_also_in_a_later_search(model, sources, precision, beam_size):
    options = SearchOptions(DecodeConfig(beam_size=beam_size, extra_length=EXTRA_LENGTH))
    expected = decode(PyTorchEngine(model), sources, options)
    engine = PyTorchEngine(model.to(GPU), precision)
    found = [decode(engine, sources, options) for _ in range(2)]
    assert found[0] == found[1]
    (beams,) = engine._idle.values()
    assert beams._repeats
    if precision == "fp32":
        assert [best.tokens for (best,) in found[0]] == [best.tokens for (best,) in expected]


@pytest.mark.gpu
def test_a_gpu_draws_samples_and_takes_shortlists_as_a_cpu_does(model, sources):
    config, ids = DecodeConfig(beam_size=3, extra_length=EXTRA_LENGTH), np.arange(3, 37, dtype=np.int32)
    shortlist = Shortlist(np.array([model.config.eos_id, 9], dtype=np.int32), np.tile(ids[::2], (37, 1)))
    for options in (SearchOptions(config, 5, Sampling(top_p=0.9)), SearchOptions(config, shortlist=shortlist)):
        expected = decode(PyTorchEngine(model), sources, options)
        engine = PyTorchEngine(deepcopy(model).to(GPU))
        for _ in range(2):
            found = decode(engine, sources, options)
            assert [[best.tokens for best in group] for group in found] == [
                [best.tokens for best in group] for group in expected
            ]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["int8", "bf16x3"])
def test_precisions_that_a_gpu_lacks_are_refused(model, sources, precision):
    config = DecodeConfig(extra_length=EXTRA_LENGTH, precision=precision)
    with pytest.raises(DeviceError, match=f"{precision} translation needs a CPU"):
        decode(model.to(GPU), sources, SearchOptions(config))

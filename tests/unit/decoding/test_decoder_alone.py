"""Decoder-only models continue a text, like GPT: fast searches equal plain ones, and both equal the model."""

from __future__ import annotations

import pytest
import torch
from searches import assert_same, find, find_plainly, sample

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import NativeEngine, PyTorchEngine, SearchOptions, cut_sources, decode, make_engine, score
from clearhead.decoding.rules import length_limits
from clearhead.decoding.sentence import Prefix
from every_run import slow

pytestmark = pytest.mark.usefixtures("inference")

PROMPTS = [[7], [5, 0, 9, 30], [1, 1, 4, 8, 8, 2, 12, 33, 19], [36, 3], [11, 24, 3, 17, 6]]
"""Ids that pad, start and end elsewhere are text here."""
NEW = 9
LIMITS = [NEW] * len(PROMPTS)


@pytest.fixture(params=["learned", "rotary", slow("sinusoidal"), "relative"])
def model(request, make_sharp_model):
    """Return a decoder alone that starts and ends texts with one token, as GPT-2."""
    return make_sharp_model(num_encoder_layers=0, positions=request.param, bos_id=2, eos_id=2, norm="pre")


def one_by_one(model, config, **settings):
    """Return what the plain searches find, prompt by prompt: theirs are all of one length."""
    return [find_plainly(model, [prompt], [NEW], config, **settings)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_fast_search_finds_what_the_plain_one_finds(model, beam_size):
    config = DecodeConfig(beam_size=beam_size, batch_tokens=40 * beam_size)
    found = find(model, PROMPTS, LIMITS, config, num_best=min(beam_size, 3))
    assert_same(found, one_by_one(model, config, num_best=min(beam_size, 3)))
    assert len({best.tokens for best, *_ in found}) > 2


def test_greedy_search_takes_the_likeliest_token_of_the_whole_text(model):
    for prompt, [found] in zip(PROMPTS, find(model, PROMPTS, LIMITS, DecodeConfig(beam_size=1)), strict=True):
        text = list(prompt)
        for token in found.tokens[: NEW - 1]:
            assert model(None, torch.tensor([text]))[0, -1].argmax().item() == token
            text.append(token)


def test_scores_are_those_of_the_whole_text(model):
    found = find(model, PROMPTS, LIMITS, DecodeConfig(beam_size=3))
    targets = [list(best.tokens) for best, *_ in found]
    expected = []
    for prompt, target in zip(PROMPTS, targets, strict=True):
        log_probs = model.double()(None, torch.tensor([[*prompt, *target]]))[0].log_softmax(-1)
        places = range(len(prompt) - 1, len(prompt) + len(target) - 1)
        expected.append(sum(log_probs[place, token].item() for place, token in zip(places, target, strict=True)))
    model.float()
    assert score(model, PROMPTS, targets, batch_tokens=100) == pytest.approx(expected, abs=1e-6)
    assert [best.log_prob for best, *_ in found] == pytest.approx(expected, abs=1e-4)


def test_samples_are_those_of_the_plain_form(model):
    sampling = Sampling(seed=3, temperature=1.5)
    options = SearchOptions(DecodeConfig(extra_length=NEW), num_best=3, sampling=sampling)
    found = decode(model, PROMPTS, options)
    for prompt, samples in zip(PROMPTS, found, strict=True):
        [plain] = sample(model, [prompt], max_lengths=[NEW], sampling=sampling, count=3)
        assert sorted(one.tokens for one in samples) == sorted(one.tokens for one in plain)


def test_decoder_only_prefix_follows_the_prompt(model):
    prefix = Prefix((4, 9), ((4,), (9,)))
    begun = find(model, PROMPTS, LIMITS, DecodeConfig(beam_size=2), prefixes=[prefix] * len(PROMPTS))
    longer = [[*prompt, 4, 9] for prompt in PROMPTS]
    alone = find(model, longer, [NEW - 2] * len(PROMPTS), DecodeConfig(beam_size=1))
    greedy = find(model, PROMPTS, LIMITS, DecodeConfig(beam_size=1), prefixes=[prefix] * len(PROMPTS))
    assert all(best.tokens[:2] == (4, 9) for best, *_ in begun)
    assert [best.tokens[2:] for best, *_ in greedy] == [best.tokens for best, *_ in alone]


@pytest.mark.parametrize("token", [0, 1])
def test_decoder_only_models_may_write_pad_id_and_bos_id(make_sharp_model, token):
    model = make_sharp_model(num_encoder_layers=0, output_bias=True, bos_id=1)
    model.output_proj.bias[token] = 60.0
    [[found]] = decode(model, [[7]], SearchOptions(DecodeConfig(beam_size=1, extra_length=3)))
    assert found.tokens == (token, token, 2)


def test_decoder_only_models_get_the_pytorch_engine(model):
    assert not NativeEngine.supports(model, "fp32")
    assert isinstance(make_engine(model), PyTorchEngine)


def test_decoder_only_prompt_and_output_share_max_positions(make_sharp_model):
    model = make_sharp_model(num_encoder_layers=0, positions="learned", max_positions=16, bos_id=2, eos_id=2)
    config = DecodeConfig(extra_length=5)
    prompts = [list(range(3, 23)), [8, 9]]
    cut = cut_sources(model.config, config, prompts)
    assert cut == [prompts[0][-11:], prompts[1]]
    assert length_limits(model.config, config, cut) == [5, 5]
    assert length_limits(model.config, config.with_changes({"extra_length": 50}), cut) == [5, 14]
    assert all(len(best.tokens) <= 5 for best, *_ in decode(model, cut, SearchOptions(config)))
    for extra_length in (8, 9, 500):  # half of the positions is always for the text
        longest = config.with_changes({"extra_length": extra_length})
        assert cut_sources(model.config, longest, prompts) == [prompts[0][-8:], prompts[1]]
    with pytest.raises(ValueError, match="as many tokens as the model has positions"):
        length_limits(model.config, config, [list(range(3, 18))], [Prefix((1,), ((1,),))])


def test_decoder_only_decode_rejects_an_empty_prompt(model):
    with pytest.raises(ValueError, match="sentence 0 has no source ids"):
        decode(model, [[]], SearchOptions(DecodeConfig()))

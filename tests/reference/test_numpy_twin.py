"""Every model of the family gives the numbers, and the gradients, of the slow NumPy twin, padding or not."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy_twin import NumpyTransformer, activate, positional_encoding, relative_row, turn

from clearhead.config import ModelConfig
from every_run import one_in
from model_forms import T5_FORM

SIZES = {"vocab_size": 37, "d_model": 26, "num_heads": 13, "d_ff": 19, "dropout": 0.0}
LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 1}
FEW_HEADS = {"d_model": 18, "num_heads": 3}
"""For tests that run the twin many times, whose time is that of its heads."""
LENGTHS = ((7, 2, 11), (5, 3, 1))
ENCODER_ALONE, DECODER_ALONE = {"num_decoder_layers": 0}, {"num_encoder_layers": 0}

# The paper's model in several shapes, then each option alone, or with what gives it a meaning.
CONFIGURATIONS = {
    "paper": {},
    "paper, wide heads": {"vocab_size": 37, "d_model": 22, "num_heads": 2, "d_ff": 19},
    "paper, one head": {"d_model": 14, "num_heads": 1, "d_ff": 31, "num_encoder_layers": 2, "num_decoder_layers": 1},
    "paper, padding is not 0": {"vocab_size": 41, "d_model": 6, "num_heads": 3, "num_decoder_layers": 3, "pad_id": 11},
    "pre-norm": {"norm": "pre"},
    "post-norm with a final norm": {"final_norm": True},
    "pre-norm without a final norm": {"norm": "pre", "final_norm": False},
    "rms norm": {"norm_kind": "rms"},
    "rms pre-norm with a large epsilon": {"norm_kind": "rms", "norm": "pre", "norm_eps": 0.3},
    "layer norm with a large epsilon": {"norm_eps": 0.3},
    "gelu": {"activation": "gelu"},
    "gelu by tanh": {"activation": "gelu_tanh"},
    "silu": {"activation": "silu"},
    "gated": {"gated": True},
    "gated silu without biases": {"gated": True, "activation": "silu", "feed_forward_bias": False},
    "attention biases": {"attention_bias": True},
    "no feed-forward biases": {"feed_forward_bias": False},
    "output bias": {"output_bias": True},
    "sinusoids in halves": {"positions": "sinusoidal_halves"},
    "sinusoids of tensor2tensor": {"positions": "sinusoidal_t2t"},
    "sinusoids from position 2": {"first_position": 2},
    "sinusoids of tensor2tensor from position 2": {"positions": "sinusoidal_t2t", "first_position": 2},
    "learned positions": {"positions": "learned", "max_positions": 17},
    "rotary positions": {"positions": "rotary"},
    "rotary positions in wide heads": {"positions": "rotary", "num_heads": 3, "d_k": 6, "d_v": 5},
    "relative positions": {"positions": "relative"},
    "relative positions in few rows": {
        "positions": "relative",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 5,
    },
    "scores not divided": {"attention_scale": False},
    "relative positions, scores not divided, wide heads": {
        "positions": "relative",
        "attention_scale": False,
        "num_heads": 3,
        "d_k": 7,
        "d_v": 5,
        "relative_attention_num_buckets": 4,
        "relative_attention_max_distance": 3,
    },
    "outputs divided": {"output_scale": True},
    "outputs transformed": {"output_transform": True},
    "outputs transformed by gelu and an rms norm, then divided": {
        "output_transform": True,
        "output_scale": True,
        "activation": "gelu",
        "norm_kind": "rms",
        "norm_eps": 0.1,
    },
    "segments of the target": {"num_target_segments": 2},
    "no positions": {"positions": "none"},
    "no positions, odd width": {"positions": "none", "d_model": 21, "num_heads": 3},
    "segments": {"num_segments": 3},
    "a norm over the embeddings": {"embedding_norm": True},
    "a norm over embeddings, learned positions and segments": {
        "embedding_norm": True,
        "positions": "learned",
        "num_segments": 2,
    },
    "embeddings not scaled": {"embedding_scale": False},
    "tied on the target side": {"tying": "decoder"},
    "tied embeddings": {"tying": "embeddings"},
    "nothing tied": {"tying": "none"},
    "two vocabularies": {"tying": "decoder", "source_vocab_size": 43},
    "two vocabularies, nothing tied": {"tying": "none", "source_vocab_size": 29},
    "d_k": {"d_k": 3},
    "d_v": {"d_v": 5},
    "d_k and d_v": {"num_heads": 3, "d_k": 7, "d_v": 5},
    "encoder alone": ENCODER_ALONE,
    "encoder alone, two segments": {**ENCODER_ALONE, "num_segments": 2, "tying": "none"},
    "decoder alone": DECODER_ALONE,
    "decoder alone, tied on the target side": {**DECODER_ALONE, "tying": "decoder"},
    "decoder alone, tied embeddings": {**DECODER_ALONE, "tying": "embeddings"},
    "decoder alone, rotary": {**DECODER_ALONE, "positions": "rotary", "tying": "none", "norm": "pre"},
    "decoder alone, relative": {**DECODER_ALONE, "positions": "relative", "output_scale": True},
    "encoder alone, relative": {**ENCODER_ALONE, "positions": "relative"},
}

CHOICES = {
    "norm": ["post", "pre"],
    "norm_kind": ["layer", "rms"],
    "norm_eps": [1e-5, 1e-6, 0.1],
    "final_norm": [None, True, False],
    "activation": ["relu", "gelu", "gelu_tanh", "silu"],
    "gated": [False, True],
    "attention_bias": [False, True],
    "feed_forward_bias": [False, True],
    "output_bias": [False, True],
    "positions": ["sinusoidal", "sinusoidal_halves", "sinusoidal_t2t", "learned", "rotary", "relative", "none"],
    "attention_scale": [True, False],
    "output_scale": [False, True],
    "output_transform": [False, True],
    "num_target_segments": [0, 2],
    "first_position": [0, 2],
    "num_segments": [0, 2, 3],
    "tying": ["three-way", "decoder", "embeddings", "none"],
    "embedding_scale": [True, False],
    "embedding_norm": [False, True],
    "pad_id": [0, 5],
    "heads": [{}, {"num_heads": 3, "d_k": 4, "d_v": 7}, {"d_model": 30, "num_heads": 3, "d_v": 11}],
    "layers": [{}, {"num_encoder_layers": 1}, ENCODER_ALONE, DECODER_ALONE],
}


def drawn_settings(seed):
    draw = random.Random(seed)
    drawn = {name: draw.choice(values) for name, values in CHOICES.items()}
    settings = {**drawn.pop("heads"), **drawn.pop("layers"), **drawn}
    if settings["tying"] in ("decoder", "none"):
        settings["source_vocab_size"] = draw.choice([None, 31, 47])
    if not settings["positions"].startswith("sinusoidal"):
        settings["first_position"] = 0
    if settings["positions"] == "relative":
        few = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7}
        settings |= draw.choice([{}, few])
    if settings.get("num_encoder_layers") == 0:
        settings |= {"source_vocab_size": None, "num_segments": 0}
    if settings.get("num_decoder_layers") == 0:
        settings |= {"num_target_segments": 0, "output_transform": False}
    return settings


def numpy_weights(model):
    return {name: weight.detach().double().numpy() for name, weight in model.named_parameters()}


def make_twin(model):
    # The model keeps its sinusoids in float32.
    return NumpyTransformer(numpy_weights(model), model.config.model_dump(), position_dtype=np.float32)


def draw_inputs(config, make_batch, lengths=LENGTHS):
    """Draw source ids, target ids and segments; what the model does not read is None."""
    source, target = make_batch(
        config.model_copy(update={"vocab_size": config.source_vocab_size or config.vocab_size}), *lengths
    )
    _, target = make_batch(config, *lengths)
    segments = torch.randint(config.num_segments, source.shape) if config.num_segments else None
    return (
        source if config.num_encoder_layers else None,
        target if config.num_decoder_layers else None,
        segments if config.num_encoder_layers else None,
    )


def model_output(model, source, target, segments):
    """Return logits, or the memory of an encoder alone."""
    memory, mask = (None, None) if source is None else model.encode(source, segments)
    return memory if target is None else model.decode(target, memory, mask)[0]


def twin_output(twin, source, target, segments):
    rows = range(len(source if target is None else target))
    source_ids, target_ids, segment_ids = (x if x is None else x.tolist() for x in (source, target, segments))
    outputs = []
    for row in rows:
        source_row, segment_row = (x if x is None else x[row] for x in (source_ids, segment_ids))
        if target_ids is None:
            outputs.append(twin.encode(source_row, segment_row))
        else:
            outputs.append(twin.logits(source_row, target_ids[row], segment_row))
    return np.array(outputs)


def has_no_effect(name, config):
    """A bias of the keys adds the same to all scores of a query, and the softmax takes it off, unless the keys turn."""
    is_turned = config.positions == "rotary" and ".self_attn." in name
    return name.endswith("k_proj.bias") and not is_turned


def assert_equals_the_twin(model, inputs, record_property):
    twin = make_twin(model)
    expected = twin_output(twin, *inputs)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        with torch.no_grad():
            output = model_output(model.to(dtype), *inputs).double().numpy()
        assert output.shape == expected.shape
        difference = float(np.abs(output - expected).max() / max(1.0, np.abs(expected).max()))
        if model.config.positions == "rotary":
            tolerance = max(tolerance, 1e-6)  # the angles themselves are kept in float32
        record_property(f"largest difference, {dtype}", difference)
        assert difference <= tolerance
    assert twin.read == set(twin.weights)  # no weight is left unused, on either side


@pytest.mark.parametrize("name", one_in(2, CONFIGURATIONS))
def test_every_option_equals_the_twin(make_model, make_batch, record_property, name):
    model = make_model(**{**SIZES, **LAYERS, **CONFIGURATIONS[name]})
    assert_equals_the_twin(model, draw_inputs(model.config, make_batch), record_property)


@pytest.mark.parametrize("seed", range(25))
def test_options_drawn_together_equal_the_twin(make_model, make_batch, record_property, seed):
    model = make_model(**{**SIZES, **LAYERS, **drawn_settings(seed)})
    assert_equals_the_twin(model, draw_inputs(model.config, make_batch), record_property)


def test_the_configurations_above_try_every_setting_of_the_model():
    untried = {"dropout", "attention_dropout", "feed_forward_dropout"}  # not of a pass in eval mode
    untried |= {"bos_id", "eos_id", "num_placeholders"}
    tried = {setting for settings in CONFIGURATIONS.values() for setting in settings} | set(SIZES) | set(LAYERS)
    assert tried | untried == set(ModelConfig.model_fields)
    drawn = [drawn_settings(seed) for seed in range(25)]
    for setting, values in CHOICES.items():
        if setting not in ("heads", "layers"):
            assert {settings[setting] for settings in drawn} == set(values), setting


@pytest.mark.parametrize("name", ["paper", "pre-norm", "sinusoids of tensor2tensor from position 2", "segments"])
def test_a_padded_batch_equals_the_twin_reading_each_sentence_alone(make_model, make_batch, name):
    model = make_model(**{**SIZES, **LAYERS, **CONFIGURATIONS[name]}).double()
    source, target, segments = draw_inputs(model.config, make_batch)
    twin = make_twin(model)
    with torch.no_grad():
        logits = model_output(model, source, target, segments).numpy()
    for row, (source_length, target_length) in enumerate(zip(*LENGTHS, strict=True)):
        segment_ids = None if segments is None else segments[row, :source_length].tolist()
        expected = twin.logits(source[row, :source_length].tolist(), target[row, :target_length].tolist(), segment_ids)
        np.testing.assert_allclose(logits[row, :target_length], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre", "norm_kind": "rms", "gated": True, "activation": "silu", "tying": "none", "output_bias": True},
        {"positions": "rotary", "attention_bias": True, "embedding_norm": True, "tying": "decoder"},
        {"positions": "learned", "max_positions": 7, "num_segments": 2, "tying": "embeddings", "final_norm": True},
        {"positions": "relative", "attention_scale": False, "output_scale": True, "norm": "pre"},
    ],
)
def test_the_twin_notices_each_changed_weight(make_model, settings):
    model = make_model(**{**SIZES, **FEW_HEADS, **LAYERS, **settings})
    twin = make_twin(model)
    source, target, segments = [3, 11, 7, 5, 29, 2], [1, 13, 7, 3], [0, 1, 1, 0, 0, 1]
    segments = segments if model.config.num_segments else None
    before = twin.logits(source, target, segments)
    for name in sorted(twin.weights):
        twin.weights[name] = -twin.weights[name]
        change = np.abs(twin.logits(source, target, segments) - before).max()
        assert change < 1e-12 if has_no_effect(name, model.config) else change > 1e-4, name
        twin.weights[name] = -twin.weights[name]


def test_the_twin_tells_options_apart_that_have_the_same_weights(make_model):
    weights = numpy_weights(make_model(**SIZES, **LAYERS))
    paper = ModelConfig.model_validate({**SIZES, **LAYERS}).model_dump()
    options = [
        {},
        {"activation": "gelu"},
        {"activation": "gelu_tanh"},
        {"activation": "silu"},
        {"norm": "pre", "final_norm": False},
        {"norm_eps": 0.01},
        {"positions": "sinusoidal_halves"},
        {"positions": "sinusoidal_t2t"},
        {"positions": "rotary"},
        {"positions": "none"},
        {"first_position": 2},
        {"attention_scale": False},
        {"output_scale": True},
        {"embedding_scale": False},
        {"pad_id": 11},
    ]
    source, target = [3, 11, 7, 5, 29, 2], [1, 13, 7, 3]
    logits = [NumpyTransformer(weights, {**paper, **option}).logits(source, target) for option in options]
    for (first, ours), (second, theirs) in combinations(zip(options, logits, strict=True), 2):
        assert np.abs(ours - theirs).max() > 1e-4, (first, second)


def test_the_paper_s_activation_and_its_successors_by_hand():
    assert [activate("relu", x) for x in (-3.0, 0.0, 2.0)] == [0.0, 0.0, 2.0]
    # Half of a normal variable's mass lies below 0, 84.13 % below 1.
    assert activate("gelu", 1.0) == pytest.approx(0.8413447, abs=1e-7)
    assert activate("gelu", -1.0) == pytest.approx(0.8413447 - 1, abs=1e-7)
    assert activate("gelu_tanh", 1.0) == pytest.approx(0.8411920, abs=1e-7)
    assert activate("silu", math.log(3)) == pytest.approx(0.75 * math.log(3))


def test_positional_encodings_of_a_hand_worked_case():
    # d_model 4: angles 3 / 10000^0 and 3 / 10000^(1/2)
    sines, cosines = [0.1411200, 0.0299955], [-0.9899925, 0.9995500]
    interleaved = [sines[0], cosines[0], sines[1], cosines[1]]
    np.testing.assert_allclose(positional_encoding(3, 4), interleaved, rtol=0, atol=1e-7)
    np.testing.assert_allclose(positional_encoding(3, 4, "sinusoidal_halves"), sines + cosines, rtol=0, atol=1e-7)
    # tensor2tensor divides by d_model / 2 - 1 = 1 instead: 3 / 10000^1
    of_t2t = [sines[0], 0.0003, cosines[0], 1 - 0.0003**2 / 2]
    np.testing.assert_allclose(positional_encoding(3, 4, "sinusoidal_t2t"), of_t2t, rtol=0, atol=1e-7)


def test_rotary_turn_of_a_hand_worked_case():
    # Width 4: the first pair turns by 3 radians, the second by 3 / 100.
    turned = turn(np.array([1.0, 0.0, 0.0, 2.0]), 3)
    np.testing.assert_allclose(turned, [-0.9899925, 0.1411200, -2 * 0.0299955, 2 * 0.9995500], rtol=0, atol=1e-7)


def test_relative_rows_of_a_hand_worked_case():
    # 8 rows up to a distance of 16. In a decoder 4 for one distance each, then ranges that begin at 4, 5.7, 8 and 11.3.
    assert [relative_row(-far, 8, 16, is_causal=True) for far in range(14)] == [
        0,
        1,
        2,
        3,
        4,
        4,
        5,
        5,
        6,
        6,
        6,
        6,
        7,
        7,
    ]
    # In an encoder 4 for each direction: 2 for one distance each, then ranges that begin at 2 and 5.7.
    assert [relative_row(-far, 8, 16, is_causal=False) for far in range(8)] == [0, 1, 2, 2, 2, 2, 3, 3]
    assert [relative_row(far, 8, 16, is_causal=False) for far in range(1, 8)] == [5, 6, 6, 6, 6, 7, 7]


GRADIENTS = {
    "paper": {},
    "paper, padding is not 0": {"pad_id": 11, "vocab_size": 41},
    "rotary, gated, rms pre-norm": {
        "positions": "rotary",
        "gated": True,
        "activation": "silu",
        "norm": "pre",
        "norm_kind": "rms",
        "tying": "decoder",
        "feed_forward_bias": False,
        "attention_bias": True,
    },
    "learned positions, segments, biases, two vocabularies": {
        "positions": "learned",
        "max_positions": 17,
        "num_segments": 2,
        "embedding_norm": True,
        "embedding_scale": False,
        "tying": "none",
        "source_vocab_size": 29,
        "attention_bias": True,
        "output_bias": True,
        "activation": "gelu",
    },
    "T5": {
        **T5_FORM,
        "activation": "gelu_tanh",
        "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 5,
        "output_scale": True,
    },
    "tied embeddings, free head widths": {"tying": "embeddings", "num_heads": 3, "d_k": 7, "d_v": 5},
    "decoder alone": {**DECODER_ALONE, "activation": "gelu_tanh", "norm": "pre"},
    "encoder alone": {**ENCODER_ALONE, "positions": "sinusoidal_t2t", "final_norm": True},
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_equal_the_slopes_of_the_twin(make_model, make_batch, record_property, name):
    """Each weight is moved a little to and fro along a random direction, in all its uses if it is shared."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = make_model(**{**SIZES, **FEW_HEADS, **layers, **GRADIENTS[name]}).double()
    inputs = draw_inputs(model.config, make_batch, lengths=((2, 4), (3, 2)))
    output = model_output(model, *inputs)
    slopes = torch.randn_like(output) / output.numel() ** 0.5
    (output * slopes).sum().backward()

    twin, draw, step = make_twin(model), np.random.default_rng(20170612), 1e-5
    largest = 0.0
    for weight_name, weight in model.named_parameters():
        direction = draw.normal(size=weight.shape)
        start, losses = twin.weights[weight_name], []
        for sign in (1, -1):
            twin.weights[weight_name] = start + sign * step * direction
            losses.append((twin_output(twin, *inputs) * slopes.numpy()).sum())
        twin.weights[weight_name] = start
        expected = (losses[0] - losses[1]) / (2 * step)
        found = (weight.grad.numpy() * direction).sum()
        largest = max(largest, float(abs(found - expected) / max(1.0, abs(expected))))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5), weight_name
        assert abs(expected) < 1e-9 if has_no_effect(weight_name, model.config) else abs(expected) > 1e-5, weight_name
    record_property("largest difference, gradient", largest)

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.files.tensors import load_tensors, model_tensors
from clearhead.interop.rewrites import (
    permute_stream,
    resolved,
    undone,
    with_attention_biases,
    with_feed_forward_biases,
    with_output_bias,
    with_rows,
    with_sine_halves,
)
from clearhead.model import Transformer

EVERYTHING = {
    "gated": True,
    "attention_bias": True,
    "output_bias": True,
    "embedding_norm": True,
    "final_norm": True,
    "tying": "none",
    "source_vocab_size": 41,
}
FORMS = [
    {},
    {"norm": "pre"},
    {"norm": "pre", "norm_kind": "rms", "feed_forward_bias": False},
    {"tying": "decoder", "feed_forward_bias": False},
    {"d_k": 3, "d_v": 5, **EVERYTHING},
    {"num_segments": 2, "num_decoder_layers": 0},
    {"num_encoder_layers": 0, "feed_forward_bias": False},
]


def outputs(model, batch):
    source, target = batch
    if model.config.num_decoder_layers == 0:
        return model.encode(source, source % 2)[0][source != 0]
    return model(source if model.config.num_encoder_layers else None, target)[target != 0]


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize(
    ("rewrite", "field", "value"),
    [
        (with_attention_biases, "attention_bias", True),
        (with_feed_forward_biases, "feed_forward_bias", True),
        (with_output_bias, "output_bias", True),
        (with_sine_halves, "positions", "sinusoidal_halves"),
    ],
)
def test_a_rewritten_model_gives_the_same_logits(make_model, make_batch, settings, rewrite, field, value):
    model = make_model(**settings)
    batch = make_batch(model.config)
    config, tensors = rewrite(model.config, model_tensors(model))
    if field == "output_bias" and config.num_decoder_layers == 0:
        value = False  # there is no output
    assert getattr(config, field) == value
    rewritten = Transformer(config).eval()
    load_tensors(rewritten, tensors, origin="the rewritten model")  # every tensor, and no other
    expected = outputs(model, batch)
    if rewrite is with_sine_halves and config.num_decoder_layers == 0:
        expected = torch.cat([expected[:, 0::2], expected[:, 1::2]], dim=1)  # an encoder alone gives the stream itself
    torch.testing.assert_close(outputs(rewritten, batch), expected, rtol=0.0, atol=1e-5)


REWRITES = (with_attention_biases, with_feed_forward_biases, with_output_bias, with_sine_halves)


def rewritten(config, tensors):
    for rewrite in REWRITES:
        config, tensors = rewrite(config, tensors)
    return config, tensors


@pytest.mark.parametrize("settings", FORMS)
def test_rewrites_are_undone_to_the_bit(make_model, settings):
    model = make_model(**settings)
    before = model_tensors(model)
    config, tensors = undone(model.config, REWRITES, *rewritten(model.config, before))
    assert config == model.config
    assert tensors.keys() == before.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in before.items())


def test_undone_keeps_later_changes(make_model, make_batch):
    model = make_model(tying="decoder")
    config, tensors = rewritten(model.config, model_tensors(model))
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    tensors["decoder.layers.0.cross_attn.k_proj.bias"][3] = 1.5
    changed = ModelConfig(**{**config.model_dump(), "dropout": 0.7})
    found, restored = undone(model.config, REWRITES, changed, tensors)
    assert found == ModelConfig(**{**model.config.model_dump(), "attention_bias": True, "dropout": 0.7})
    assert "output_proj.bias" not in restored
    now, then = Transformer(found).eval(), Transformer(changed).eval()
    load_tensors(now, restored, origin="restored")
    load_tensors(then, tensors, origin="changed")
    batch = make_batch(model.config)
    torch.testing.assert_close(outputs(now, batch), outputs(then, batch), rtol=0.0, atol=1e-5)
    assert undone(model.config, REWRITES, changed, tensors, unsaid={"dropout"})[0].dropout == model.config.dropout


@pytest.mark.parametrize("settings", [{}, {"tying": "none", "source_vocab_size": 41}, {"tying": "embeddings"}])
def test_rows_that_are_added_are_zeros_that_are_never_written(make_model, make_batch, settings):
    model = make_model(**settings, output_bias=True)
    tensors = with_rows(model_tensors(model), 50)
    wider = {"vocab_size": 50, "source_vocab_size": None, "bos_id": 49}
    larger = Transformer(ModelConfig(**{**model.config.model_dump(), **wider})).eval()
    load_tensors(larger, tensors, origin="larger")
    source, target = make_batch(model.config)
    logits, expected = larger(source, target), model(source, target)
    torch.testing.assert_close(logits[..., :37], expected)
    assert logits.softmax(-1)[..., 37:].max() == 0.0
    with torch.no_grad():
        model.target_embedding.weight[1] = 0.0  # where it is tied, the logit of this token is another one too
    started = larger(source, torch.full_like(target, 49))
    torch.testing.assert_close(started[..., 2:37], model(source, torch.full_like(target, 1))[..., 2:])


def test_reordering_moves_every_tensor_of_the_stream(make_model):
    tensors = model_tensors(make_model(num_segments=2, **EVERYTHING))
    order = torch.arange(26).roll(1)
    moved = {name for name, tensor in permute_stream(tensors, order).items() if not torch.equal(tensor, tensors[name])}
    within = ("q_proj.bias", "k_proj.bias", "v_proj.bias", "up_proj.bias", "gate_proj.bias", "output_proj.bias")
    assert moved == {name for name in tensors if not name.endswith(within)}


def test_reordering_alone_would_change_the_logits(make_model, make_batch):
    model = make_model()
    batch = make_batch(model.config)
    before = outputs(model, batch)
    _, tensors = with_sine_halves(model.config, model_tensors(model))
    load_tensors(model, {name: tensor.clone() for name, tensor in tensors.items()}, origin="reordered")
    assert (outputs(model, batch) - before).abs().max() > 0.1


def test_resolved_sets_all_defaults_of_a_config():
    config = resolved(ModelConfig(d_model=26, num_heads=13, norm="pre", tying="decoder", vocab_size=37))
    assert (config.d_k, config.d_v, config.final_norm, config.source_vocab_size) == (2, 2, True, 37)
    assert resolved(config) == config
    assert resolved(ModelConfig()).source_vocab_size is None
    alone = {"vocab_size": 37, "source_vocab_size": 41, "tying": "none"}
    encoder = resolved(ModelConfig(num_decoder_layers=0, **alone))
    assert (encoder.vocab_size, encoder.source_vocab_size, encoder.tying) == (41, None, "three-way")
    decoder = resolved(ModelConfig(num_encoder_layers=0, vocab_size=37, tying="none"))
    assert (decoder.vocab_size, decoder.source_vocab_size, decoder.tying) == (37, None, "none")
    assert resolved(ModelConfig(num_encoder_layers=0)).tying == "decoder"

"""An encoder alone, as in BERT, and a decoder alone, as in GPT, from the same parts; segments and embedding norm."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.model import Decoder, Encoder, Transformer

SIZES = {"d_model": 26, "d_ff": 19, "num_heads": 13, "dropout": 0.0}


def shaken(module):
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(std=0.3)
    return module.eval()


def test_an_encoder_alone_has_no_weight_of_a_decoder(make_model):
    model, whole = make_model(num_decoder_layers=0), make_model()
    names = {name for name, _ in model.named_parameters()}
    assert {name.split(".")[0] for name in names} == {"source_embedding", "encoder"}
    # It is the left of figure 1, no more and no less.
    assert names == {name for name, _ in whole.named_parameters() if name.startswith(("source_embedding", "encoder"))}


def test_a_decoder_alone_has_no_source_and_no_cross_attention(make_model):
    model, whole = make_model(num_encoder_layers=0), make_model(tying="decoder")
    names = {name for name, _ in model.named_parameters()}
    assert {name.split(".")[0] for name in names} == {"target_embedding", "decoder"}
    right = {name for name, _ in whole.named_parameters() if name.startswith(("target_embedding", "decoder"))}
    assert names == {name for name in right if "cross_attn" not in name}


def test_an_encoder_alone_equals_the_encoder_of_a_whole_model(make_model, make_batch):
    whole, alone = make_model(), make_model(num_decoder_layers=0)
    alone.load_state_dict({name: whole.state_dict()[name] for name in alone.state_dict()})
    source, _ = make_batch(whole.config)
    (memory, mask), (expected, expected_mask) = alone.encode(source), whole.encode(source)
    assert memory.equal(expected)
    assert mask.equal(expected_mask)
    assert mask.equal(source != 0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_decoder_alone_equals_an_encoder_with_a_causal_mask(norm):
    """Without cross-attention the two sides of figure 1 differ in the mask alone."""
    options = {**SIZES, "norm": norm, "activation": "gelu", "attention_bias": True}
    decoder = shaken(Decoder(ModelConfig(**options, num_encoder_layers=0, num_decoder_layers=3))).double()
    encoder = Encoder(ModelConfig(**options, num_encoder_layers=3)).double()
    encoder.load_state_dict(decoder.state_dict())
    x = torch.randn(2, 7, 26, dtype=torch.float64)
    states = decoder(x)
    causal, y = torch.ones(7, 7, dtype=torch.bool).tril()[None, None], x
    for layer in encoder.layers:
        y = layer.self_attn_residual.add_and_norm(y, lambda h, layer=layer: layer.self_attn(h, h, causal))
        y = layer.feed_forward_residual.add_and_norm(y, layer.feed_forward)
    torch.testing.assert_close(states, encoder.final_norm(y), rtol=1e-9, atol=1e-9)


def test_a_decoder_alone_reads_no_source(make_model, make_batch):
    model = make_model(num_encoder_layers=0)
    _, target = make_batch(model.config)
    logits = model(None, target)
    assert logits.shape == (3, 7, 37)
    decoded, cache = model.decode(target)
    assert decoded.equal(logits)
    assert cache.length == 7
    assert [layer.memory for layer in cache.layers] == [None, None]


@pytest.mark.parametrize(
    ("settings", "call", "message"),
    [
        ({"num_decoder_layers": 0}, lambda m, s, t: m(s, t), "an encoder alone .* takes no target; use encode"),
        ({"num_decoder_layers": 0}, lambda m, s, t: m.decode(t), "an encoder alone .* takes no target"),
        ({"num_decoder_layers": 0}, lambda m, s, t: m.attention_weights(s, t), "an encoder alone .* takes no target"),
        ({"num_encoder_layers": 0}, lambda m, s, t: m(s, t), "a decoder alone .* takes no source; give None"),
        ({"num_encoder_layers": 0}, lambda m, s, t: m.encode(s), "a decoder alone .* takes no source"),
        ({"num_encoder_layers": 0}, lambda m, s, t: m.attention_weights(s, t), "a decoder alone .* takes no source"),
        (
            {"num_encoder_layers": 0},
            lambda m, s, t: m.decode(t, torch.zeros(3, 11, 26), s != 0),
            "a decoder alone .* takes no memory; give None",
        ),
        ({}, lambda m, s, t: m(None, t), "this model has an encoder: its decoder needs a source, or the memory"),
        ({}, lambda m, s, t: m.decode(t), "this model has an encoder: its decoder needs a source"),
        ({}, lambda m, s, t: m.attention_weights(None, t), "this model has an encoder: its decoder needs a source"),
        ({}, lambda m, s, t: m.encode(s, torch.zeros_like(s)), "this model knows no segments .* give none"),
    ],
)
def test_missing_side_or_missing_input_of_a_model_is_rejected(make_model, make_batch, settings, call, message):
    model = make_model(**settings)
    with pytest.raises(ValueError, match=message):
        call(model, *make_batch(model.config))


def test_attention_weights_of_one_side_alone(make_model, make_batch):
    encoder_alone, decoder_alone = make_model(num_decoder_layers=0), make_model(num_encoder_layers=0)
    source, target = make_batch(encoder_alone.config)
    weights = encoder_alone.attention_weights(source, None)
    assert [tuple(layer.shape) for layer in weights.encoder] == [(3, 13, 11, 11)] * 3
    assert weights.decoder == weights.cross == []
    weights = decoder_alone.attention_weights(None, target)
    assert [tuple(layer.shape) for layer in weights.decoder] == [(3, 13, 7, 7)] * 2
    assert weights.encoder == weights.cross == []
    for layer in weights.decoder:
        torch.testing.assert_close(layer.sum(-1), torch.ones(3, 13, 7))
        assert (layer > 0).equal(torch.ones(7, 7, dtype=torch.bool).tril().expand_as(layer))


def test_a_decoder_alone_of_one_layer_counts_as_its_parts():
    config = ModelConfig(**{**SIZES, "vocab_size": 37, "num_encoder_layers": 0, "num_decoder_layers": 1})
    attention, feed_forward, norms = 4 * 26**2, 2 * 26 * 19 + 19 + 26, 2 * 2 * 26
    assert Transformer(config).num_parameters() == 37 * 26 + attention + feed_forward + norms


def test_segments_add_their_vector_and_are_0_unless_given(make_model, make_batch):
    model = make_model(num_decoder_layers=0, num_segments=3)
    source, _ = make_batch(model.config)
    segments = torch.randint(3, source.shape)
    plain, table = make_model(num_decoder_layers=0).source_embedding, model.source_embedding.segments.weight
    with torch.no_grad():
        plain.weight.copy_(model.source_embedding.weight)
    torch.testing.assert_close(model.source_embedding(source, segments=segments), plain(source) + table[segments])
    torch.testing.assert_close(model.source_embedding(source), plain(source) + table[0])
    assert model.encode(source)[0].equal(model.encode(source, torch.zeros_like(source))[0])
    assert (model.encode(source, segments)[0] - model.encode(source)[0]).abs().max() > 1e-3


def test_every_token_of_a_target_has_the_first_segment(make_model, make_batch):
    model, plain = make_model(num_target_segments=2).double(), make_model().double()
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if "segments" not in name})
    _, target = make_batch(model.config)
    expected = plain.target_embedding(target) + model.target_embedding.segments.weight[0]
    torch.testing.assert_close(model.target_embedding(target), expected)
    assert model.source_embedding.segments is None


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_output_transform_is_applied_between_states_and_logits(make_model, make_batch, kind):
    model = make_model(output_transform=True, activation="gelu", norm_kind=kind, norm_eps=1e-2).double()
    shaken(model)
    source, target = make_batch(model.config)
    memory, mask = model.encode(source)
    x = model.decoder(model.target_embedding(target), memory, mask)
    proj, norm = model.output_transform.proj, model.output_transform.norm
    y = x @ proj.weight.T + proj.bias
    y = y * (1 + torch.erf(y / 2**0.5)) / 2
    if kind == "layer":
        z = y - y.mean(-1, keepdim=True)
        y = z / (z.pow(2).mean(-1, keepdim=True) + 1e-2).sqrt() * norm.weight + norm.bias
    else:
        y = y / (y.pow(2).mean(-1, keepdim=True) + 1e-2).sqrt() * norm.weight
    torch.testing.assert_close(model(source, target), y @ model.output_proj.weight.T)
    torch.testing.assert_close(model.hidden_states(source, target).decoder[-1], x)


def test_an_encoder_alone_has_nothing_of_a_target():
    for settings in ({"num_target_segments": 2}, {"output_transform": True}):
        with pytest.raises(ConfigError, match=r"an encoder alone \(model.num_decoder_layers = 0\) has no target"):
            ModelConfig(**{**SIZES, "vocab_size": 37, "num_decoder_layers": 0}, **settings)


def test_embedding_norm_is_after_positions_and_segments_and_before_dropout(make_model, make_batch):
    settings = {"num_segments": 2, "positions": "learned", "max_positions": 17, "dropout": 0.25}
    model = make_model(embedding_norm=True, **settings)
    source, _ = make_batch(model.config)
    embedding = model.source_embedding
    sums = embedding.weight[source] * 26**0.5 + embedding.positions.weight[:11] + embedding.segments.weight[0]
    expected = embedding.norm(sums)
    torch.testing.assert_close(embedding(source), expected)
    dropped = embedding.train()(source)
    fallen = dropped == 0
    torch.testing.assert_close(dropped[~fallen], expected[~fallen] / 0.75, rtol=1e-3, atol=1e-5)
    assert fallen.double().mean().item() == pytest.approx(0.25, abs=0.05)


def test_embeddings_may_stay_unscaled(make_model):
    scaled, plain = make_model(positions="none"), make_model(positions="none", embedding_scale=False)
    ids = torch.randint(3, 37, (3, 7))
    torch.testing.assert_close(plain.source_embedding(ids), plain.source_embedding.weight[ids])
    torch.testing.assert_close(scaled.source_embedding(ids), scaled.source_embedding.weight[ids] * 26**0.5)

"""The layers give the outputs and gradients of torch.nn's own, whose masks have the opposite sense (True = hidden).

Weights, and the gradients back, go through the key tables of `clearhead.interop.torch_nn`. Everything is in float64,
so that the bound can be far below what a wrong detail would change.
"""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import load_tensors, model_tensors
from clearhead.interop import import_torch_state, torch_nn
from clearhead.interop.rewrites import with_attention_biases
from clearhead.model import MultiHeadAttention, Transformer
from clearhead.model.decoder import Decoder, DecoderLayer
from clearhead.model.encoder import Encoder, EncoderLayer

D_MODEL, NUM_HEADS, D_FF = 26, 13, 19
SOURCE_LENGTHS, TARGET_LENGTHS = (11, 5, 2), (4, 7, 1)

every_layer = pytest.mark.parametrize(
    ("norm", "activation"), [("post", "relu"), ("pre", "relu"), ("post", "gelu"), ("pre", "gelu")]
)
every_stack = pytest.mark.parametrize(
    ("norm", "final_norm"), [("post", None), ("pre", None), ("post", True), ("pre", False)]
)


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def sizes(**settings):
    shape = {"d_model": D_MODEL, "num_heads": NUM_HEADS, "d_ff": D_FF, "dropout": 0.0, "attention_bias": True}
    return {**shape, **settings}


def lengths_to_mask(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def hidden_future(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def shaken(module):
    """Draw every bias and norm too, so that one copied to the wrong place shows."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() == 1:
                weight.normal_(mean=float("norm" in name and name.endswith("weight")), std=0.3)
    return module


def copied(table, theirs, ours):
    """Put their weights into our module."""
    load_tensors(ours, table.from_theirs(theirs.state_dict()), origin="torch.nn")
    return ours


def assert_same(actual: Tensor, expected: Tensor):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def assert_same_gradients(table, theirs, ours, out, their_out, inputs):
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    expected = table.from_theirs({name: weight.grad for name, weight in theirs.named_parameters()})
    actual = {name: weight.grad for name, weight in ours.named_parameters()}
    assert actual.keys() == expected.keys()
    for name in actual:
        # A bias on all keys alike cannot change a softmax over them.
        assert actual[name].abs().max() > 1e-6 or name.endswith("k_proj.bias"), name
        assert_same(actual[name], expected[name])
    for mine, other in inputs:
        assert_same(mine.grad, other.grad)


def leaf_pair(*shape):
    ours = torch.randn(*shape, requires_grad=True)
    return ours, ours.detach().clone().requires_grad_()


def torch_layer(kind, norm="post", activation="relu"):
    layer = kind(
        D_MODEL, NUM_HEADS, D_FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    return shaken(layer)


def torch_stack(kind, layer, num_layers, *, norm, final_norm):
    options = {"enable_nested_tensor": False} if kind is nn.TransformerEncoder else {}
    layers = torch_layer(layer, norm)
    return shaken(
        kind(layers, num_layers, nn.LayerNorm(D_MODEL) if ends_in_norm(norm, final_norm) else None, **options)
    )


def ends_in_norm(norm, final_norm):
    return norm == "pre" if final_norm is None else final_norm


def test_attention_equals_torch_in_output_weights_and_gradients():
    theirs = shaken(nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True))
    table = torch_nn.attention_table()
    ours = copied(table, theirs, MultiHeadAttention(d_model=D_MODEL, num_heads=NUM_HEADS, bias=True))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    query, their_query = leaf_pair(3, 7, D_MODEL)
    memory, their_memory = leaf_pair(3, 11, D_MODEL)

    out = ours(query, memory, mask[:, None, None, :])
    their_out, their_weights = theirs(
        their_query, their_memory, their_memory, key_padding_mask=~mask, average_attn_weights=False
    )
    assert_same(out, their_out)
    weights = []
    ours(query, memory, mask[:, None, None, :], weights)
    assert_same(weights[0], their_weights)
    inputs = [(query, their_query), (memory, their_memory)]
    assert_same_gradients(table, theirs, ours, out, their_out, inputs)


def assert_same_encoders(table, theirs, ours, mask):
    """Compare outputs and gradients; `mask` has the shape that ours takes."""
    x, their_x = leaf_pair(3, 11, D_MODEL)
    out, their_out = ours(x, mask), theirs(their_x, src_key_padding_mask=~lengths_to_mask(SOURCE_LENGTHS))
    assert_same(out, their_out)
    assert_same_gradients(table, theirs, ours, out, their_out, [(x, their_x)])


def assert_same_decoders(table, theirs, ours, mask, **options):
    """Compare outputs and gradients; `mask` has the shape that ours takes."""
    x, their_x = leaf_pair(3, 7, D_MODEL)
    memory, their_memory = leaf_pair(3, 11, D_MODEL)
    masks = {"tgt_mask": hidden_future(7), "memory_key_padding_mask": ~lengths_to_mask(SOURCE_LENGTHS)}
    out, their_out = ours(x, memory, mask), theirs(their_x, their_memory, **masks, **options)
    assert_same(out, their_out)
    assert_same_gradients(table, theirs, ours, out, their_out, [(x, their_x), (memory, their_memory)])


@every_layer
def test_encoder_layer_equals_torch_in_output_and_gradients(norm, activation):
    theirs = torch_layer(nn.TransformerEncoderLayer, norm, activation)
    table = torch_nn.encoder_layer_table()
    ours = copied(table, theirs, EncoderLayer(ModelConfig(**sizes(norm=norm, activation=activation))))
    assert_same_encoders(table, theirs, ours, lengths_to_mask(SOURCE_LENGTHS)[:, None, None, :])


@every_layer
def test_decoder_layer_equals_torch_in_output_and_gradients(norm, activation):
    theirs = torch_layer(nn.TransformerDecoderLayer, norm, activation)
    table = torch_nn.decoder_layer_table()
    ours = copied(table, theirs, DecoderLayer(ModelConfig(**sizes(norm=norm, activation=activation))))
    assert_same_decoders(table, theirs, ours, lengths_to_mask(SOURCE_LENGTHS)[:, None, None, :], tgt_is_causal=True)


@every_stack
def test_encoder_stack_equals_torch_in_output_and_gradients(norm, final_norm):
    theirs = torch_stack(nn.TransformerEncoder, nn.TransformerEncoderLayer, 3, norm=norm, final_norm=final_norm)
    table = torch_nn.encoder_table(3, final_norm=ends_in_norm(norm, final_norm))
    ours = copied(table, theirs, Encoder(ModelConfig(**sizes(norm=norm, final_norm=final_norm, num_encoder_layers=3))))
    assert_same_encoders(table, theirs, ours, lengths_to_mask(SOURCE_LENGTHS))


@every_stack
def test_decoder_stack_equals_torch_in_output_and_gradients(norm, final_norm):
    theirs = torch_stack(nn.TransformerDecoder, nn.TransformerDecoderLayer, 2, norm=norm, final_norm=final_norm)
    table = torch_nn.decoder_table(2, final_norm=ends_in_norm(norm, final_norm))
    ours = copied(table, theirs, Decoder(ModelConfig(**sizes(norm=norm, final_norm=final_norm, num_decoder_layers=2))))
    assert_same_decoders(table, theirs, ours, lengths_to_mask(SOURCE_LENGTHS))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_whole_model_equals_torch_in_loss_and_gradients(make_model, make_batch, norm):
    ours: Transformer = make_model(norm=norm).double()
    assert not ours.config.attention_bias
    final_norm = norm == "pre"  # the paper has none
    theirs = nn.Transformer(
        D_MODEL,
        NUM_HEADS,
        batch_first=True,
        custom_encoder=torch_stack(
            nn.TransformerEncoder, nn.TransformerEncoderLayer, 3, norm=norm, final_norm=final_norm
        ),
        custom_decoder=torch_stack(
            nn.TransformerDecoder, nn.TransformerDecoderLayer, 2, norm=norm, final_norm=final_norm
        ),
    )
    table = torch_nn.transformer_table(3, 2, final_norm=final_norm)
    _, tensors = with_attention_biases(ours.config, model_tensors(ours))  # theirs has them: zeros
    stacks = {name: tensor for name, tensor in tensors.items() if name.startswith(("encoder.", "decoder."))}
    theirs.load_state_dict(table.to_theirs(stacks))
    embedding = ours.source_embedding
    weight = embedding.weight.detach().clone().requires_grad_()
    source, target = make_batch(ours.config, SOURCE_LENGTHS, TARGET_LENGTHS)
    hidden_source, hidden_target = source == 0, target == 0
    labels = torch.randint(3, 37, target.shape)

    def embed(ids: Tensor) -> Tensor:
        return functional.embedding(ids, weight) * math.sqrt(D_MODEL) + embedding.positions(0, ids.size(1))

    logits = ours(source, target)
    their_states = theirs(
        embed(source),
        embed(target),
        tgt_mask=hidden_future(target.size(1)),
        src_key_padding_mask=hidden_source,
        # Ours needs no such mask: padding comes after every real position, so the causal mask hides it.
        tgt_key_padding_mask=hidden_target,
        memory_key_padding_mask=hidden_source,
    )
    their_logits = their_states @ weight.T
    assert_same(logits[~hidden_target], their_logits[~hidden_target])

    functional.cross_entropy(logits[~hidden_target], labels[~hidden_target]).backward()
    functional.cross_entropy(their_logits[~hidden_target], labels[~hidden_target]).backward()
    expected = table.from_theirs({name: their.grad for name, their in theirs.named_parameters()})
    expected["source_embedding.weight"] = weight.grad
    for name, mine in ours.named_parameters():
        assert mine.grad.abs().max() > 1e-6, name
        assert_same(mine.grad, expected.pop(name))
    assert all(name.endswith("_proj.bias") for name in expected)


def test_every_tensor_of_torch_is_written_back():
    theirs = shaken(nn.Transformer(28, 2, 3, 2, D_FF, batch_first=True))  # odd heads are warned of here
    table = torch_nn.transformer_table(3, 2)
    written = table.to_theirs(table.from_theirs(theirs.state_dict()))
    assert written.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(written[name], tensor, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_whole_transformer_of_torch_becomes_the_stacks_of_ours(norm, make_model, make_batch):
    """nn.Transformer as anyone makes it, with a norm at the end of both stacks, between embeddings of ours."""
    sizes = {"d_model": 28, "num_heads": 2, "attention_bias": True}
    ours = make_model(norm=norm, final_norm=True, activation="gelu", **sizes).double()
    with warnings.catch_warnings(action="ignore"):  # that it will not take its fast path
        theirs = nn.Transformer(28, 2, 3, 2, D_FF, 0.0, "gelu", batch_first=True, norm_first=norm == "pre")
    shaken(theirs).train()  # the plain path; there is no dropout
    stacks = import_torch_state(ours.config, theirs.state_dict())
    load_tensors(ours, {**model_tensors(ours), **stacks}, origin="torch.nn")
    source, target = make_batch(ours.config)
    with torch.no_grad():
        states = theirs(
            ours.source_embedding(source),
            ours.target_embedding(target),
            tgt_mask=hidden_future(target.size(1)),
            src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
        )
        assert_same(ours(source, target), states @ ours.source_embedding.weight.T)


def test_import_torch_state_rejects_settings_that_nn_transformer_lacks():
    theirs = nn.Transformer(28, 2, 1, 1, D_FF, batch_first=True)
    right = {"d_model": 28, "num_heads": 2, "d_ff": D_FF, "num_encoder_layers": 1, "num_decoder_layers": 1}
    biased = ModelConfig(**right, attention_bias=True, final_norm=True)
    assert "encoder.layers.0.self_attn.q_proj.bias" in import_torch_state(biased, theirs.state_dict())
    with pytest.raises(ConfigError, match=r"attention_bias is False \(True there\); model.gated is True"):
        import_torch_state(ModelConfig(**right, gated=True), theirs.state_dict())
    with pytest.raises(ConfigError, match=r"model\.positions is 'rotary'"):
        import_torch_state(ModelConfig(**right, attention_bias=True, positions="rotary"), theirs.state_dict())
    with pytest.raises(ModelError, match=r"unknown   encoder\.norm.weight"):
        import_torch_state(ModelConfig(**right, attention_bias=True), theirs.state_dict())

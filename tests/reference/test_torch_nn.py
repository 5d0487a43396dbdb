"""The layers give the outputs and gradients of torch.nn's own, whose masks have the opposite sense (True = hidden)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from clearhead.model import MultiHeadAttention, Transformer
from clearhead.model.cache import DecoderCache, LayerCache
from clearhead.model.decoder import Decoder, DecoderLayer
from clearhead.model.encoder import Encoder, EncoderLayer

D_MODEL, NUM_HEADS, D_FF = 26, 13, 19
SIZES = {"d_model": D_MODEL, "num_heads": NUM_HEADS, "d_ff": D_FF}
SOURCE_LENGTHS, TARGET_LENGTHS = (11, 5, 2), (4, 7, 1)

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def lengths_to_mask(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def shake(module):
    """Draw every bias and norm too, so that one copied to the wrong place shows."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() == 1:
                weight.normal_(mean=float("norm" in name), std=0.3)
    return module


def attention_pairs(ours: MultiHeadAttention, theirs: nn.MultiheadAttention):
    """Pairs of (our parameter, the reader of the same numbers in a tensor of theirs)."""
    for number, part in enumerate((ours.q_proj, ours.k_proj, ours.v_proj)):
        yield part.weight, theirs.in_proj_weight, slice(number * D_MODEL, (number + 1) * D_MODEL)
    yield ours.out_proj.weight, theirs.out_proj.weight, slice(None)


def linear_pairs(ours: nn.Module, theirs: nn.Module):
    yield ours.weight, theirs.weight, slice(None)
    yield ours.bias, theirs.bias, slice(None)


def layer_pairs(ours, theirs):
    yield from attention_pairs(ours.self_attn, theirs.self_attn)
    yield from linear_pairs(ours.feed_forward.up_proj, theirs.linear1)
    yield from linear_pairs(ours.feed_forward.down_proj, theirs.linear2)
    norms = [ours.self_attn_residual.norm, ours.feed_forward_residual.norm]
    if isinstance(ours, DecoderLayer):
        yield from attention_pairs(ours.cross_attn, theirs.multihead_attn)
        norms.insert(1, ours.cross_attn_residual.norm)
    for number, norm in enumerate(norms, start=1):
        yield from linear_pairs(norm, getattr(theirs, f"norm{number}"))


def stack_pairs(ours, theirs):
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        yield from layer_pairs(our_layer, their_layer)
    if theirs.norm is not None:
        yield from linear_pairs(ours.final_norm, theirs.norm)


def copy_weights(pairs):
    with torch.no_grad():
        for ours, theirs, rows in pairs:
            theirs[rows] = ours


def zero_attention_biases(module):
    """The paper's projections have none."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.in_proj_bias.zero_()
                part.out_proj.bias.zero_()
    return module


def assert_same(actual: Tensor, expected: Tensor):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def assert_same_gradients(our_module, pairs):
    pairs = list(pairs)
    assert {id(ours) for ours, _, _ in pairs} == {id(weight) for weight in our_module.parameters()}
    for ours, theirs, rows in pairs:
        assert ours.grad is not None
        assert ours.grad.abs().max() > 1e-6
        assert_same(ours.grad, theirs.grad[rows])


def leaf_pair(*shape):
    ours = torch.randn(*shape, requires_grad=True)
    return ours, ours.detach().clone().requires_grad_()


def torch_layer(kind, norm):
    layer = kind(D_MODEL, NUM_HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    return zero_attention_biases(layer)


def final_norm(norm):
    return nn.LayerNorm(D_MODEL) if norm == "pre" else None


def hidden_future(length):
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def test_attention_equals_torch_in_output_weights_and_gradients():
    ours = MultiHeadAttention(d_model=D_MODEL, num_heads=NUM_HEADS)
    theirs = zero_attention_biases(nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True))
    copy_weights(attention_pairs(ours, theirs))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    query, their_query = leaf_pair(3, 7, D_MODEL)
    memory, their_memory = leaf_pair(3, 11, D_MODEL)

    out = ours(query, memory, mask[:, None, None, :])
    their_out, their_weights = theirs(
        their_query, their_memory, their_memory, key_padding_mask=~mask, average_attn_weights=False
    )
    assert_same(out, their_out)
    _, weights = ours.attend(query, *ours.keys_and_values(memory), mask=mask[:, None, None, :], return_weights=True)
    assert_same(weights, their_weights)

    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    assert_same_gradients(ours, attention_pairs(ours, theirs))
    assert_same(query.grad, their_query.grad)
    assert_same(memory.grad, their_memory.grad)


@both_norms
def test_encoder_layer_equals_torch_in_output_and_gradients(norm):
    ours = shake(EncoderLayer(**SIZES, dropout=0.0, norm=norm))
    theirs = torch_layer(nn.TransformerEncoderLayer, norm)
    copy_weights(layer_pairs(ours, theirs))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    x, their_x = leaf_pair(3, 11, D_MODEL)

    out, _ = ours(x, mask[:, None, None, :])
    their_out = theirs(their_x, src_key_padding_mask=~mask)
    assert_same(out, their_out)

    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    assert_same_gradients(ours, layer_pairs(ours, theirs))
    assert_same(x.grad, their_x.grad)


@both_norms
def test_decoder_layer_equals_torch_in_output_and_gradients(norm):
    ours = shake(DecoderLayer(**SIZES, dropout=0.0, norm=norm))
    theirs = torch_layer(nn.TransformerDecoderLayer, norm)
    copy_weights(layer_pairs(ours, theirs))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    x, their_x = leaf_pair(3, 7, D_MODEL)
    memory, their_memory = leaf_pair(3, 11, D_MODEL)

    out = ours(x, memory, mask[:, None, None, :], LayerCache())
    their_out = theirs(
        their_x, their_memory, tgt_mask=hidden_future(7), memory_key_padding_mask=~mask, tgt_is_causal=True
    )
    assert_same(out, their_out)

    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    assert_same_gradients(ours, layer_pairs(ours, theirs))
    assert_same(x.grad, their_x.grad)
    assert_same(memory.grad, their_memory.grad)


@both_norms
def test_encoder_stack_equals_torch_in_output_and_gradients(norm):
    ours = shake(Encoder(num_layers=3, **SIZES, dropout=0.0, norm=norm))
    theirs = nn.TransformerEncoder(
        torch_layer(nn.TransformerEncoderLayer, norm), 3, final_norm(norm), enable_nested_tensor=False
    )
    copy_weights(stack_pairs(ours, theirs))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    x, their_x = leaf_pair(3, 11, D_MODEL)

    out, _ = ours(x, mask)
    their_out = theirs(their_x, src_key_padding_mask=~mask)
    assert_same(out, their_out)

    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    assert_same_gradients(ours, stack_pairs(ours, theirs))
    assert_same(x.grad, their_x.grad)


@both_norms
def test_decoder_stack_equals_torch_in_output_and_gradients(norm):
    ours = shake(Decoder(num_layers=2, **SIZES, dropout=0.0, norm=norm))
    theirs = nn.TransformerDecoder(torch_layer(nn.TransformerDecoderLayer, norm), 2, final_norm(norm))
    copy_weights(stack_pairs(ours, theirs))
    mask = lengths_to_mask(SOURCE_LENGTHS)
    x, their_x = leaf_pair(3, 7, D_MODEL)
    memory, their_memory = leaf_pair(3, 11, D_MODEL)

    out = ours(x, memory, mask, DecoderCache.empty(2))
    their_out = theirs(their_x, their_memory, tgt_mask=hidden_future(7), memory_key_padding_mask=~mask)
    assert_same(out, their_out)

    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (their_out * direction).sum().backward()
    assert_same_gradients(ours, stack_pairs(ours, theirs))
    assert_same(x.grad, their_x.grad)
    assert_same(memory.grad, their_memory.grad)


@both_norms
def test_whole_model_equals_torch_in_loss_and_gradients(make_model, make_batch, norm):
    ours: Transformer = make_model(norm=norm).double()
    theirs = nn.Transformer(
        D_MODEL,
        NUM_HEADS,
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(
            torch_layer(nn.TransformerEncoderLayer, norm), 3, final_norm(norm), enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(torch_layer(nn.TransformerDecoderLayer, norm), 2, final_norm(norm)),
    )
    zero_attention_biases(theirs)  # nn.Transformer draws all weights afresh
    pairs = [*stack_pairs(ours.encoder, theirs.encoder), *stack_pairs(ours.decoder, theirs.decoder)]
    copy_weights(pairs)
    table = ours.embedding.weight.detach().clone().requires_grad_()
    source, target = make_batch(ours.config, SOURCE_LENGTHS, TARGET_LENGTHS)
    hidden_source, hidden_target = source == 0, target == 0
    labels = torch.randint(3, 37, target.shape)

    def embed(ids: Tensor) -> Tensor:
        return functional.embedding(ids, table) * math.sqrt(D_MODEL) + ours.embedding.positions(0, ids.size(1))

    logits = ours(source, target)
    their_states = theirs(
        embed(source),
        embed(target),
        tgt_mask=hidden_future(target.size(1)),
        src_key_padding_mask=hidden_source,
        # Ours gives no such mask: what is padded stands after every real position, so the causal mask hides it.
        tgt_key_padding_mask=hidden_target,
        memory_key_padding_mask=hidden_source,
    )
    their_logits = their_states @ table.T
    assert_same(logits[~hidden_target], their_logits[~hidden_target])

    functional.cross_entropy(logits[~hidden_target], labels[~hidden_target]).backward()
    functional.cross_entropy(their_logits[~hidden_target], labels[~hidden_target]).backward()
    assert_same_gradients(ours, [*pairs, (ours.embedding.weight, table, slice(None))])

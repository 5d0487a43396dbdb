"""The shapes written in the signatures are executed by this test run; a wrong one raises."""

from __future__ import annotations

import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation, BeartypeDoorHintViolation

from clearhead.model import AttentionWeights, MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.embeddings import Embedding
from clearhead.model.feed_forward import FeedForward


def test_keys_and_values_of_different_lengths_raise():
    q, k, v = torch.randn(3, 5, 7, 2), torch.randn(3, 5, 11, 2), torch.randn(3, 5, 13, 2)
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter v="):
        scaled_dot_product_attention(q, k, v)


def test_batches_of_different_sizes_raise():
    attn = MultiHeadAttention(d_model=26, num_heads=13)
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter memory="):
        attn(torch.randn(3, 7, 26), torch.randn(1, 11, 26))


def test_a_mask_that_is_not_boolean_raises():
    attn = MultiHeadAttention(d_model=26, num_heads=13)
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter mask="):
        attn(torch.randn(3, 7, 26), torch.randn(3, 11, 26), torch.ones(3, 1, 1, 11))


def test_ids_that_are_not_whole_numbers_raise():
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter ids="):
        Embedding(vocab_size=37, d_model=26, dropout=0.0, positions=None)(torch.randn(3, 7))


def test_a_missing_axis_raises():
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter x="):
        FeedForward(d_model=26, d_ff=19)(torch.randn(3, 26))


def test_a_memory_mask_of_another_length_raises(make_model, make_batch):
    model = make_model()
    source, target = make_batch(model.config)
    memory, mask = model.encode(source)
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter memory_mask="):
        model.decode(target, memory, mask[:, :-1])


def test_fields_of_results_are_checked():
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter encoder="):
        AttentionWeights(encoder=[torch.randn(3, 7, 7)], decoder=[], cross=[])


def test_results_are_checked_against_the_axes_of_the_arguments_at_every_call(monkeypatch):
    q, k = torch.randn(3, 5, 7, 2), torch.randn(3, 5, 11, 2)
    scaled_dot_product_attention(q, k, k)
    monkeypatch.setattr("clearhead.model.attention.drop", lambda weights, rate: weights[..., :-1, :])
    with pytest.raises(BeartypeDoorHintViolation, match="tuple index 0"):
        scaled_dot_product_attention(q, k, k)
    with pytest.raises(BeartypeCallHintReturnViolation, match="tuple index 0"):
        scaled_dot_product_attention(q[:2], k[:2], k[:2])

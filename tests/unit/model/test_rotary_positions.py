"""Rotary positions turn queries and keys so that their products see distances alone (Su et al. 2021)."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.model import MultiHeadAttention
from clearhead.model.other_positions import RotaryPositions


def turned_by_complex_numbers(x, start):
    """(x_1 + i x_2) e^(i m theta), which is equation 34 with its pairs read as complex numbers."""
    frequency = 10_000 ** (-torch.arange(x.size(-1) // 2).double() * 2 / x.size(-1))
    angle = torch.arange(start, start + x.size(2)).double()[:, None] * frequency
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


@pytest.mark.parametrize("start", [0, 3, 59, 509, 4_001, 100_003])
@pytest.mark.parametrize("width", [2, 6, 22])
def test_pairs_turn_by_position_times_their_frequency(width, start):
    x = torch.randn(3, 5, 7, width)
    turned = RotaryPositions(head_dim=width)(x, start)
    assert turned.dtype == x.dtype
    torch.testing.assert_close(turned.double(), turned_by_complex_numbers(x, start), rtol=0, atol=1e-6)


@pytest.mark.parametrize("start", [0, 300, 4_001])
def test_a_model_cast_to_bfloat16_loses_digits_but_no_positions(start):
    rotary, x = RotaryPositions(head_dim=22).to(torch.bfloat16), torch.randn(3, 5, 7, 22)
    turned = rotary(x.bfloat16(), start)
    assert turned.dtype == torch.bfloat16
    # 8 significant bits: each of two products is off by up to 3 roundings of 2^-9.
    torch.testing.assert_close(turned.double(), turned_by_complex_numbers(x, start), rtol=0, atol=0.05)


def test_rotary_positions_of_width_4_worked_by_hand():
    # Width 4: position 3 turns the first pair by 3 radians and the second by 3 / 100.
    turned = RotaryPositions(head_dim=4)(torch.tensor([[[[1.0, 0.0, 0.0, 2.0]]]]), 3).flatten().tolist()
    assert turned == pytest.approx([math.cos(3), math.sin(3), -2 * math.sin(0.03), 2 * math.cos(0.03)], abs=1e-6)


def test_position_0_turns_nothing_and_lengths_never_change():
    x = torch.randn(3, 5, 601, 22)
    turned = RotaryPositions(head_dim=22)(x, 0)
    assert turned[:, :, 0].equal(x[:, :, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert (turned - x)[:, :, 1:].abs().amax(dim=(0, 1, 3)).gt(1e-2).all()


def test_products_depend_on_the_distance_alone():
    rotary, q, k = RotaryPositions(head_dim=22), torch.randn(1, 5, 1, 22), torch.randn(1, 5, 1, 22)

    def product(query_position, key_position):
        return (rotary(q, query_position) * rotary(k, key_position)).sum(-1)

    for shift in (1, 17, 211, 8_000):
        torch.testing.assert_close(product(3 + shift, shift), product(3, 0), rtol=0, atol=1e-5)
    assert (product(4, 0) - product(3, 0)).abs().max() > 1e-2
    assert (product(0, 3) - product(3, 0)).abs().max() > 1e-2  # before is not after


def test_one_after_the_other_equals_all_at_once_also_where_the_table_grows():
    x = torch.randn(3, 5, 1031, 6)
    at_once = RotaryPositions(head_dim=6)(x, 0)
    rotary = RotaryPositions(head_dim=6)
    for position in (0, 5, 511, 512, 513, 1030, 7):
        assert rotary(x[:, :, position : position + 1], position).equal(at_once[:, :, position : position + 1])


def test_a_table_grown_in_inference_serves_training():
    attn = MultiHeadAttention(d_model=26, num_heads=13, rotary=True)
    with torch.inference_mode():
        attn(torch.randn(2, 523, 26), torch.randn(2, 523, 26))
    x = torch.randn(2, 521, 26, requires_grad=True)
    attn(x, x).sum().backward()
    assert x.grad.isfinite().all()


def test_the_table_is_neither_learned_nor_saved():
    rotary = RotaryPositions(head_dim=6)
    assert list(rotary.parameters()) == []
    assert rotary.state_dict() == {}


def test_attention_turns_queries_and_keys_but_not_values():
    attn = MultiHeadAttention(d_model=26, num_heads=3, d_k=4, d_v=5, rotary=True)
    x = torch.randn(3, 7, 26)
    keys, values = attn.keys_and_values(x, start=11)
    projected = attn.k_proj(x).unflatten(-1, (3, 4)).transpose(1, 2)
    torch.testing.assert_close(keys.double(), turned_by_complex_numbers(projected, 11), rtol=0, atol=1e-5)
    assert values.equal(attn.v_proj(x).unflatten(-1, (3, 5)).transpose(1, 2))

    seen = []
    attn.attend(attn.queries(x, 13), keys, values, weights=seen)
    [weights] = seen
    queries = turned_by_complex_numbers(attn.q_proj(x).unflatten(-1, (3, 4)).transpose(1, 2), 13)
    expected = (queries @ keys.double().transpose(-2, -1) / 2).softmax(dim=-1)  # the root of d_k = 4
    torch.testing.assert_close(weights.double(), expected, rtol=0, atol=1e-5)


def test_self_attention_turns_and_cross_attention_does_not(make_model):
    model = make_model(positions="rotary")
    attentions = {name: part.rotary for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)}
    assert len(attentions) == 3 + 2 * 2
    for name, rotary in attentions.items():
        assert (rotary is None) == name.endswith("cross_attn"), name
    assert model.source_embedding.positions is None
    assert model.target_embedding.positions is None

"""Attention: shapes told apart, masks obeyed, two paths with one result (paper section 3.2)."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.model import MultiHeadAttention, scaled_dot_product_attention
from clearhead.model.masks import causal_mask

LENGTHS = torch.tensor([11, 5, 2])


@pytest.fixture
def attn():
    return MultiHeadAttention(d_model=26, num_heads=13)


@pytest.fixture
def mask():
    return (torch.arange(11) < LENGTHS[:, None])[:, None, None, :]  # (B, 1, 1, S)


def test_query_and_key_lengths_are_not_confused(attn, mask):
    out = attn(torch.randn(3, 7, 26), torch.randn(3, 11, 26), mask)
    assert out.shape == (3, 7, 26)


@pytest.mark.parametrize("widths", [{}, {"d_k": 3}, {"d_v": 5}])
def test_heads_that_do_not_share_the_width_evenly_are_refused(widths):
    with pytest.raises(ConfigError, match=r"d_model \(26\) must be a multiple of num_heads \(3\), or give d_k and d_v"):
        MultiHeadAttention(d_model=26, num_heads=3, **widths)
    assert MultiHeadAttention(d_model=26, num_heads=3, d_k=3, d_v=5).out_proj.weight.shape == (26, 15)


def test_key_and_value_widths_are_not_confused():
    out, weights = scaled_dot_product_attention(
        torch.randn(3, 13, 7, 2), torch.randn(3, 13, 11, 2), torch.randn(3, 13, 11, 5)
    )
    assert out.shape == (3, 13, 7, 5)
    assert weights.shape == (3, 13, 7, 11)


def test_equation_1_on_a_case_worked_by_hand():
    q = torch.tensor([[2.0, 0.0]])
    k = torch.tensor([[math.log(3) / math.sqrt(2), 5.0], [0.0, -7.0]])
    v = torch.tensor([[4.0, 0.0, 8.0], [0.0, 4.0, 16.0]])
    # Scores 2 * ln 3 / sqrt(2) / sqrt(2) = ln 3 and 0, so the weights are 3/4 and 1/4.
    out, weights = scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(out, torch.tensor([[3.0, 1.0, 10.0]]))


def test_scores_keep_unit_variance_at_every_width():
    for width in (3, 61, 509):
        q, k = torch.randn(1, 211, width), torch.randn(1, 223, width)
        _, weights = scaled_dot_product_attention(q, k, k)
        scores = weights.log()
        # The softmax takes a constant off each row; what is left is the spread of the scores.
        assert 0.9 < scores.var(dim=-1).mean().item() < 1.1, width


def test_without_the_scale_wide_products_leave_the_softmax_hardly_a_gradient():
    random = torch.Generator().manual_seed(0)
    left = {}
    for width in (4, 64, 1024):
        q, k = (torch.randn(1, 211, width, generator=random, dtype=torch.float64) for _ in range(2))
        for scaled in (True, False):
            _, weights = scaled_dot_product_attention(q if scaled else q * math.sqrt(width), k, k)
            left[width, scaled] = (weights * (1 - weights)).sum(dim=-1).mean().item()  # of a weight for its own score
    assert all(left[width, True] > 0.9 for width in (4, 64, 1024))
    assert left[1024, False] < left[64, False] / 2 < left[4, False] / 4


def test_weights_sum_to_one_and_are_zero_where_masked(attn, mask):
    seen = []
    attn(torch.randn(3, 7, 26), torch.randn(3, 11, 26), mask, seen)
    [weights] = seen
    assert weights.shape == (3, 13, 7, 11)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 13, 7))
    hidden = ~mask.expand_as(weights)
    assert weights[hidden].eq(0).all()
    assert weights[~hidden].gt(0).all()


def test_recorded_weights_are_those_before_dropout():
    # tensor2tensor and fairseq return these too; Hugging Face and torch.nn return them after dropout.
    q, k, v = torch.zeros(211, 1, 2), torch.zeros(211, 4, 2), torch.eye(4).expand(211, 4, 4)
    sums, weights = scaled_dot_product_attention(q, k, v, dropout=0.5)
    assert weights.eq(1 / 4).all()  # equal scores
    assert set(sums.unique().tolist()) == {0.0, 1 / 2}  # each weight dropped, or divided by 1 - 0.5

    attn = MultiHeadAttention(d_model=26, num_heads=13, dropout=0.5)
    seen = []
    attn.train()(torch.randn(3, 7, 26), weights=seen)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(3, 13, 7))


def test_causal_weights_sum_to_one_and_are_zero_in_the_future(attn):
    x = torch.randn(3, 7, 26)
    seen = []
    attn.attend(attn.queries(x), *attn.keys_and_values(x), is_causal=True, weights=seen)
    [weights] = seen
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 13, 7))
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert weights[..., future].eq(0).all()
    assert weights[..., ~future].gt(0).all()


def test_hidden_positions_do_not_change_the_output(attn, mask):
    query, memory = torch.randn(3, 7, 26), torch.randn(3, 11, 26)
    before = attn(query, memory, mask)
    memory[1, 5:] = 1e4
    memory[2, 2:] = -1e4
    after = attn(query, memory, mask)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def test_visible_positions_do_change_the_output(attn, mask):
    query, memory = torch.randn(3, 7, 26), torch.randn(3, 11, 26)
    before = attn(query, memory, mask)
    memory[1, 4] += 1
    changed = (attn(query, memory, mask) - before).abs().amax(dim=(1, 2))
    assert changed[1] > 1e-3
    assert changed[[0, 2]].eq(0).all()


def test_fused_path_equals_the_explicit_one_with_a_mask(attn, mask):
    query, memory = torch.randn(3, 7, 26), torch.randn(3, 11, 26)
    fused, explicit = attn(query, memory, mask), attn(query, memory, mask, weights=[])
    torch.testing.assert_close(fused, explicit, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [None, torch.linspace(-2, 3, 13 * 7 * 11).view(1, 13, 7, 11)])
def test_queries_without_visible_keys_sum_to_zero_in_both_paths(mask, device, training, bias):
    attn = MultiHeadAttention(d_model=26, num_heads=13, dropout=0.3 if training else 0.0).to(device)
    mask = mask.repeat(1, 1, 7, 1).to(device)
    mask[1, :, 4] = False
    query, memory = torch.randn(3, 7, 26, device=device), torch.randn(3, 11, 26, device=device)
    for weights in (None, []):
        out = attn.train(training)(
            query.requires_grad_(), memory, mask, weights, None if bias is None else bias.to(device)
        )
        assert out[1, 4].eq(0).all()  # the projection has no bias
        assert out[1, 3].ne(0).any()
        [gradient] = torch.autograd.grad(out.square().sum(), query)
        assert gradient[1, 4].eq(0).all()
        assert gradient.isfinite().all()
    assert weights[0][1, :, 4].eq(0).all()
    torch.testing.assert_close(weights[0].sum(-1), mask.any(-1).float().expand(3, 13, 7))


def test_fused_path_equals_the_explicit_one_when_causal(attn):
    x = torch.randn(3, 7, 26)
    keys, values = attn.keys_and_values(x)
    fused = attn.attend(attn.queries(x), keys, values, is_causal=True)
    explicit = attn.attend(attn.queries(x), keys, values, is_causal=True, weights=[])
    masked = attn.attend(attn.queries(x), keys, values, mask=causal_mask(7))
    torch.testing.assert_close(fused, explicit, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(fused, masked, rtol=1e-5, atol=1e-6)


def test_multi_head_attention_is_one_attention_a_head(attn):
    query, memory = torch.randn(3, 7, 26), torch.randn(3, 11, 26)
    heads = []
    for head in range(13):
        rows = slice(2 * head, 2 * head + 2)
        q, k, v = (
            x @ proj.weight[rows].T for x, proj in ((query, attn.q_proj), (memory, attn.k_proj), (memory, attn.v_proj))
        )
        heads.append(scaled_dot_product_attention(q, k, v)[0])
    expected = torch.cat(heads, dim=-1) @ attn.out_proj.weight.T
    torch.testing.assert_close(attn(query, memory), expected, rtol=1e-5, atol=1e-6)


def test_projections_have_no_bias(attn):
    assert sorted(dict(attn.named_parameters())) == [
        "k_proj.weight",
        "out_proj.weight",
        "q_proj.weight",
        "v_proj.weight",
    ]
    assert sum(weight.numel() for weight in attn.parameters()) == 4 * 26 * 26

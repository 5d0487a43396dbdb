"""d_k and d_v free of d_model / h, as rows A and B of Table 3 need them."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.model import MultiHeadAttention, Transformer, scaled_dot_product_attention


@pytest.fixture
def attn():
    return MultiHeadAttention(d_model=26, num_heads=3, d_k=7, d_v=5, bias=True)


def test_projections_have_the_shapes_of_section_3_2_2(attn):
    shapes = {name: tuple(weight.shape) for name, weight in attn.named_parameters()}
    assert shapes == {
        "q_proj.weight": (3 * 7, 26),
        "q_proj.bias": (3 * 7,),
        "k_proj.weight": (3 * 7, 26),
        "k_proj.bias": (3 * 7,),
        "v_proj.weight": (3 * 5, 26),
        "v_proj.bias": (3 * 5,),
        "out_proj.weight": (26, 3 * 5),
        "out_proj.bias": (26,),
    }


@pytest.mark.parametrize(
    ("widths", "expected"), [({}, (2, 2)), ({"d_k": 5}, (5, 2)), ({"d_v": 7}, (2, 7)), ({"d_k": 5, "d_v": 7}, (5, 7))]
)
def test_d_k_and_d_v_default_to_d_model_over_num_heads(widths, expected):
    attn = MultiHeadAttention(d_model=26, num_heads=13, **widths)
    assert (attn.k_proj.out_features / 13, attn.v_proj.out_features / 13) == expected
    config = ModelConfig(d_model=26, num_heads=13, **widths)
    assert (config.key_dim, config.value_dim) == expected


def test_every_head_is_one_attention_scaled_by_the_root_of_d_k(attn):
    query, memory = torch.randn(2, 11, 26), torch.randn(2, 13, 26)
    keys, values = attn.keys_and_values(memory)
    assert (keys.shape, values.shape) == ((2, 3, 13, 7), (2, 3, 13, 5))
    seen = []
    out = attn.attend(attn.queries(query), keys, values, weights=seen)
    [weights] = seen
    q, k, v = attn.q_proj(query), attn.k_proj(memory), attn.v_proj(memory)
    heads = []
    for head in range(3):
        rows, value_rows = slice(7 * head, 7 * head + 7), slice(5 * head, 5 * head + 5)
        mixed, expected = scaled_dot_product_attention(q[..., rows], k[..., rows], v[..., value_rows])
        by_hand = (q[..., rows] @ k[..., rows].transpose(-2, -1) / math.sqrt(7)).softmax(-1)
        torch.testing.assert_close(weights[:, head], expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(expected, by_hand, rtol=1e-5, atol=1e-6)
        heads.append(mixed)
    torch.testing.assert_close(out, attn.out_proj(torch.cat(heads, dim=-1)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(7, 5), (5, 7), (1, 11), (64, 3)])
def test_fused_path_equals_the_explicit_one_where_keys_and_values_differ_in_width(d_k, d_v, is_causal):
    attn = MultiHeadAttention(d_model=26, num_heads=3, d_k=d_k, d_v=d_v)
    x = torch.randn(2, 11, 26)
    keys, values = attn.keys_and_values(x)
    mask = None if is_causal else (torch.arange(11) < torch.tensor([[11], [5]]))[:, None, None, :]
    fused = attn.attend(attn.queries(x), keys, values, mask=mask, is_causal=is_causal)
    explicit = attn.attend(attn.queries(x), keys, values, mask=mask, is_causal=is_causal, weights=[])
    torch.testing.assert_close(fused, explicit, rtol=1e-5, atol=1e-6)


def test_the_cache_keeps_keys_and_values_of_their_own_widths(make_model, make_batch):
    model = make_model(num_heads=3, d_k=7, d_v=5)
    source, target = make_batch(model.config)
    _, cache = model.decode(target, *model.encode(source))
    for layer in cache.layers:
        assert [tuple(tensor.shape) for tensor in layer.past] == [(3, 3, 7, 7), (3, 3, 7, 5)]
        assert [tuple(tensor.shape) for tensor in layer.memory] == [(3, 3, 11, 7), (3, 3, 11, 5)]


# Rows A and B of Table 3 with 37,000 rows, and the paper's figure in millions where it has one.
ROWS = {
    "A, h=1": ({"num_heads": 1, "d_k": 512, "d_v": 512}, 63_045_632, None),
    "A, h=4": ({"num_heads": 4, "d_k": 128, "d_v": 128}, 63_045_632, None),
    "A, h=16": ({"num_heads": 16, "d_k": 32, "d_v": 32}, 63_045_632, None),
    "A, h=32": ({"num_heads": 32, "d_k": 16, "d_v": 16}, 63_045_632, None),
    "B, d_k=16": ({"d_k": 16}, 55_967_744, 58),
    "B, d_k=32": ({"d_k": 32}, 58_327_040, 60),
}


@pytest.mark.parametrize("row", ROWS)
def test_parameter_counts_of_rows_a_and_b(row):
    settings, expected, millions = ROWS[row]
    config = ModelConfig(**settings)
    with torch.device("meta"):  # shapes without memory
        count = Transformer(config).num_parameters()
        with_41_000_rows = Transformer(config.model_copy(update={"vocab_size": 41_000})).num_parameters()
    # 18 attentions, each with W^Q and W^K of d_model x h d_k, W^V and W^O of d_model x h d_v.
    heads = config.num_heads * (2 * config.key_dim + 2 * config.value_dim)
    rest = 37_000 * 512 + 12 * (2 * 512 * 2048 + 2048 + 512) + 30 * 2 * 512
    assert count == 18 * 512 * heads + rest == expected
    if millions is not None:
        assert with_41_000_rows / 1e6 == pytest.approx(millions, abs=0.6)

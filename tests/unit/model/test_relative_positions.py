"""Relative positions add a number for each head and distance to the scores of self-attention (Raffel et al. 2020)."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.model import MultiHeadAttention, Transformer
from clearhead.model.other_positions import RelativePositions, relative_bucket
from every_run import slow

SETTINGS = [(32, 128), (8, 6), (4, 3), (6, 10), (32, 17), (10, 128), slow(64, 256), (128, 1024)]


def bucket_in_whole_numbers(distance, num_buckets, max_distance, is_causal):
    """The last row that begins at or before the distance; row single + k begins at single * (max / single)^(k / m)."""
    first = 0
    if not is_causal:
        num_buckets //= 2
        first = num_buckets if distance > 0 else 0
    far = max(-distance, 0) if is_causal else abs(distance)
    single = num_buckets // 2
    m = num_buckets - single
    begun = [k for k in range(m) if far**m * single**k >= max_distance**k * single**m]
    return first + (far if far < single else single + begun[-1])


def make(*, is_causal, num_heads=5, num_buckets=8, max_distance=6):
    positions = RelativePositions(
        num_heads=num_heads, num_buckets=num_buckets, max_distance=max_distance, is_causal=is_causal
    )
    torch.nn.init.normal_(positions.weight)
    return positions


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("num_buckets", "max_distance"), SETTINGS)
def test_every_distance_has_the_bucket_that_whole_numbers_say(num_buckets, max_distance, is_causal):
    distances = range(-2_000, 2_001)
    settings = {"num_buckets": num_buckets, "max_distance": max_distance, "is_causal": is_causal}
    found = relative_bucket(torch.tensor(distances), **settings).tolist()
    assert found == [bucket_in_whole_numbers(one, num_buckets, max_distance, is_causal) for one in distances]
    assert max(found) == num_buckets - 1
    assert len(set(found[: 2_001 - max_distance])) == 1


def test_buckets_of_t5_worked_by_hand():
    def buckets(*distances, is_causal):
        return relative_bucket(torch.tensor(distances), num_buckets=32, max_distance=128, is_causal=is_causal).tolist()

    # One direction: 16 of a distance each, then 16 + 16 log(d / 16) / log(8).
    assert buckets(0, -1, -15, -16, -19, -32, -127, -128, -9_999, 7, is_causal=True) == [
        *(0, 1, 15, 16, 17, 21, 31, 31, 31, 0),
    ]
    # Two directions: 8 of a distance each, then 8 + 8 log(d / 8) / log(16), and 16 more behind the query.
    assert buckets(0, -7, -8, -16, -32, -64, -128, 1, 16, 128, is_causal=False) == [0, 7, 8, 10, 12, 14, 15, 17, 26, 31]


@pytest.mark.parametrize("is_causal", [False, True])
def test_each_head_adds_its_own_number_for_the_distance_alone(is_causal):
    positions = make(is_causal=is_causal)
    bias = positions(11)
    assert bias.shape == (1, 5, 11, 11)
    for query in range(11):
        for key in range(11):
            row = bucket_in_whole_numbers(key - query, 8, 6, is_causal)
            assert bias[0, :, query, key].equal(positions.weight[row])


@pytest.mark.parametrize("start", [0, 1, 7, 130])
def test_a_step_gets_the_last_row_of_all_at_once(start):
    positions = make(is_causal=True, num_buckets=32, max_distance=128)
    assert positions(1, start=start).equal(positions(start + 1)[:, :, -1:])


def test_attention_adds_it_to_the_scores_and_the_fused_kernel_does_the_same():
    attn = MultiHeadAttention(d_model=26, num_heads=5, d_k=3, d_v=7, scale=False)
    positions, x, seen = make(is_causal=True), torch.randn(3, 11, 26), []
    keys, values = attn.keys_and_values(x)
    mask = torch.arange(11) < torch.tensor([11, 5, 2])[:, None, None, None]
    q = attn.q_proj(x).unflatten(-1, (5, 3)).transpose(1, 2).double()
    scores = q @ keys.double().transpose(-2, -1) + positions(11).double()
    later = torch.ones(11, 11, dtype=torch.bool).triu(1)
    for hidden, how in ((later, {"is_causal": True}), (~mask, {"mask": mask}), (torch.tensor(False), {})):
        seen.clear()
        output = attn.attend(attn.queries(x), keys, values, bias=positions(11), weights=seen, **how)
        expected = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        torch.testing.assert_close(seen[0].double(), expected, rtol=0, atol=1e-6)
        fused = attn.attend(attn.queries(x), keys, values, bias=positions(11), **how)
        torch.testing.assert_close(fused, output, rtol=0, atol=1e-6)


def test_attention_that_does_not_divide_has_scores_larger_by_the_root_of_the_width():
    divides = MultiHeadAttention(d_model=26, num_heads=5, d_k=3, d_v=7)
    does_not = MultiHeadAttention(d_model=26, num_heads=5, d_k=3, d_v=7, scale=False)
    does_not.load_state_dict(divides.state_dict())
    x = torch.randn(3, 11, 26)
    with torch.no_grad():
        assert (divides(x) - does_not(x)).abs().max() > 1e-3
        does_not.q_proj.weight /= math.sqrt(3)
        torch.testing.assert_close(divides(x), does_not(x), rtol=0, atol=1e-6)


def test_a_stack_has_one_table_for_self_attention_and_none_for_cross_attention(make_model):
    model = make_model(positions="relative", relative_attention_num_buckets=6, relative_attention_max_distance=5)
    tables = {name: tuple(weight.shape) for name, weight in model.named_parameters() if "relative" in name}
    assert tables == {"encoder.relative_positions.weight": (6, 13), "decoder.relative_positions.weight": (6, 13)}
    assert model.source_embedding.positions is None
    assert model.target_embedding.positions is None


@torch.no_grad()
def test_captured_weights_sum_to_1_and_make_the_output(make_model, make_batch):
    model = make_model(positions="relative", attention_scale=False, num_encoder_layers=1, num_decoder_layers=1)
    source, target = make_batch(model.config)
    weights = model.attention_weights(source, target)
    for attended in (*weights.encoder, *weights.decoder, *weights.cross):
        torch.testing.assert_close(attended.sum(-1), torch.ones(attended.shape[:-1]))
    assert weights.encoder[0][source[:, None, None, :].expand_as(weights.encoder[0]) == 0].eq(0).all()
    assert weights.decoder[0].triu(1).eq(0).all()

    layer, x = model.encoder.layers[0], model.source_embedding(source)
    values = layer.self_attn.v_proj(x).unflatten(-1, (13, 2)).transpose(1, 2)
    heads = (weights.encoder[0] @ values).transpose(1, 2).flatten(2)
    x = layer.self_attn_residual.norm(x + layer.self_attn.out_proj(heads))
    x = layer.feed_forward_residual.norm(x + layer.feed_forward(x))
    torch.testing.assert_close(model.encode(source)[0], x, rtol=0, atol=1e-5)


def test_layers_share_the_gradient_of_their_table(make_model, make_batch):
    model = make_model(positions="relative")
    source, target = make_batch(model.config, (11, 5), (7, 4))
    model(source, target).square().sum().backward()
    for stack in (model.encoder, model.decoder):
        reached = stack.relative_positions.weight.grad.abs().amax(dim=1) > 0
        assert reached[:5].all()
    assert not model.decoder.relative_positions.weight.grad[7:].any()  # no distance is longer than 6


@torch.no_grad()
def test_weights_start_so_that_scores_have_the_size_that_the_paper_wants():
    sizes = {"vocab_size": 31, "d_model": 96, "num_heads": 3, "d_k": 49, "d_v": 32, "positions": "relative"}
    model = Transformer(ModelConfig(**sizes, attention_scale=False))
    divides = Transformer(ModelConfig(**sizes))
    for ours, theirs in zip(model.modules(), divides.modules(), strict=True):
        if isinstance(ours, MultiHeadAttention):
            ratio = (theirs.q_proj.weight.std() / ours.q_proj.weight.std()).item()
            assert ratio == pytest.approx(7.0, rel=0.05)  # the root of d_k
            assert theirs.k_proj.weight.std().item() == pytest.approx(ours.k_proj.weight.std().item(), rel=0.05)
    assert model.encoder.relative_positions.weight.std().item() == pytest.approx(96**-0.5, rel=0.25)


@pytest.mark.parametrize(("embedding_scale", "output_scale"), [(True, False), (False, True), (False, False)])
@torch.no_grad()
def test_embeddings_start_so_that_what_is_divided_in_the_end_is_large_enough(embedding_scale, output_scale):
    config = ModelConfig(vocab_size=311, d_model=96, embedding_scale=embedding_scale, output_scale=output_scale)
    deviation = Transformer(config).source_embedding.weight.std().item()
    assert deviation == pytest.approx(1.0 if output_scale else 96**-0.5, rel=0.02)


@torch.no_grad()
def test_a_model_that_divides_its_output_has_logits_smaller_by_the_root_of_its_width(make_model, make_batch):
    model = make_model(output_scale=True, final_norm=True)
    plain = make_model(final_norm=True)
    plain.load_state_dict(model.state_dict())
    source, target = make_batch(model.config)
    torch.testing.assert_close(model(source, target) * math.sqrt(26), plain(source, target), rtol=0, atol=1e-5)
    hidden = model.hidden_states(source, target)
    torch.testing.assert_close(hidden.decoder[-1], plain.states(target, *plain.encode(source)), rtol=0, atol=1e-5)

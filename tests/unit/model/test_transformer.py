"""The whole model: padding, weight tying, dropout, parameter counts and initial weights as the paper has them."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from clearhead import presets
from clearhead.config import ModelConfig
from clearhead.kernels.dropout import Dropout
from clearhead.model import Transformer
from clearhead.model.recorder import AttentionWeights, Recorder

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@both_norms
@pytest.mark.parametrize("pad_id", [0, 5])
def test_extra_padding_moves_no_logit(make_model, make_batch, norm, pad_id):
    model = make_model(norm=norm, pad_id=pad_id)
    source, target = make_batch(model.config)
    before = model(source, target)
    for extra in (0, 1, 2, 3, 5, 8, 13, 21, 31, 32, 33, 63, 64):
        longer_source = functional.pad(source, (0, extra), value=pad_id)
        longer_target = functional.pad(target, (0, (extra * 7) % 65), value=pad_id)
        after = model(longer_source, longer_target)[:, : target.size(1)]
        torch.testing.assert_close(after, before, rtol=0, atol=1e-5)


@both_norms
def test_sources_of_padding_alone_are_finite_and_change_no_other_sentence(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, target = make_batch(model.config)
    before = model(source, target)
    source[1] = model.config.pad_id
    after = model(source, target)
    recorder = Recorder(AttentionWeights())
    memory, mask = model.encode(source, recorder=recorder)
    recorded = model.output_proj(model.states(target, memory, mask, recorder=recorder))
    cache, steps = None, []
    for position in range(target.size(1)):
        logits, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
        steps.append(logits)
    assert after.isfinite().all()
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]], rtol=0, atol=1e-5)
    for other in (recorded, torch.cat(steps, dim=1)):
        torch.testing.assert_close(other, after, rtol=0, atol=1e-5)


@both_norms
def test_sentences_of_a_batch_do_not_see_each_other(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, target = make_batch(model.config)
    together = model(source, target)
    for row, (source_length, target_length) in enumerate([(11, 4), (5, 7), (2, 1)]):
        alone = model(source[row : row + 1, :source_length], target[row : row + 1, :target_length])
        torch.testing.assert_close(together[row : row + 1, :target_length], alone, rtol=0, atol=1e-5)


@both_norms
def test_attention_weights_sum_to_one_and_are_zero_where_masked(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, target = make_batch(model.config)
    weights = model.attention_weights(source, target)
    real = (source != 0)[:, None, None, :]
    past = torch.ones(7, 7, dtype=torch.bool).tril()
    for layers, visible, shape in (
        (weights.encoder, real, (3, 13, 11, 11)),
        (weights.decoder, past, (3, 13, 7, 7)),
        (weights.cross, real, (3, 13, 7, 11)),
    ):
        assert len(layers) == (3 if layers is weights.encoder else 2)
        for layer in layers:
            assert layer.shape == shape
            torch.testing.assert_close(layer.sum(-1), torch.ones(shape[:-1]))
            assert (layer > 0).equal(visible.expand(shape))


@both_norms
def test_attention_weights_are_those_of_the_forward_pass(make_model, make_batch, norm):
    model = make_model(norm=norm).double()
    source, target = make_batch(model.config)
    weights = model.attention_weights(source, target)
    parts = {f"encoder.layers.{n}.self_attn": weights.encoder[n] for n in range(3)}
    parts |= {f"decoder.layers.{n}.self_attn": weights.decoder[n] for n in range(2)}
    parts |= {f"decoder.layers.{n}.cross_attn": weights.cross[n] for n in range(2)}
    values, heads = {}, {}
    for part in parts:
        attn = model.get_submodule(part)
        attn.v_proj.register_forward_hook(lambda _, __, out, part=part: values.__setitem__(part, out))
        attn.out_proj.register_forward_hook(lambda _, args, __, part=part: heads.__setitem__(part, args[0]))
    model(source, target)
    for part, seen in parts.items():
        split = values[part].unflatten(-1, (13, 2)).transpose(1, 2)
        torch.testing.assert_close((seen @ split).transpose(1, 2).flatten(2), heads[part])


@both_norms
def test_forward_is_encode_then_decode_and_states_times_the_embedding(make_model, make_batch, norm):
    model = make_model(norm=norm)
    source, target = make_batch(model.config)
    logits = model(source, target)
    decoded, cache = model.decode(target, *model.encode(source))
    assert cache.length == 7
    torch.testing.assert_close(decoded, logits)
    torch.testing.assert_close(
        model.states(target, *model.encode(source)) @ model.source_embedding.weight.T, logits, rtol=1e-5, atol=1e-5
    )


@both_norms
def test_training_with_dropout_rate_0_in_all_dropout_modules_equals_eval(make_model, make_batch, norm):
    model = make_model(norm=norm, dropout=0.5)
    source, target = make_batch(model.config)
    expected = model.eval()(source, target)
    model.train()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.rate = 0.0
    torch.testing.assert_close(model(source, target), expected)


@both_norms
def test_dropout_falls_on_each_sublayer_output_and_on_the_embeddings_alone(make_model, make_batch, norm):
    model = make_model(norm=norm, dropout=0.25).train()
    dropouts = [name for name, module in model.named_modules() if isinstance(module, Dropout) and module.rate > 0]
    encoder = [f"encoder.layers.{n}.{part}" for n in range(3) for part in ("self_attn", "feed_forward")]
    decoder = [f"decoder.layers.{n}.{part}" for n in range(2) for part in ("self_attn", "cross_attn", "feed_forward")]
    assert sorted(dropouts) == sorted(
        [
            "source_embedding.dropout",
            "target_embedding.dropout",
            *(f"{part}_residual.dropout" for part in encoder + decoder),
        ]
    )

    calls: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in dropouts}
    outputs: dict[str, torch.Tensor] = {}
    for name in dropouts:
        model.get_submodule(name).register_forward_hook(
            lambda _, args, out, name=name: calls[name].append((args[0], out))
        )
    for part in encoder + decoder:
        last = model.get_submodule(part + (".down_proj" if part.endswith("feed_forward") else ".out_proj"))
        last.register_forward_hook(lambda _, __, out, part=part: outputs.__setitem__(part, out))
    source, target = make_batch(model.config, (61, 47, 31), (53, 43, 29))
    model(source, target)

    assert all(len(seen) == 1 for seen in calls.values())
    for name, seen in calls.items():
        for before, after in seen:
            dropped = after == 0
            torch.testing.assert_close(after[~dropped], before[~dropped] / 0.75)
            # At least 4000 draws with a standard deviation of 0.43 each.
            assert dropped.double().mean().item() == pytest.approx(0.25, abs=0.03), name
    for part, output in outputs.items():
        torch.testing.assert_close(calls[f"{part}_residual.dropout"][0][0].flatten(), output.flatten())
    for side, ids in {"source_embedding": source, "target_embedding": target}.items():
        rows = model.source_embedding.weight[ids] * math.sqrt(26)
        before, _ = calls[f"{side}.dropout"][0]
        torch.testing.assert_close(before, rows + model.source_embedding.positions(0, ids.size(1)))


def test_dropout_differs_from_pass_to_pass_in_training_alone(make_model, make_batch):
    model = make_model(dropout=0.25)
    source, target = make_batch(model.config)
    assert model(source, target).equal(model(source, target))
    model.train()
    assert not model(source, target).equal(model(source, target))


def test_three_matrices_are_one_parameter_whose_gradient_gets_every_contribution(make_model, make_batch):
    model = make_model().double()
    source, target = make_batch(model.config)
    weight = model.source_embedding.weight
    assert [name for name, p in model.named_parameters() if p.size(0) == 37] == ["source_embedding.weight"]
    labels = torch.randint(3, 37, target.shape)

    def gradient(*, source_side: bool, target_side: bool, output_side: bool) -> torch.Tensor:
        def embed(ids: torch.Tensor, learned: bool) -> torch.Tensor:
            embedded = model.source_embedding(ids)
            return embedded if learned else embedded.detach()

        mask = source != 0
        memory = model.encoder(embed(source, source_side), mask)
        states = model.decoder(embed(target, target_side), memory, mask)
        logits = states @ (weight if output_side else weight.detach()).T
        (result,) = torch.autograd.grad(functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), weight)
        return result

    parts = [gradient(source_side=use == 0, target_side=use == 1, output_side=use == 2) for use in range(3)]
    functional.cross_entropy(model(source, target).flatten(0, 1), labels.flatten()).backward()
    assert all(part.abs().max() > 1e-6 for part in parts)
    torch.testing.assert_close(weight.grad, sum(parts))


def closed_form(*, vocab, d_model, d_ff, layers, pre=False):
    """Weights by the counting rule of Table 3: attention without biases, feed-forward with, a norm a sub-layer."""
    attention, norm = 4 * d_model**2, 2 * d_model
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    encoder = layers * (attention + feed_forward + 2 * norm)
    decoder = layers * (2 * attention + feed_forward + 3 * norm)
    return vocab * d_model + encoder + decoder + (2 * norm if pre else 0)


# Rows of Table 3 that keep d_k = d_model / h: change, exact count with 37,000 rows, the paper's figure in millions.
TABLE_3 = {
    "base": ({}, 63_045_632, 65),
    "h=1": ({"num_heads": 1}, 63_045_632, None),
    "h=4": ({"num_heads": 4}, 63_045_632, None),
    "h=16": ({"num_heads": 16}, 63_045_632, None),
    "h=32": ({"num_heads": 32}, 63_045_632, None),
    "N=2": ({"num_encoder_layers": 2, "num_decoder_layers": 2}, 33_644_544, 36),
    "N=4": ({"num_encoder_layers": 4, "num_decoder_layers": 4}, 48_345_088, 50),
    "N=8": ({"num_encoder_layers": 8, "num_decoder_layers": 8}, 77_746_176, 80),
    "d=256": ({"d_model": 256}, 26_816_512, 28),
    "d=1024": ({"d_model": 1024}, 163_815_424, 168),
    "d_ff=1024": ({"d_ff": 1024}, 50_450_432, 53),
    "d_ff=4096": ({"d_ff": 4096}, 88_236_032, 90),
}


def count(config: ModelConfig) -> int:
    with torch.device("meta"):  # shapes without memory
        return Transformer(config).num_parameters()


@pytest.mark.parametrize("row", TABLE_3)
def test_parameter_counts_of_table_3_follow_the_closed_formula(row):
    change, exact, millions = TABLE_3[row]
    config = ModelConfig.model_validate({"vocab_size": 37_000, **change})
    layers = config.num_encoder_layers
    assert closed_form(vocab=37_000, d_model=config.d_model, d_ff=config.d_ff, layers=layers) == exact
    assert count(config) == exact
    if millions is not None:
        # The paper's figures imply about 41,000 rows, not 37,000.
        assert count(config.model_copy(update={"vocab_size": 41_000})) / 1e6 == pytest.approx(millions, abs=0.6)


def test_parameter_counts_of_the_paper_presets():
    assert count(presets.paper_base()) == 63_045_632
    assert count(presets.paper_big()) == 214_171_648 == closed_form(vocab=37_000, d_model=1024, d_ff=4096, layers=6)
    assert count(presets.paper_base(vocab_size=32_003)) == 63_045_632 - 4_997 * 512


def test_pre_norm_adds_one_norm_a_stack(make_model):
    assert make_model(norm="pre").num_parameters() - make_model(norm="post").num_parameters() == 4 * 26


def test_initial_weights_are_xavier_uniform_with_zero_biases_and_unit_norms():
    model = Transformer(ModelConfig(vocab_size=997, d_model=58, d_ff=101, num_heads=29))
    for name, weight in model.named_parameters():
        if name == "source_embedding.weight":
            assert weight.mean().item() == pytest.approx(0, abs=0.003)
            assert weight.std().item() == pytest.approx(58**-0.5, rel=0.02)
        elif name.endswith("norm.weight"):
            assert weight.eq(1).all()
        elif name.endswith("bias"):
            assert weight.eq(0).all()
        else:
            bound = math.sqrt(6 / sum(weight.shape))
            assert bound * 0.98 < weight.abs().max().item() <= bound, name
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05), name


def test_the_same_seed_gives_the_same_weights():
    config = ModelConfig(vocab_size=37, d_model=26, num_heads=13, d_ff=19)
    torch.manual_seed(7)
    first = Transformer(config).state_dict()
    torch.manual_seed(7)
    second = Transformer(config).state_dict()
    assert all(first[name].equal(second[name]) for name in first)
    torch.manual_seed(8)
    assert not Transformer(config).state_dict()["source_embedding.weight"].equal(first["source_embedding.weight"])


def test_positions_past_the_first_table_work_in_the_whole_model(make_model, make_batch):
    model = make_model()
    source, target = make_batch(model.config, (601, 5, 2), (3, 523, 1))
    long = model(source, target)
    short = model(source[2:, :2], target[2:, :1])
    torch.testing.assert_close(long[2:, :1], short, rtol=0, atol=1e-5)


def test_hidden_states_are_what_runs_from_layer_to_layer(make_model, make_batch):
    for norm in ("post", "pre"):
        model = make_model(norm=norm)
        source, target = make_batch(model.config)
        hidden = model.hidden_states(source, target)
        assert len(hidden.encoder) == model.config.num_encoder_layers + 1
        assert len(hidden.decoder) == model.config.num_decoder_layers + 1
        assert hidden.encoder[0].equal(model.source_embedding(source))
        assert hidden.encoder[-1].equal(model.encode(source)[0])
        assert model.output_proj(hidden.decoder[-1]).equal(model(source, target))
        mask = (source != model.config.pad_id)[:, None, None, :]
        assert model.encoder.layers[0](hidden.encoder[0], mask).equal(hidden.encoder[1])
        assert model.hidden_states(source).decoder == []

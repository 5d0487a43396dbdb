from __future__ import annotations

import random
import threading
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from model_variants import VARIANTS, described
from searches import PARENTS, assert_same, find, find_plainly, near, tokens

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.config.presets import tiny
from clearhead.decoding import SearchOptions, Shortlist, decode, make_engine, score
from clearhead.decoding.engine import Beams
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.native.slots import _Slot
from clearhead.decoding.native.weights import NativeWeights
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.decoding.sentence import sentences_of
from clearhead.decoding.step import pad_batch, token_log_probs
from clearhead.errors import ConfigError, DeviceError
from clearhead.inspection.forward_pass import ModelPass, numbers
from clearhead.inspection.heads import attentions, projections
from clearhead.kernels import library as library_module
from clearhead.kernels.library import form, library
from clearhead.kernels.panels import LANES
from clearhead.kernels.structs import STRUCTS, uninitialized
from clearhead.model import Transformer
from clearhead.model.recorder import HiddenStates, Recorder
from clearhead.model.stored import StoredModel
from every_run import one_in, slow

pytestmark = [
    pytest.mark.skipif(library() is None, reason="needs the compiled core"),
    pytest.mark.usefixtures("inference"),
]


ROUNDED = ["bf16x3", "bf16", "int8"]


def in_order(memory, source, config):
    """Return the keys and values of a source, (S, L W), from blocks of LANES positions in which keys are turned."""
    keys, values = config.num_heads * config.key_dim, config.num_heads * config.value_dim
    layers = memory.reshape(len(memory), config.num_decoder_layers, LANES * (keys + values))
    turned, plain = layers[..., : LANES * keys], layers[..., LANES * keys :]
    turned = turned.reshape(*layers.shape[:2], keys, LANES).transpose(0, 3, 1, 2)
    plain = plain.reshape(*layers.shape[:2], LANES, values).transpose(0, 2, 1, 3)
    return np.concatenate([turned, plain], axis=-1).reshape(len(memory) * LANES, -1)[: len(source)]


LENGTHS = (7, 1, 13, 3, 29, 2)
LIMITS = [9, 5, 1, 7, 13, 3]
END = 2

WIDTHS = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 48, "d_ff": 96}
"""All that the model is wide in differs, and all of it fits."""
WIDTHS_IN_8_BITS = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 96, "d_ff": 128}

CASES = [
    *VARIANTS,
    {"num_encoder_layers": 3, "num_decoder_layers": 1},
    {"num_encoder_layers": 1, "num_decoder_layers": 3, "d_ff": 160},
    {"norm_eps": 0.3, "norm_kind": "rms"},
    {"d_model": 96, "num_heads": 4, "d_k": 32, "d_v": 16},
    {"d_model": 32, "num_heads": 2, "d_k": 80, "d_v": 112, "attention_bias": True},
    {"d_model": 96, "num_heads": 6, "d_k": None, "d_v": None},
    {"attention_bias": True, "num_heads": 1, "d_k": 32, "d_v": 128, "norm": "post"},
    {"feed_forward_bias": False, "gated": True},
    {"positions": "rotary", "num_heads": 3, "d_k": 64, "d_v": 32, "d_model": 32, "attention_bias": True},
    {"positions": "learned", "max_positions": 29},
    {"embedding_norm": True, "norm_kind": "rms", "embedding_scale": False, "num_segments": 3, "positions": "learned"},
    {"source_vocab_size": 41, "tying": "none"},
    *({"vocab_size": size, "output_bias": True} for size in (6, 31, 32, 33, 511, 512, 513, 1025)),
]


def draw(config, lengths):
    """Return source ids, each ended by the end token."""
    special = {config.pad_id, config.bos_id, config.eos_id}
    words = [token for token in range(config.source_vocab_size or config.vocab_size) if token not in special]
    draw = random.Random(5)
    return [[*draw.choices(words, k=length - 1), config.eos_id] for length in lengths]


def log_probs(found):
    return [hypothesis.log_prob for hypotheses in found for hypothesis in hypotheses]


def own_scores(model, sources, found):
    """Return the model's own score of what was found."""
    pairs = [(source, list(h.tokens)) for source, hypotheses in zip(sources, found, strict=True) for h in hypotheses]
    return token_log_probs(model, *map(list, zip(*pairs, strict=True))).sum(dim=1).tolist()


# Against the plain form


@pytest.mark.parametrize("settings", one_in(3, CASES), ids=described)
def test_native_engine_equals_plain_search_with_the_models_log_probs(make_sharp_model, settings):
    model = make_sharp_model(**{**WIDTHS, **settings})
    sources = draw(model.config, LENGTHS)
    for beam_size, num_best in ((1, 1), (4, 3)):
        config = DecodeConfig(beam_size=beam_size, batch_tokens=29 * beam_size)
        found = find(NativeEngine(model), sources, LIMITS, config, num_best)
        assert_same(found, find_plainly(model, sources, LIMITS, config, num_best))
        assert log_probs(found) == near(own_scores(model, sources, found))


NOT_SUPPORTED = {"num_target_segments": 2, "output_transform": True}


def test_every_option_of_a_model_is_among_these_cases():
    tried = {name for settings in CASES for name in settings} | set(NOT_SUPPORTED)
    assert tried | {"num_placeholders"} == set(ModelConfig.model_fields)


@pytest.mark.parametrize(("name", "value"), NOT_SUPPORTED.items())
def test_unsupported_model_settings_are_left_to_pytorch_engine(make_model, name, value):
    model = make_model(**WIDTHS, **{name: value})
    assert f"model.{name}" in NativeEngine.obstacle(model, "fp32")
    assert isinstance(make_engine(model), PyTorchEngine)


@pytest.mark.parametrize(
    "settings",
    [{}, {"norm": "pre", "positions": "rotary"}, {"positions": "learned"}, {"positions": "relative"}],
    ids=described,
)
def test_native_beams_keep_their_own_past_when_they_branch_end_and_swap(make_model, settings):
    model = make_model(**{**WIDTHS, **settings})
    sources = draw(model.config, (5, 11))
    slots = NativeEngine(model).slots(3, 9)
    slots.enter(slots.encode(sentences_of(sources, [99, 99])))
    pasts = [[[]], [[]]]
    for length, parents in enumerate(PARENTS):
        written = iter(torch.randint(3, 37, (6,)).tolist())
        pasts = [
            [[*beams[parent], next(written) if length else 1] for parent in chosen]
            for beams, chosen in zip(pasts, parents, strict=True)
        ]
        scores = [torch.randn(len(chosen)).tolist() for chosen in parents]
        active = [
            Beams(score, [past[-1] for past in beams], list(chosen), [None] * len(chosen), length)
            for score, beams, chosen in zip(scores, pasts, parents, strict=True)
        ]
        for source, so_far, beams, found in zip(sources, scores, pasts, slots.step(active), strict=True):
            logits = model(torch.tensor([source] * len(beams)), torch.tensor(beams))[:, -1]
            ways = logits.log_softmax(dim=-1) + torch.tensor(so_far)[:, None]
            ways[:, :2] = float("-inf")
            best, places = ways.topk(4, dim=1).values.flatten().topk(4)[0], ways.flatten().argsort(descending=True)
            found_scores, found_beams, found_tokens = zip(*list(found)[:4], strict=True)
            torch.testing.assert_close(torch.tensor(found_scores), best, rtol=0, atol=1e-4)
            assert [37 * beam + token for beam, token in zip(found_beams, found_tokens, strict=True)] == places[
                :4
            ].tolist()


def test_slots_step_orders_candidates_by_score_with_masked_tokens_at_minus_infinity(make_model):
    packed = NativeEngine(make_model(**WIDTHS, vocab_size=6))
    slots = packed.slots(4, 9)
    slots.enter(slots.encode(sentences_of(draw(packed.model.config, (3, 5)), [9, 9])))
    end_alone = np.arange(6) == END
    first, last = map(list, slots.step([Beams([0.0], [1], [0], [mask], 0) for mask in (None, end_alone)]))
    scores = [score for score, _, _ in first]
    assert len(scores) == 8
    assert scores == sorted(scores, reverse=True)
    assert {token for score, _, token in first if score > float("-inf")} == {2, 3, 4, 5}
    assert [token for score, _, token in last if score > float("-inf")] == [END]


def test_a_slot_has_a_place_for_each_beam_at_each_position_and_keeps_what_it_holds():
    slot = _Slot(uninitialized([1, 7 * LANES]), source_length=3, beam_size=5)
    assert len(slot._past) == len(slot._parents) == (3 + 16) * 5
    slot._past[:], slot._parents[:] = 0.5, 3
    assert slot.make_room(17) == 2  # positions 17 and 18
    assert slot.make_room(18) == 1
    assert len(slot._past) == 19 * 5
    assert slot.make_room(19) == 21  # 40 positions
    assert len(slot._past) == len(slot._parents) >= 20 * 5
    assert (slot._past[: 19 * 5] == 0.5).all()
    assert (slot._parents[: 19 * 5] == 3).all()


def test_sources_are_encoded_in_groups_of_about_512_tokens(make_model, monkeypatch):
    groups = []

    def encode(self, sources, *others):
        groups.append([len(source) for source in sources])
        return [uninitialized([1, 1])] * len(sources)

    monkeypatch.setattr(NativeWeights, "_encode", encode)
    weights = NativeEngine(make_model(**WIDTHS)).weights
    # 1,100 tokens need 3 groups: of tokens 0 to 366, 367 to 733 and the others, by where a sentence begins.
    weights.encode([[5] * length for length in (300, 300, 200, 100, 200)])
    assert groups == [[300, 300], [200], [100, 200]]


@pytest.mark.parametrize("positions", [slow("sinusoidal"), slow("rotary"), "learned", "relative"])
def test_long_translations_find_room_whatever_their_length(make_sharp_model, positions):
    model = make_sharp_model(**WIDTHS, positions=positions, output_bias=True)
    model.output_proj.bias[END] = -60.0  # an end that is never likely
    limits = [15, 16, 17, 32, 33, 65, 5]
    sources, config = draw(model.config, (5, 3, 7, 2, 11, 4, 13)), DecodeConfig(beam_size=3)
    found = find(NativeEngine(model), sources, limits, config, 2)
    assert [len(hypotheses[0].tokens) for hypotheses in found] == limits
    assert_same(found, find_plainly(model, sources, limits, config, 2))


@pytest.mark.parametrize("positions", [slow("sinusoidal"), "rotary", slow("relative")])
def test_positions_beyond_512_are_those_of_the_model(make_sharp_model, positions):
    model = make_sharp_model(**WIDTHS, positions=positions, output_bias=True, num_decoder_layers=1)
    model.output_proj.bias[END] = -60.0
    sources, config = draw(model.config, (601, 3)), DecodeConfig(beam_size=1, end_loops=False)
    found = find(NativeEngine(model), sources, [3, 521], config)
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [3, 521]
    assert_same(found, find_plainly(model, sources, [3, 521], config))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_source_may_be_much_longer_than_its_translation(make_sharp_model, beam_size):
    model = make_sharp_model(d_model=32, num_heads=2, d_ff=32)
    sources, config = draw(model.config, (1_801, 3)), DecodeConfig(beam_size=beam_size)
    found = find(NativeEngine(model), sources, [5, 7], config)
    assert_same(found, find_plainly(model, sources, [5, 7], config))


@pytest.mark.parametrize("vocab_size", [6, 37, 513])
@pytest.mark.parametrize("beam_size", [33, 64])
def test_beams_may_be_wide_and_wider_than_the_vocabulary(make_sharp_model, beam_size, vocab_size):
    model = make_sharp_model(**WIDTHS, vocab_size=vocab_size)
    sources, config = draw(model.config, (5, 2, 7)), DecodeConfig(beam_size=beam_size)
    found = find(NativeEngine(model), sources, [6, 1, 4], config, 5)
    assert_same(found, find_plainly(model, sources, [6, 1, 4], config, 5))


def test_learned_positions_are_used_to_the_last_and_none_beyond(make_sharp_model):
    model = make_sharp_model(**WIDTHS, positions="learned", max_positions=13, output_bias=True)
    model.output_proj.bias[END] = -60.0
    packed, config = NativeEngine(model), DecodeConfig(beam_size=2)
    sources = draw(model.config, (13, 3))
    assert_same(find(packed, sources, [13, 13], config), find_plainly(model, sources, [13, 13], config))
    with pytest.raises(ConfigError, match="a sequence of 14 tokens"):
        find(packed, sources, [13, 15], config)
    with pytest.raises(ConfigError, match="a sequence of 14 tokens"):
        packed.weights.encode(draw(model.config, (14,)))


def test_a_bias_may_forbid_most_of_the_vocabulary(make_sharp_model):
    model = make_sharp_model(**WIDTHS, vocab_size=1_025, eos_id=700, output_bias=True)
    model.output_proj.bias[:600] = model.output_proj.bias[1_000:] = float("-inf")
    sources, config = draw(model.config, LENGTHS), DecodeConfig(beam_size=3)
    assert_same(find(NativeEngine(model), sources, LIMITS, config, 2), find_plainly(model, sources, LIMITS, config, 2))


# The encoder


@pytest.mark.parametrize(
    "settings",
    [
        slow({}),
        slow({"norm": "pre", "positions": "rotary", "attention_bias": True}),
        {"source_vocab_size": 29, "tying": "none"},
        {"positions": "relative", "attention_scale": False},
    ],
    ids=described,
)
def test_memory_is_the_keys_and_values_of_the_model_for_any_lengths(make_model, settings):
    model = make_model(**{**WIDTHS, **settings})
    sources = draw(model.config, (1, 7, 601, 2, 33, 1, 498, 13, 511, 90))
    found = NativeEngine(model).weights.encode(sources)
    states, _ = model.encode(pad_batch(sources, model.config.pad_id))
    for row, source, ours in zip(states, sources, found, strict=True):
        parts = [
            projection(row[: len(source)])
            for layer in model.decoder.layers
            for projection in (layer.cross_attn.k_proj, layer.cross_attn.v_proj)
        ]
        ours = in_order(ours, source, model.config)
        torch.testing.assert_close(torch.from_numpy(ours), torch.cat(parts, dim=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("token", [-1, 29, 37, 2**31 + 5, 2**32 + 5])
def test_an_id_outside_the_source_vocabulary_is_refused(make_model, token):
    packed = NativeEngine(make_model(**WIDTHS, source_vocab_size=29, tying="none"))
    with pytest.raises(IndexError, match="not in the vocabulary of 29"):
        packed.weights.encode([[5, 7, 2], [5, token, 2]])


@pytest.mark.parametrize(
    "settings",
    [
        *({"positions": kind} for kind in ("sinusoidal", "sinusoidal_halves", "rotary", "relative", "none")),
        {"positions": "sinusoidal_t2t", "first_position": 2},
        {"positions": "learned", "max_positions": 700},
        {"positions": "relative", "relative_attention_num_buckets": 6, "relative_attention_max_distance": 5},
    ],
    ids=described,
)
@pytest.mark.parametrize("side", ["source", "target"])
def test_positions_have_the_bits_of_the_modules(make_model, settings, side):
    model = make_model(**WIDTHS, **settings)
    kept = NativeEngine(model).weights._make_tokens(f"{side}_embedding", 700)._kept
    embedding, stack = getattr(model, f"{side}_embedding"), model.encoder if side == "source" else model.decoder
    expected = {}
    if embedding.positions is not None:
        expected["positions"] = embedding.positions(0, 700)
    if (rotary := stack.layers[0].self_attn.rotary) is not None:
        expected["cos"], expected["sin"] = rotary.cos_and_sin(700)
    if stack.relative_positions is not None:
        expected["relative"] = stack.relative_positions.at(torch.arange(-699, 700)).T
    assert kept.keys() & {"positions", "cos", "sin", "relative"} == expected.keys()
    for name, table in expected.items():
        assert np.array_equal(kept[name], table.detach().numpy()), name


def test_tokens_are_prepared_once_for_all_searches_and_again_only_for_twice_as_many_positions(make_model, monkeypatch):
    packed, made = NativeEngine(make_model(**WIDTHS, output_bias=True)), []
    packed.model.output_proj.bias[END] = -60.0
    make = NativeWeights._make_tokens
    monkeypatch.setattr(NativeWeights, "_make_tokens", lambda *given: made.append(given[-1]) or make(*given))
    config = DecodeConfig(beam_size=1, end_loops=False)
    for limit in (5, 9, 3, 120):
        find(packed, [[5, 7, END]], [limit], config)
    assert made == [128, 128]  # of the source and of the target
    for limit in (200, 257, 500):
        find(packed, [[5, 7, END]], [limit], config)
    assert made == [128, 128, 258, 518]


def test_a_stored_model_and_its_module_give_the_same_bits(make_model):
    model = make_model(**WIDTHS)
    stored = StoredModel(model.config, {name: w.detach().numpy().copy() for name, w in model.named_parameters()})
    sources, options = draw(model.config, LENGTHS), SearchOptions(DecodeConfig(beam_size=3, extra_length=5))
    assert isinstance(make_engine(stored), NativeEngine)
    assert decode(stored, sources, options) == decode(model, sources, options)
    targets = [[5, 7, 2]] * len(sources)
    assert score(stored, sources, targets, batch_tokens=64) == score(model, sources, targets, batch_tokens=64)


# To the last bit


@pytest.mark.parametrize(("beam_size", "num_best"), [slow(1, 1), (5, 3)])
@pytest.mark.parametrize("precision", ["fp32", *ROUNDED])
def test_neither_order_nor_neighbours_change_a_bit(make_sharp_model, precision, beam_size, num_best):
    packed = NativeEngine(make_sharp_model(**WIDTHS_IN_8_BITS, vocab_size=613, output_bias=True), precision)
    sources = draw(packed.model.config, LENGTHS)
    config = DecodeConfig(beam_size=beam_size)
    alone = [
        find(packed, [source], [limit], config, num_best)[0] for source, limit in zip(sources, LIMITS, strict=True)
    ]
    order = list(range(len(sources))) * 3
    for batch_tokens in (1, 29 * beam_size * 2, 1_000_000):
        config = config.model_copy(update={"batch_tokens": batch_tokens})
        assert find(packed, sources, LIMITS, config, num_best) == alone
        random.Random(batch_tokens).shuffle(order)
        found = find(packed, [sources[at] for at in order], [LIMITS[at] for at in order], config, num_best)
        assert found == [alone[at] for at in order]


@pytest.mark.parametrize("precision", ["fp32", *ROUNDED])
def test_memory_is_the_same_to_the_last_bit_whatever_its_neighbours(make_model, precision):
    packed = NativeEngine(make_model(**WIDTHS_IN_8_BITS), precision)
    sources = draw(packed.model.config, (17, 1, 5, 33, 16, 2, 90))

    def encode(sources):
        memories = packed.weights.encode(sources)
        return [in_order(*pair, packed.model.config) for pair in zip(memories, sources, strict=True)]

    together = encode(sources)
    for number, source in enumerate(sources):
        np.testing.assert_array_equal(encode([source])[0], together[number])
    for ours, theirs in zip(encode(sources[::-1]), together[::-1], strict=True):
        np.testing.assert_array_equal(ours, theirs)


# Scoring


# A third that the search above leaves to the slow run.
@pytest.mark.parametrize("settings", one_in(3, CASES, first=1), ids=described)
def test_a_score_is_to_the_last_bit_what_the_search_added_up(make_sharp_model, settings):
    model = make_sharp_model(**{**WIDTHS, **settings})
    compiled = NativeEngine(model)
    sources = draw(model.config, LENGTHS)
    for beam_size, num_best in ((1, 1), (4, 3)):
        found = find(compiled, sources, LIMITS, DecodeConfig(beam_size=beam_size), num_best)
        pairs = [(source, list(h.tokens)) for source, group in zip(sources, found, strict=True) for h in group]
        together = compiled.score(*zip(*pairs, strict=True))
        assert together == log_probs(found)
        assert [compiled.score([source], [target])[0] for source, target in pairs] == together


def test_neither_threads_nor_batches_nor_order_change_a_bit_of_a_score(make_sharp_model):
    compiled = NativeEngine(make_sharp_model(**WIDTHS, vocab_size=1_025))
    lengths = [random.Random(3).randint(1, 90) for _ in range(60)]
    sources, targets = draw(compiled.model.config, lengths), draw(compiled.model.config, lengths[::-1])
    expected = [compiled.score([source], [target])[0] for source, target in zip(sources, targets, strict=True)]
    try:
        for num_threads, batch_tokens, seed in ((1, 10_000, 1), (2, 1, 2), (3, 97, 3), (4, 10_000, 4)):
            torch.set_num_threads(num_threads)
            order = random.Random(seed).sample(range(60), 60)
            done = []
            found = score(
                compiled,
                [sources[i] for i in order],
                [targets[i] for i in order],
                batch_tokens=batch_tokens,
                on_progress=done.append,
            )
            assert found == [expected[i] for i in order]
            assert sum(done) == 60
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("sources", "targets"),
    [([[4, 2]], [[5, 2]] * 40), ([[4, 2]] * 2, [[5, 2]]), ([[], [4, 2]], [[5, 2]] * 2), ([[4, 2]] * 2, [[], [5, 2]])],
)
def test_score_rejects_unpaired_or_empty_sources_and_targets(make_model, sources, targets):
    with pytest.raises(ValueError, match="every target needs a source, and each of them its end token"):
        NativeEngine(make_model(**WIDTHS)).score(sources, targets)


def test_scoring_uses_no_more_threads_than_a_translation_may(make_sharp_model, monkeypatch):
    compiled = NativeEngine(make_sharp_model(**WIDTHS))
    sources = draw(compiled.model.config, [5] * 9)
    score_here, threads = compiled.score, set()

    def noting(some_sources, targets):
        threads.add(threading.get_ident())
        return score_here(some_sources, targets)

    monkeypatch.setattr(compiled, "score", noting)
    monkeypatch.setattr("clearhead.decoding.native.engine.num_threads", lambda: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    score(compiled, sources, sources, batch_tokens=1)
    assert threads == {threading.get_ident()}


def test_targets_longer_than_any_position_so_far_are_scored(make_sharp_model):
    for positions in ("sinusoidal", "rotary", "relative"):
        model = make_sharp_model(**WIDTHS, positions=positions)
        sources, targets = draw(model.config, (3, 700)), draw(model.config, (1_100, 2))
        expected = token_log_probs(model, sources, targets).sum(dim=1).tolist()
        assert NativeEngine(model).score(sources, targets) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("token", [-1, 37, 2**31 + 5, 2**32 + 5])
def test_an_id_outside_the_target_vocabulary_is_refused(make_model, token):
    compiled = NativeEngine(make_model(**WIDTHS))
    with pytest.raises(IndexError, match="a target id is not in the vocabulary of 37"):
        compiled.score([[5, 7, END], [5, END]], [[5, 7, END], [11, token, END]])


# Attention


@pytest.mark.parametrize("settings", one_in(3, CASES, first=2), ids=described)
def test_attention_is_that_of_the_module(make_model, settings):
    model = make_model(**{**WIDTHS, **settings})
    compiled, exact = NativeEngine(model), deepcopy(model).double()
    of_targets = model.config.model_copy(update={"source_vocab_size": None})
    sources, targets = draw(model.config, LENGTHS), draw(of_targets, LENGTHS[::-1])
    for source, target, cross in zip(sources, targets, compiled.cross_attention(sources, targets), strict=True):
        start = torch.tensor([[model.config.bos_id, *target[:-1]]])
        weights = exact.attention_weights(torch.tensor([source]), start)
        expected = [torch.cat(layers).numpy() for layers in (weights.encoder, weights.decoder, weights.cross)]
        for found, own in zip(compiled.attention(source, target), expected, strict=True):
            np.testing.assert_allclose(found, own, rtol=0, atol=1e-5)
        np.testing.assert_allclose(cross, expected[2], rtol=0, atol=1e-5)
        # The same bits in a batch as alone.
        np.testing.assert_array_equal(cross, compiled.attention(source, target)[2])


def test_cross_attention_is_the_softmax_of_scaled_dot_products(make_model):
    model = make_model(**WIDTHS, norm="pre", num_encoder_layers=1, num_decoder_layers=1, attention_bias=True)
    layer = model.decoder.layers[0]
    for weight in layer.self_attn.out_proj.parameters():  # so that the embedded tokens come to cross-attention
        weight.zero_()
    source, target = [5, 7, 11, 7, END], [13, 17, END]
    start = torch.tensor([[model.config.bos_id, 13, 17]])
    hidden = model.hidden_states(torch.tensor([source]), start)
    x, memory = hidden.decoder[0][0].numpy(), hidden.encoder[-1][0].numpy()
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    (norm_weight, norm_bias), (q_weight, q_bias), (k_weight, k_bias) = (
        [part.weight.numpy(), part.bias.numpy()]
        for part in (layer.cross_attn_residual.norm, layer.cross_attn.q_proj, layer.cross_attn.k_proj)
    )
    q, k = (x * norm_weight + norm_bias) @ q_weight.T + q_bias, memory @ k_weight.T + k_bias
    for head, found in enumerate(NativeEngine(model).cross_attention([source], [target])[0][0]):
        own = slice(16 * head, 16 * head + 16)
        weights = np.exp(q[:, own] @ k[:, own].T / 4)  # the root of d_k
        np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "pre"},
        {"norm": "post", "attention_bias": True},
        {"positions": "rotary", "norm": "pre"},
        {"output_scale": True, "final_norm": True, "d_k": 32, "d_v": 16},
    ],
    ids=described,
)
def test_states_queries_keys_and_values_are_those_of_the_model(make_model, settings):
    model = make_model(**{**WIDTHS, "num_encoder_layers": 2, "num_decoder_layers": 3, **settings})
    config, source, target = model.config, [5, 7, 11, 7, END], [13, 17, 19, END]
    ran = ModelPass(model, torch.tensor([source]), torch.tensor([[config.bos_id, *target[:-1]]]), tuple(target))
    hidden, keys, values = HiddenStates(), config.num_heads * config.key_dim, config.num_heads * config.value_dim
    ran.run(Recorder(hidden=hidden))

    def empty(layers, rows, width):
        return np.empty((layers, rows, width), dtype=np.float32)

    sides = {
        "encoder": (empty(3, 5, config.d_model), empty(2, 5, 2 * keys + values)),
        "decoder": (empty(4, 4, config.d_model), empty(3, 4, 2 * keys + values)),
    }
    queries, record = empty(3, 4, keys), STRUCTS["Record"]
    of_encoder, of_decoder = (record().point(states=states, qkv=qkv) for states, qkv in sides.values())
    NativeEngine(model)._compute(
        [source], [target], record=of_decoder.point(queries=queries), encoder_record=of_encoder
    )
    for side, (states, qkv) in sides.items():
        expected = numbers(hidden.encoder if side == "encoder" else hidden.decoder)
        np.testing.assert_allclose(states, expected, rtol=0, atol=2e-5)
        for found, own in zip(qkv, projections(attentions(model, side), ran.run), strict=True):
            parts = (own.queries, own.keys, own.values)
            rows = np.concatenate([part.swapaxes(0, 1).reshape(len(found), -1) for part in parts], axis=1)
            np.testing.assert_allclose(found, rows, rtol=0, atol=2e-5)
    for found, own in zip(queries, projections(attentions(model, "cross"), ran.run), strict=True):
        np.testing.assert_allclose(found, own.queries.swapaxes(0, 1).reshape(len(found), -1), rtol=0, atol=2e-5)


def test_recorded_attention_beyond_source_and_target_length_stays_zero(make_model):
    compiled = NativeEngine(make_model(**WIDTHS, num_decoder_layers=2))
    sources, targets = draw(compiled.model.config, (3, 5)), draw(compiled.model.config, (7, 2))
    own, cross = np.full((2, 2, 2, 9, 7), 0.0, dtype=np.float32)  # [layer][head][row][longest]
    compiled._compute(sources, targets, record=STRUCTS["Record"]().point(self_attn=own, cross_attn=cross))
    for row, (length, source) in enumerate([*((place, 3) for place in range(1, 8)), (1, 5), (2, 5)]):
        for weights, size in ((own[:, :, row], length), (cross[:, :, row], source)):
            assert (weights[..., size:] == 0.0).all()
            assert (weights[..., :size] > 0.0).all()
            np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("sources", "targets"), [([[4, 2]], [[5, 2]] * 2), ([[]], [[5, 2]]), ([[4, 2]], [[]]), ([[4, 2]] * 2, [[5, 2]])]
)
def test_cross_attention_rejects_unpaired_or_endless_sources_and_targets(make_model, sources, targets):
    with pytest.raises(ValueError, match="every target needs a source, and each of them its end token"):
        NativeEngine(make_model(**WIDTHS)).cross_attention(sources, targets)


# Rounded forms


@pytest.mark.parametrize(
    ("precision", "bound"),
    [  # Measured: largest differences of 3.9e-5, 0.020 and 0.063.
        ("bf16x3", 1e-4),
        ("bf16", 5e-2),
        ("int8", 1.5e-1),
    ],
)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_rounded_memory_is_close_and_no_closer(make_model, precision, bound, norm):
    model = make_model(**WIDTHS_IN_8_BITS, norm=norm, attention_bias=True)
    sources = draw(model.config, (17, 1, 5, 33))
    exact, rounded = (NativeEngine(model, form).weights.encode(sources) for form in ("fp32", precision))
    pairs = zip(rounded, exact, sources, strict=True)
    error = max(
        abs(in_order(a, source, model.config) - in_order(b, source, model.config)).max() for a, b, source in pairs
    )
    assert bound / 10 < error < bound


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("settings", [{}, {"norm": "post", "attention_bias": True}], ids=described)
def test_sums_of_two_bfloat16_give_the_translations_of_float32(make_sharp_model, settings, beam_size):
    model = make_sharp_model(**{**WIDTHS, "output_bias": True, "vocab_size": 613, **settings})
    sources, config = draw(model.config, LENGTHS), DecodeConfig(beam_size=beam_size)
    exact = find(NativeEngine(model), sources, LIMITS, config, beam_size)
    rounded = find(NativeEngine(model, "bf16x3"), sources, LIMITS, config, beam_size)
    assert tokens(rounded) == tokens(exact)
    # Such models enlarge every error. Measured: 2.1e-3; and 0.02 to 1.4 without the second bfloat16.
    assert log_probs(rounded) == pytest.approx(log_probs(exact), abs=8e-3, rel=0)


@pytest.mark.parametrize(
    ("precision", "bound"),
    [  # Measured: largest differences of 5.7e-5, 0.043 and 0.15.
        ("bf16x3", 2e-4),
        ("bf16", 1e-1),
        ("int8", 3e-1),
    ],
)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_scores_of_rounded_forms_are_nearly_the_models_own(make_model, precision, bound, norm):
    model = make_model(**WIDTHS_IN_8_BITS, norm=norm, output_bias=True, attention_bias=True)
    model.output_proj.bias[END] = -9.0
    sources, limits = draw(model.config, LENGTHS), [11] * len(LENGTHS)
    found = find(NativeEngine(model, precision), sources, limits, DecodeConfig(beam_size=3), 3)
    error = max(abs(a - b) for a, b in zip(log_probs(found), own_scores(model, sources, found), strict=True))
    assert bound / 20 < error < bound


# The shortlist


def split_between(vocab_size, num_common):
    """Return a shortlist of all tokens, the first of them common and the rest in every row."""
    allowed = [END, *range(3, vocab_size)]
    rows = np.array([allowed[num_common:]] * vocab_size, dtype=np.int32)
    return Shortlist(np.array(allowed[:num_common], dtype=np.int32), rows)


def sparse(vocab_size, num_common, width):
    """Return a shortlist of other tokens, and other numbers of them, for every source token, and none for some."""
    random = np.random.default_rng(11)
    rows = random.integers(3, vocab_size, (vocab_size, width), dtype=np.int32)
    rows[random.random(rows.shape) < 0.3] = -1
    rows[::3] = rows[END] = -1
    common = np.array([END, *random.permutation(vocab_size - 3)[: num_common - 1] + 3], dtype=np.int32)
    rows[np.isin(rows, common) | (rows == 5)] = -1  # in a test 5 is padding
    return Shortlist(common, rows)


@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), (4, 3)])
@pytest.mark.parametrize(
    ("vocab_size", "num_common"),
    [(37, 1), slow(37, 13), slow(37, 35), (1025, 1), slow(1025, 509), (1025, 510), slow(1025, 1000)],
)
def test_a_shortlist_that_allows_everything_changes_nothing(
    make_sharp_model, beam_size, num_best, vocab_size, num_common
):
    packed = NativeEngine(make_sharp_model(**WIDTHS, vocab_size=vocab_size, output_bias=True))
    sources, config = draw(packed.model.config, LENGTHS), DecodeConfig(beam_size=beam_size)
    found = find(packed, sources, LIMITS, config, num_best, split_between(vocab_size, num_common))
    assert_same(found, find(packed, sources, LIMITS, config, num_best))


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(
    ("vocab_size", "num_common", "width", "settings"),
    [
        slow(37, 1, 1, {"output_bias": True}),
        slow(37, 2, 4, {}),
        (37, 30, 9, {"bos_id": 2, "output_bias": True}),
        (37, 5, 3, {"pad_id": 5}),
        slow(613, 2, 200, {"output_bias": True}),
        slow(613, 33, 31, {}),
        (1025, 600, 17, {"output_bias": True}),
        (1025, 513, 300, {}),
    ],
)
def test_native_search_with_a_shortlist_equals_pytorch_search(
    make_sharp_model, beam_size, vocab_size, num_common, width, settings
):
    model = make_sharp_model(**WIDTHS, vocab_size=vocab_size, **settings)
    shortlist = sparse(vocab_size, num_common, width)
    sources = [*draw(model.config, LENGTHS), [3, 6, 9, END], [4, END]]
    if settings.get("pad_id") == 5:
        sources = [[token for token in source if token != 5] for source in sources]
    limits = [*LIMITS, 7, 5]
    config = DecodeConfig(beam_size=beam_size, batch_tokens=60)
    assert not len(shortlist.own_tokens(sources[-2]))
    found = find(NativeEngine(model), sources, limits, config, beam_size, shortlist)
    assert_same(found, find(PyTorchEngine(model), sources, limits, config, beam_size, shortlist))


@pytest.mark.parametrize("precision", ["fp32", *ROUNDED])
def test_a_shortlist_leaves_every_sentence_as_it_is_alone(make_sharp_model, precision):
    packed = NativeEngine(make_sharp_model(**WIDTHS_IN_8_BITS, vocab_size=613, output_bias=True), precision)
    sources, config, shortlist = draw(packed.model.config, LENGTHS), DecodeConfig(batch_tokens=60), sparse(613, 40, 9)
    alone = [find(packed, [s], [limit], config, 1, shortlist)[0] for s, limit in zip(sources, LIMITS, strict=True)]
    assert find(packed, sources, LIMITS, config, 1, shortlist) == alone
    assert find(packed, sources[::-1], LIMITS[::-1], config, 1, shortlist) == alone[::-1]
    for source, hypotheses in zip(sources, alone, strict=True):
        allowed = {*shortlist.common.tolist(), *shortlist.own_tokens(source).tolist()}
        assert allowed.issuperset(hypotheses[0].tokens)


# What it supports, and what takes its place


@pytest.fixture
def without_core(monkeypatch):
    """Return a function that takes the core away until the test ends."""

    def forget():
        for function in (library, library_module._load, form):
            function.cache_clear()

    with monkeypatch.context() as patch:

        def use():
            patch.setattr(library_module, "_record", lambda: Path("no core"))
            forget()

        yield use
    forget()


@pytest.mark.parametrize(
    "settings",
    [
        {"d_model": 48},
        {"d_ff": 80},
        {"num_heads": 4, "d_k": 8, "d_v": 16},
        {"num_heads": 4, "d_k": 16, "d_v": 8},
        {"num_heads": 3, "d_k": 16, "d_v": 16},
        {"num_heads": 1, "d_k": 16, "d_v": 32},
        {"d_model": 26, "num_heads": 13, "d_k": None, "d_v": None, "d_ff": 19},
    ],
    ids=described,
)
def test_models_too_wide_for_the_core_get_the_pytorch_engine(make_sharp_model, settings):
    model = make_sharp_model(**{**WIDTHS, **settings})
    assert not NativeEngine.supports(model, "fp32")
    packed, sources, config = make_engine(model), draw(model.config, LENGTHS), DecodeConfig(beam_size=3)
    assert isinstance(packed, PyTorchEngine)
    assert_same(find(packed, sources, LIMITS, config), find_plainly(model, sources, LIMITS, config))


def test_supports_float32_encoder_decoder_models_on_the_cpu_only(make_model):
    model = make_model(**WIDTHS)
    assert NativeEngine.supports(model, "fp32")
    assert isinstance(make_engine(model), NativeEngine)
    assert not NativeEngine.supports(make_model(**WIDTHS).double(), "fp32")
    assert not NativeEngine.supports(make_model(**WIDTHS).bfloat16(), "fp32")
    assert not NativeEngine.supports(make_model(**WIDTHS).to("meta"), "fp32")
    assert not NativeEngine.supports(make_model(**WIDTHS, num_encoder_layers=0), "fp32")
    assert not NativeEngine.supports(make_model(**WIDTHS, num_decoder_layers=0), "fp32")


@pytest.mark.parametrize("settings", [{"d_model": 96}, {"d_ff": 96}, {"d_v": 48}], ids=described)
def test_8_bits_take_wider_blocks(make_model, settings):
    assert NativeEngine.supports(make_model(**WIDTHS_IN_8_BITS), "int8")
    model = make_model(**{**WIDTHS_IN_8_BITS, **settings})
    assert not NativeEngine.supports(model, "int8")
    assert NativeEngine.supports(model, "bf16x3")
    assert isinstance(make_engine(model, "int8"), PyTorchEngine)


def test_without_the_compiled_core_pytorch_finds_the_same_hypotheses(make_sharp_model, without_core):
    model = make_sharp_model(**WIDTHS)
    sources, options = draw(model.config, LENGTHS), SearchOptions(DecodeConfig(beam_size=3, extra_length=5), num_best=3)
    found = decode(model, sources, options)
    without_core()
    assert not NativeEngine.supports(model, "fp32")
    assert isinstance(make_engine(model), PyTorchEngine)
    assert_same(decode(model, sources, options), found)


def test_bf16x3_without_the_compiled_core_is_rejected_with_advice(make_model, without_core):
    model, odd = make_model(**WIDTHS), make_model()
    advice = r"bf16x3 translation needs the compiled core .*; use --precision fp32"
    options = SearchOptions(DecodeConfig(precision="bf16x3"))
    with pytest.raises(DeviceError, match=advice):
        decode(odd, [[5, 2]], options)
    without_core()
    with pytest.raises(DeviceError, match=advice):
        decode(model, [[5, 2]], options)


# Weights and memory


def test_packing_leaves_the_model_as_it_was():
    with torch.inference_mode(False):
        model = Transformer(tiny(vocab_size=37)).eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    find(NativeEngine(model), [[5, 7, 2]], [5], DecodeConfig())
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
    with torch.inference_mode(False):
        model(torch.tensor([[3, 5, 2]]), torch.tensor([[1, 7]])).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("name", ["source_embedding.weight", "source_embedding.positions.weight"])
def test_weights_may_lie_in_memory_in_any_order(make_sharp_model, name):
    model = make_sharp_model(**WIDTHS, positions="learned", max_positions=31)
    sources, config = draw(model.config, LENGTHS), DecodeConfig(beam_size=3)
    expected = find_plainly(model, sources, LIMITS, config)
    weight = model.get_parameter(name)
    weight.data = weight.data.t().contiguous().t()
    assert_same(find(make_engine(model), sources, LIMITS, config), expected)


def test_slots_spent_adds_up_the_time_of_each_part(make_model):
    packed = NativeEngine(make_model(**WIDTHS))
    slots = packed.slots(1, 9)
    slots.enter(slots.encode(sentences_of(draw(packed.model.config, (7,)), [9])))
    slots.spent = np.zeros(5)
    list(slots.step([Beams([0.0], [1], [0], [None], 0)]))
    once = slots.spent.copy()
    assert (once > 0.0).all()
    list(slots.step([Beams([0.0], [5], [0], [None], 1)]))
    assert (slots.spent > once).all()


@pytest.mark.parametrize("shape", [[2**60], [2**40, 2**40]])
def test_uninitialized_raises_memory_error_for_impossible_shapes(shape):
    with pytest.raises(MemoryError):
        uninitialized(shape)


@pytest.mark.parametrize("num_sentences", [1, 3])
def test_memory_errors_of_the_native_engine_advise_fewer_batch_tokens(make_model, num_sentences):
    model = make_model(**WIDTHS)
    before = torch.get_num_threads()
    # No setting can be so large; a memory as small as that is hard to come by.
    options = SearchOptions(DecodeConfig(batch_tokens=40).model_copy(update={"beam_size": 10**13}))
    torch.set_num_threads(2)
    try:
        with pytest.raises(DeviceError, match=r"ran out of memory; lower decode.batch_tokens \(40\)"):
            decode(model, draw(model.config, (5,) * num_sentences), options)
    finally:
        torch.set_num_threads(before)


def test_a_shortlist_is_packed_once_for_all_threads_and_calls(make_model):
    packed = NativeEngine(make_model(**WIDTHS))
    first, second = (Shortlist(np.arange(9, dtype=np.int32), np.full((37, 2), -1, dtype=np.int32)) for _ in range(2))
    products = packed._listed_products(first)
    assert packed._listed_products(first) is products
    assert packed._listed_products(second).shortlist is second


def test_a_thread_gets_the_products_of_its_own_shortlist_whatever_another_packs_meanwhile(make_model, monkeypatch):
    packed = NativeEngine(make_model(**WIDTHS))
    own, others = (Shortlist(np.arange(9, dtype=np.int32), np.full((37, 2), -1, dtype=np.int32)) for _ in range(2))
    of_others = packed._listed_products(others)
    # As if another thread came after every line.
    monkeypatch.setattr(NativeEngine, "_listed", property(lambda self: of_others, lambda self, made: None), False)
    assert packed._listed_products(own).shortlist is own

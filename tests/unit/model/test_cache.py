"""Step-by-step decoding with a cache gives what decoding at once gives."""

from __future__ import annotations

import pytest
import torch

from clearhead.model import AttentionWeights, Recorder
from clearhead.model.cache import DecoderCache, LayerCache

both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def step_by_step(model, target, memory, mask):
    cache, logits = None, []
    for position in range(target.size(1)):
        newest, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
        assert cache.length == position + 1
        logits.append(newest)
    return torch.cat(logits, dim=1)


@both_norms
def test_cached_decoding_equals_uncached(encoded, norm):
    model, target, memory, mask = encoded((7, 7, 5), norm=norm)
    assert_same(step_by_step(model, target, memory, mask), model.decode(target, memory, mask)[0])


@both_norms
def test_decode_continues_a_cached_prefix_token_by_token(encoded, norm):
    model, target, memory, mask = encoded((7, 7, 7), norm=norm)
    expected, _ = model.decode(target, memory, mask)
    _, cache = model.decode(target[:, :4], memory, mask)
    for position in range(4, 7):
        newest, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
        assert_same(newest[:, 0], expected[:, position])


@both_norms
def test_several_rows_a_sentence_equal_repeating_the_memory(encoded, norm):
    beams = 5
    model, target, memory, mask = encoded((7,) * 3 * beams, norm=norm)
    repeated = memory.repeat_interleave(beams, dim=0), mask.repeat_interleave(beams, dim=0)
    expected, _ = model.decode(target, *repeated)
    assert expected.shape == (15, 7, 37)
    assert_same(model.decode(target, memory, mask)[0], expected)
    assert_same(step_by_step(model, target, memory, mask), expected)


def test_select_continues_the_chosen_pasts(encoded):
    model, target, memory, mask = encoded((7,) * 6)  # two beams of each sentence
    rows = torch.tensor([1, 0, 2, 2, 5, 5])  # within each sentence: swapped, doubled, doubled
    cache = None
    for position in range(4):
        _, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
    cache.select(rows)
    newest, cache = model.decode(target[:, 4:5], memory, mask, cache)

    histories = torch.cat([target[rows, :4], target[:, 4:5]], dim=1)
    expected, _ = model.decode(histories, memory.repeat_interleave(2, 0), mask.repeat_interleave(2, 0))
    assert_same(newest[:, 0], expected[:, -1])
    assert cache.length == 5


def test_select_drops_finished_sentences(encoded):
    model, target, memory, mask = encoded((7,) * 6)  # two beams of each sentence
    cache = None
    for position in range(3):
        _, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
    rows, sentences = torch.tensor([5, 4, 1, 1]), torch.tensor([2, 0])  # the middle one is done, the others swap
    cache.select(rows, sentences)
    new_tokens = target[[0, 1, 2, 3], 3:4]
    newest, _ = model.decode(new_tokens, memory[sentences], mask[sentences], cache)

    repeated = sentences.repeat_interleave(2)
    expected, _ = model.decode(torch.cat([target[rows, :3], new_tokens], dim=1), memory[repeated], mask[repeated])
    assert_same(newest[:, 0], expected[:, -1])


def test_select_may_change_the_number_of_beams(encoded, make_batch):
    model, target, memory, mask = encoded((7, 7, 7))
    _, cache = model.decode(target[:, :1], memory, mask)  # one row a sentence at first
    rows = torch.arange(3).repeat_interleave(5)
    cache.select(rows)
    _, new_tokens = make_batch(model.config, target=(2,) * 15)
    newest, _ = model.decode(new_tokens[:, 1:], memory, mask, cache)
    expected, _ = model.decode(torch.cat([target[rows, :1], new_tokens[:, 1:]], 1), memory[rows], mask[rows])
    assert_same(newest[:, 0], expected[:, -1])


def test_the_memory_is_projected_once_and_kept_a_row_a_sentence(encoded):
    model, target, memory, mask = encoded((7,) * 15)
    calls = []
    for layer in model.decoder.layers:
        layer.cross_attn.k_proj.register_forward_hook(lambda *_: calls.append(1))
    cache = None
    for position in range(7):
        _, cache = model.decode(target[:, position : position + 1], memory, mask, cache)
    assert len(calls) == 2
    assert [tuple(layer.memory[0].shape) for layer in cache.layers] == [(3, 13, 11, 2)] * 2
    assert [tuple(layer.past[1].shape) for layer in cache.layers] == [(15, 13, 7, 2)] * 2


def test_several_positions_after_cached_ones_are_refused(make_model, make_batch):
    model = make_model()
    source, target = make_batch(model.config)
    memory, mask = model.encode(source)
    _, cache = model.decode(target[:, :3], memory, mask)
    with pytest.raises(ValueError, match="after 3 cached positions, give one new position, not 2"):
        model.decode(target[:, 3:5], memory, mask, cache)


def test_a_decoder_layer_without_its_memory_is_refused(make_model):
    model = make_model()
    with pytest.raises(ValueError, match="a decoder with cross-attention needs a memory"):
        model.decoder(torch.zeros(2, 3, model.config.d_model))


def test_an_empty_cache_has_a_place_for_each_layer_and_shares_none():
    cache = DecoderCache.empty(5)
    assert cache.length == 0
    assert cache.layers == [LayerCache()] * 5
    assert len({id(layer) for layer in cache.layers}) == 5
    cache.select(torch.tensor([0]), torch.tensor([0]))  # nothing to reorder yet
    assert cache.layers == [LayerCache()] * 5


def test_a_pass_without_a_next_step_keeps_no_cache(make_model, make_batch, monkeypatch):
    model = make_model()
    source, target = make_batch(model.config)
    expected, _ = model.decode(target, *model.encode(source))
    monkeypatch.setattr(LayerCache, "extend", None)  # not even for the layers' own use
    assert model(source, target).equal(expected)
    assert [len(layers) for layers in vars(model.attention_weights(source, target)).values()] == [3, 2, 2]


def test_weights_of_every_step_are_those_of_the_whole_pass(make_model, make_batch):
    model = make_model().double()
    source, target = make_batch(model.config)
    expected = model.attention_weights(source, target)
    weights = AttentionWeights()
    memory, mask = model.encode(source, recorder=Recorder(weights))
    assert all(found.equal(seen) for found, seen in zip(weights.encoder, expected.encoder, strict=True))
    cache = DecoderCache.empty(2)
    for position in range(target.size(1)):
        step = AttentionWeights()
        model.states(target[:, position : position + 1], memory, mask, cache, Recorder(step))
        for found, whole in zip(step.decoder, expected.decoder, strict=True):
            assert_same(found[:, :, 0], whole[:, :, position, : position + 1])
        for found, whole in zip(step.cross, expected.cross, strict=True):
            assert_same(found[:, :, 0], whole[:, :, position])

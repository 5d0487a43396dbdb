"""The search that stays on the device finds what the readable searches find, and never waits for the device."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from dataclasses import fields

import numpy as np
import pytest
import torch
from searches import WIDTHS, assert_same, find, find_plainly, sample, tokens
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import NO_PREFIX, Ensemble, Prefix, PyTorchEngine, SearchOptions, Shortlist, decode, make_engine
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.pytorch import weights
from clearhead.decoding.pytorch.candidates import ListMasks
from clearhead.decoding.pytorch.device_beams import DeviceBeams
from clearhead.decoding.pytorch.device_state import rounded
from clearhead.decoding.pytorch.module_engine import ModuleEngine
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.pytorch.weights import PackedModel
from clearhead.decoding.scheduler import search
from clearhead.decoding.sentence import given_prefix
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.decoding.utf8 import CharacterParts
from clearhead.errors import DeviceError, ModelError
from every_run import one_in, slow

pytestmark = pytest.mark.usefixtures("inference")

END = 2
PARTS = {3: b"\xe2", 4: b"\x82", 5: b"\xac", 6: b"\xc3", 7: b"\xa9"}


class DeviceEngine(PyTorchEngine):
    """The engine as on a GPU, on any device."""

    def __init__(self, model, precision="fp32"):
        super().__init__(model, precision)
        self._stays_on_device = True


# A row for every distance, because distances that share one make periodic texts equally likely.
POSITIONS = {
    "sinusoidal": {},
    "none": {},
    "learned": {"max_positions": 150},
    "rotary": {"d_k": 4},
    "relative": {"relative_attention_num_buckets": 160, "relative_attention_max_distance": 90},
}


def drawn_model(draw, make_model, *, num_words, num_placeholders):
    positions = draw.choice(sorted(POSITIONS.keys() - {"none"}))  # without any, permuted words are equally likely
    sizes = {"num_encoder_layers": draw.choice([0, 1, 1, 1]), "num_decoder_layers": draw.randint(1, 2)}
    if num_placeholders:
        sizes |= {"num_encoder_layers": 1, "num_placeholders": num_placeholders}
    kind = {"norm": draw.choice(["pre", "post"]), "positions": positions, **POSITIONS[positions]}
    model = make_model(vocab_size=num_words + num_placeholders, output_bias=True, **sizes, **kind)
    scale = draw.choice([1.5, 2.0, 3.0])
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.mul_(scale)
    model.output_proj.bias[END] = draw.choice([-9.0, 0.0, 1.0, 3.0])
    model.output_proj.bias[[*PARTS]] = 2.0
    return model


def drawn_prefix(draw, words):
    """Return tokens without cost, and text whose tokens may have others in their place."""
    text = tuple(draw.choices(words, k=draw.choice([0, 0, 1, 3])))
    completions = tuple((token, *draw.sample(words, k=draw.randint(0, 2))) for token in text)
    return given_prefix(tuple(draw.choices(words, k=draw.randint(0, 2))), Prefix(text, completions))


def drawn_source(draw, words, signs):
    ids = draw.choices(words, k=draw.randint(0, 9))
    ids = ids[:2] * draw.randint(1, 5) if draw.random() < 0.2 else ids
    return [*ids, *draw.choices(signs, k=draw.randint(1, 3) if signs and draw.random() < 0.3 else 0), END]


def drawn_task(draw, make_model, most_sources, lengths):
    """Return a model, its words and placeholders, and sources with prefixes and limits."""
    num_words, num_placeholders = draw.choice([12, 33, 70]), draw.choice([0, 0, 32])
    model = drawn_model(draw, make_model, num_words=num_words, num_placeholders=num_placeholders)
    words, signs = range(8, num_words), range(num_words, num_words + num_placeholders)
    sources = [drawn_source(draw, words, signs) for _ in range(draw.randint(1, most_sources))]
    share = draw.choice([0.0, 0.0, 0.5, 1.0])
    prefixes = [drawn_prefix(draw, words) if draw.random() < share else NO_PREFIX for _ in sources]
    limits = [len(prefix.tokens) + draw.choice(lengths) for prefix in prefixes]
    return model, words, signs, sources, prefixes, limits


@pytest.mark.parametrize("seed", one_in(20, range(20)))
def test_device_search_equals_the_readable_searches(make_model, seed):
    draw, seen = random.Random(seed), Counter()
    torch.manual_seed(seed)
    for _ in range(25):
        model, _, signs, sources, prefixes, limits = drawn_task(draw, make_model, 7, [1, 2, 7, 30, 60])
        beam_size = draw.choice([1, 2, 5])
        config = DecodeConfig(
            beam_size=beam_size,
            length_penalty=draw.choice([0.0, 0.6, 1.0, 2.5]),
            length_penalty_form=draw.choice(["gnmt", "power"]),
            end_loops=draw.random() < 0.8,
            min_length=draw.choice([0, 0, 3, 40]),
            no_repeat_ngram_size=draw.choice([0, 0, 0, 1, 2, 3]),
            batch_tokens=draw.choice([1, 40 * beam_size, 100_000]),
        )
        options = SearchOptions(config, num_best=draw.randint(1, beam_size))
        parts = CharacterParts(PARTS, model.config.vocab_size) if draw.random() < 0.5 else None
        plain, engine = PlainEngine(model), DeviceEngine(model)
        plain.parts = engine.parts = parts
        with plain.computing():
            expected = sorted(plain.search(sources, limits, options, prefixes))
        found = find(engine, sources, limits, config, options.num_best, prefixes=prefixes)
        assert_same(found, [hypotheses for _, hypotheses in expected])
        for hypotheses, (number, others) in zip(found, expected, strict=True):
            assert [h.was_ended for h in hypotheses] == [h.was_ended for h in others]
            for hypothesis in hypotheses:
                length, limit = len(hypothesis.tokens), limits[number]
                seen["limit" if length == limit else "loop" if hypothesis.was_ended else "early"] += 1
                seen["part"] += any(token in PARTS for token in hypothesis.tokens) and parts is not None
            seen["prefix"] += bool(prefixes[number].tokens)
            seen["placeholder"] += max(sources[number]) >= signs.start
    kinds = ("limit", "loop", "early", "part", "prefix", "placeholder")
    assert sum(seen[kind] > 0 for kind in kinds) > 4, seen


@pytest.mark.parametrize("seed", one_in(8, range(8)))
def test_device_search_with_a_shortlist_equals_that_of_a_module_that_computes_itself(make_model, seed):
    draw, lengths = random.Random(seed), set()
    torch.manual_seed(seed)
    for _ in range(12):
        model, words, signs, sources, prefixes, limits = drawn_task(draw, make_model, 7, [1, 2, 7, 13])
        config = DecodeConfig(
            beam_size=draw.choice([1, 2, 5]),
            min_length=draw.choice([0, 3, 40]),
            no_repeat_ngram_size=draw.choice([0, 0, 1, 2]),
            batch_tokens=draw.choice([1, 100, 100_000]),
        )
        rows = [draw.choices([-1, *words], k=3) for _ in range(signs.stop)]
        common = [END, *draw.sample([*PARTS, *words], k=draw.choice([0, 0, 3]))]
        shortlist = Shortlist(np.array(common, dtype=np.int32), np.array(rows, dtype=np.int32))
        engines = DeviceEngine(model), ModuleEngine(model)
        parts = CharacterParts(PARTS, model.config.vocab_size) if draw.random() < 0.5 else None
        for engine in engines:
            engine.parts = parts
        found, expected = (find(engine, sources, limits, config, 1, shortlist, prefixes) for engine in engines)
        assert_same(found, expected)
        assert [best.was_ended for (best,) in found] == [best.was_ended for (best,) in expected]
        lengths.update(len(best.tokens) for (best,) in found)
    assert len(lengths) > 5


@pytest.mark.parametrize("beam_size", [1, 3])
def test_sentences_that_join_and_leave_change_no_other(make_sharp_model, make_sources, monkeypatch, beam_size):
    moved = []
    move = DeviceBeams.move
    monkeypatch.setattr(DeviceBeams, "move", lambda self, *rows: (moved.append(rows), move(self, *rows)))
    torch.manual_seed(3)
    model = make_sharp_model(output_bias=True)
    model.output_proj.bias[END] = 2.0
    sources = make_sources((7, 1, 13, 3, 5, 1, 29, 2, 11, 8, 17, 4))
    limits = [17, 11, 1, 13, 43, 3, 23, 2, 19, 70, 9, 31]
    engine, config = DeviceEngine(model), DecodeConfig(beam_size=beam_size, batch_tokens=29 * beam_size // 8)
    alone = [find(engine, [one], [limit], config)[0] for one, limit in zip(sources, limits, strict=True)]
    together = find(engine, sources, limits, config.model_copy(update={"batch_tokens": 60 * beam_size}))
    assert moved
    assert len(engine._idle) == 1  # the beams of the last search, for the next one
    assert_same(together, alone)
    assert len(set(map(len, (best.tokens for (best,) in alone)))) > 4


def test_nan_is_an_error_also_beside_other_sentences_and_does_not_last(make_sharp_model, make_sources):
    model, sources, config = make_sharp_model(tying="none"), make_sources((4, 3)), DecodeConfig()
    engine, sources = DeviceEngine(model), [[token if token != 5 else 6 for token in source] for source in sources]
    expected = find(engine, sources, [9, 9], config)
    model.source_embedding.weight[5] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        find(engine, [[5, 5, 5, 5, END], [5, 5, END], *sources], [9, 9, 9, 9], config)
    with pytest.raises(ModelError, match=r"not numbers in fp16, .* use --precision bf16 or fp32"):
        find(engine, [[5, END]], [9], config.model_copy(update={"precision": "fp16"}))
    assert find(engine, sources, [9, 9], config) == expected


def ensemble_of_one(model):
    return make_engine(Ensemble((model,)))


@pytest.mark.parametrize(
    "kind", [DeviceEngine, PyTorchEngine, PlainEngine, ModuleEngine, NativeEngine, ensemble_of_one]
)
def test_nan_after_one_of_several_hypotheses_is_an_error_though_another_is_finished(
    make_sharp_model, make_sources, kind
):
    model, sources = make_sharp_model(**WIDTHS[NativeEngine], tying="none", output_bias=True), make_sources((4, 3))
    model.output_proj.bias[END] = 29.0
    options = SearchOptions(DecodeConfig(beam_size=3, length_penalty=0.0), num_best=3)
    found = decode(PyTorchEngine(model), sources, options)
    assert [best.tokens for best, *_ in found] == [(END,), (END,)]
    model.target_embedding.weight[found[1][1].tokens[0]] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        decode(kind(model), sources, options)


def whole_prefix(*text):
    return Prefix(text, tuple((token,) for token in text))


@pytest.mark.parametrize("beam_size", [1, slow(3)])
@pytest.mark.parametrize(("size", "alone"), [(1, True), slow(1, False), (2, True), slow(2, False), (3, False)])
def test_no_sequence_of_tokens_is_repeated_unless_no_other_is_allowed(
    make_sharp_model, make_sources, beam_size, size, alone
):
    kind = {"num_encoder_layers": 0, "tying": "decoder"} if alone else {}
    model = make_sharp_model(output_bias=True, **kind)
    sources = make_sources((7, 7, 7) if alone else (7, 1, 13))  # plain code reads texts of one length
    model.output_proj.bias[0] = 9.0  # a word of a decoder alone
    # Of 37 tokens, fewer than the minimum.
    limits, prefixes = [47, 41, 43], [whole_prefix(5, 6, 5), NO_PREFIX, whole_prefix(9, 9)]
    searches = []
    for ngram in (size, 0):
        config = DecodeConfig(beam_size=beam_size, min_length=40, no_repeat_ngram_size=ngram, end_loops=False)
        searches.append(find(DeviceEngine(model), sources, limits, config, prefixes=prefixes))
        assert_same(searches[-1], find_plainly(model, sources, limits, config, prefixes=prefixes))
    assert tokens(searches[0]) != tokens(searches[1])


def test_the_repetitions_of_a_prefix_are_no_loop(make_sharp_model, make_sources):
    model, sources, config = make_sharp_model(output_bias=True), make_sources((4,)), DecodeConfig(beam_size=1)
    model.output_proj.bias[END] = -9.0
    prefixes = [whole_prefix(*[5, 6] * 15)]
    found = find(DeviceEngine(model), sources, [41], config, prefixes=prefixes)
    assert_same(found, find_plainly(model, sources, [41], config, prefixes=prefixes))
    assert len(found[0][0].tokens) > 31


def test_diverse_search_takes_the_steps_of_the_general_form(make_sharp_model, make_sources):
    model, sources = make_sharp_model(), make_sources((4, 3, 9))
    options = SearchOptions(DecodeConfig(beam_size=3), num_best=3, diversity=0.7)
    found, expected = (tokens(decode(engine(model), sources, options)) for engine in (DeviceEngine, PyTorchEngine))
    assert found == expected


@pytest.mark.parametrize("seed", one_in(8, range(8)))
def test_samples_on_the_device_are_the_readable_ones(make_model, seed):
    draw, lengths = random.Random(seed), set()
    torch.manual_seed(seed)
    for _ in range(8):
        model, _, _, sources, prefixes, limits = drawn_task(draw, make_model, 5, [1, 2, 7, 40])
        sampling = Sampling(
            seed=draw.randrange(99),
            epsilon=draw.choice([0.0, 0.02, 0.2]),
            temperature=draw.choice([0.5, 1.0, 3.0]),
            top_k=draw.choice([0, 1, 3, 100]),
            top_p=draw.choice([1.0, 0.9, 0.5]),
        )
        if model.config.is_decoder_alone:  # plain code reads texts of one length
            sources = [[*source[:1], END] for source in sources]
        count, end_loops = draw.choice([1, 3, 19]), draw.random() < 0.5
        config = DecodeConfig(end_loops=end_loops, batch_tokens=draw.choice([1, 400, 100_000]))
        options, groups = SearchOptions(config, count, sampling), [[] for _ in sources]
        for number, hypotheses in search(DeviceEngine(model), sources, limits, options, prefixes):
            groups[number] += hypotheses
        rules = {"max_lengths": limits, "prefixes": prefixes, "end_loops": end_loops}
        expected = sample(model, sources, sampling=sampling, count=count, **rules)
        found, expected = ([sorted(group, key=lambda one: one.tokens) for group in both] for both in (groups, expected))
        assert_same(found, expected)
        ends = [[[one.was_ended for one in group] for group in both] for both in (found, expected)]
        assert ends[0] == ends[1]
        lengths.update(len(one.tokens) for group in found for one in group)
    assert len(lengths) > 5


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_gpu_computes_in_half_precision(make_sharp_model, make_sources, monkeypatch, precision, alone):
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    monkeypatch.setattr(weights, "half_precision", lambda precision, device: half)
    model = make_sharp_model(positions="relative", **({"num_encoder_layers": 0} if alone else {}))
    sources, limits, config = make_sources((4, 3, 9)), [9, 7, 12], DecodeConfig(beam_size=3)
    engine = DeviceEngine(model, precision)
    assert engine.packed.dtype == half
    expected = PyTorchEngine(model).score(
        sources, [list(best.tokens) for (best,) in find(engine, sources, limits, config)]
    )
    for others in (engine, PyTorchEngine(model, precision)):
        scores = [best.log_prob for (best,) in find(others, sources, limits, config)]
        assert scores == pytest.approx(expected, abs=2.0 if precision == "bf16" else 0.3)


def test_fp16_needs_a_gpu(make_sharp_model, make_sources):
    with pytest.raises(DeviceError, match="fp16 translation needs a GPU; use --device cuda, --precision bf16 or"):
        decode(make_sharp_model(), make_sources((4,)), SearchOptions(DecodeConfig(precision="fp16")))


# What a step does on a device


@pytest.mark.parametrize("beam_size", [slow(1), 3])
def test_a_recorded_step_serves_all_steps_of_its_sizes(make_sharp_model, make_sources, monkeypatch, beam_size):
    """As a CUDA graph does, repeat the operations of one step on the same memory."""
    model, sources = make_sharp_model(output_bias=True), make_sources((7, 3))
    limits, config, replayed = [17, 22], DecodeConfig(beam_size=beam_size), []

    def take_step(self, sizes):
        if sizes not in self._repeats:
            before = deepcopy(self._state)
            graph = make_fx(lambda: self.step(sizes))()
            for field in fields(before):
                getattr(self._state, field.name).copy_(getattr(before, field.name))
            self._repeats[sizes] = graph
        self._repeats[sizes]()
        replayed.append(sizes)

    with torch.inference_mode(mode=False), torch.no_grad():
        expected = find(DeviceEngine(model), sources, limits, config)
        monkeypatch.setattr(DeviceBeams, "take_step", take_step)
        assert find(DeviceEngine(model), sources, limits, config) == expected
    assert len(replayed) > 9 * len(set(replayed))


class Counted(TorchDispatchMode):
    """Count operations that start a kernel: all but views and allocations."""

    number = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name != "lift_fresh"  # of a tensor made from the host's numbers
        self.number += not (func.is_view or name in ("empty", "_unsafe_view", "detach"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("positions", sorted(POSITIONS))
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_step_reads_no_value_from_the_device(make_model, monkeypatch, positions, beam_size):
    monkeypatch.setattr(weights, "unpackable", lambda model: None)  # it compares values
    # Tensors of this device have no values: whatever needs one, or copies one from the host, raises an error.
    model = make_model(norm="pre", positions=positions, **POSITIONS[positions]).to("meta")
    config = DecodeConfig(beam_size=beam_size, min_length=3, no_repeat_ngram_size=2)
    parts = CharacterParts(PARTS, 37)
    beams = DeviceBeams(PackedModel(model), config, beam_size, AllowedTokens.of(model.config, config, parts))
    beams.grow(rounded(5, 60, 9))
    with Counted() as counted:
        beams.step(rounded(5, 33, 9))
    with pytest.raises(RuntimeError, match="meta"):
        beams.are_open([0])
    assert counted.number < 185


def test_steps_of_samples_and_of_shortlists_read_no_value_from_the_device(make_model, monkeypatch):
    monkeypatch.setattr(weights, "unpackable", lambda model: None)  # it compares values
    model, config = make_model().to("meta"), DecodeConfig(min_length=3)
    shortlist = Shortlist(np.array([END, 5], dtype=np.int32), np.full((37, 2), 7, dtype=np.int32))
    allowed = AllowedTokens.of(model.config, config, listed=shortlist.common.tolist())
    packed = PackedModel(model)
    lists = ListMasks(model.config, shortlist, packed.device)
    for how in ((lists, None), (None, Sampling(top_k=9, top_p=0.9))):
        beams = DeviceBeams(packed, config, 5, allowed, *how)
        beams.grow(rounded(5, 60, 9))
        with Counted():
            beams.step(rounded(5, 33, 9))

from __future__ import annotations

import pytest
import torch
from model_variants import VARIANTS, described
from searches import PARENTS

from clearhead.config import ModelConfig
from clearhead.config.presets import tiny
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.pytorch.candidates import log_probs_of_all
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.decoding.pytorch.weights import BLOCK, PackedModel
from clearhead.decoding.step import pad_batch
from clearhead.errors import ConfigError
from clearhead.kernels.library import library
from clearhead.model import Transformer
from every_run import one_in, slow

needs_the_core = pytest.mark.skipif(library() is None, reason="needs the compiled core")
needs_vnni = pytest.mark.skipif(
    not torch.cpu._is_vnni_supported(), reason="needs a CPU that multiplies 8-bit integers (VNNI)"
)

SOURCE_LENGTHS, TARGET_LENGTHS, STARTS = (11, 1, 5, 19), (9, 4, 7, 1), (0, 2, 3, 3)

UNTIED = {"source_vocab_size": 41, "tying": "none"}

CASES = [
    *VARIANTS,
    {"num_encoder_layers": 1, "num_decoder_layers": 3, "d_ff": 53, "num_heads": 2},
    {"num_heads": 5, "d_k": 4, "d_v": 7},
    {"num_heads": 5, "d_k": 6, "d_v": 3, "attention_bias": True},
    {"positions": "rotary", "num_heads": 3, "d_k": 10, "d_v": 4, "attention_bias": True, "norm": "pre"},
    {"positions": "learned", "max_positions": 19},
    {"num_target_segments": 2},
    {"output_transform": True, "activation": "gelu"},
    {"embedding_norm": True, "norm_kind": "rms", "embedding_scale": False},
    UNTIED,
    {"vocab_size": 2 * BLOCK},
    {"vocab_size": 2 * BLOCK + 1, "output_bias": True},
]


pytestmark = pytest.mark.usefixtures("inference")


def draw(config, lengths, *, is_source):
    special = {config.pad_id, config.bos_id, config.eos_id}
    words = [token for token in range(config.vocab_size) if token not in special]
    if is_source and config.source_vocab_size is not None:
        words = [token for token in range(config.source_vocab_size) if token not in special]
    rows = [[words[at] for at in torch.randint(len(words), (length - 1,)).tolist()] for length in lengths]
    return [[*row, config.eos_id] if is_source else [config.bos_id, *row] for row in rows]


def plain_log_probs(model, sources, targets):
    """Return for each sentence the log-probabilities after each target position, as the model itself gives them."""
    memory, mask = model.encode(pad_batch(sources, model.config.pad_id))
    # What fills the targets up comes after all that is looked at.
    logits, _ = model.decode(pad_batch(targets, model.config.eos_id), memory, mask)
    log_probs = logits.log_softmax(dim=-1)
    config = model.config
    log_probs[..., [token for token in (config.pad_id, config.bos_id) if token != config.eos_id]] = float("-inf")
    return [row[: len(target)] for row, target in zip(log_probs, targets, strict=True)]


def packed_log_probs(packed, sources, targets, starts):
    """Return the same step by step, each sentence entering at a step of its own and leaving when its target ends."""
    slots = packed.cache(1, len(sources))
    results = [[] for _ in sources]
    flying = []
    for step in range(max(start + len(target) for start, target in zip(starts, targets, strict=True))):
        if entering := [number for number, start in enumerate(starts) if start == step]:
            memory = packed.encode(pad_batch([sources[number] for number in entering], packed.config.pad_id))
            slots.enter(memory, [len(sources[number]) for number in entering])
            flying += entering
        index = list(range(len(flying)))
        newest = torch.tensor([targets[number][len(results[number])] for number in flying])
        rows = slots.advance(index, index)
        states = packed.hidden_states(newest, slots.past, slots.memory, rows)
        log_probs = log_probs_of_all(packed, states, [None] * len(flying))
        for number, row in zip(flying, log_probs, strict=True):
            results[number].append(row)
        for slot in reversed(index):
            if len(results[flying[slot]]) == len(targets[flying[slot]]):
                flying[slot] = flying[-1]
                flying.pop()
                slots.leave(slot)
    assert not flying
    return [torch.stack(rows) for rows in results]


def assert_same(found, expected, atol=1e-4):
    for ours, theirs in zip(found, expected, strict=True):
        vocab_size = theirs.size(1)
        assert ours.size(1) % BLOCK == 0
        assert ours.size(1) - vocab_size < BLOCK
        assert (ours[:, vocab_size:] == float("-inf")).all()
        torch.testing.assert_close(ours[:, :vocab_size], theirs, rtol=0, atol=atol)


def draw_both(config):
    return draw(config, SOURCE_LENGTHS, is_source=True), draw(config, TARGET_LENGTHS, is_source=False)


@pytest.mark.parametrize("settings", one_in(2, CASES), ids=described)
def test_packed_model_equals_the_model_for_rows_at_different_positions(make_model, settings):
    model = make_model(**settings)
    sources, targets = draw_both(model.config)
    found = packed_log_probs(PackedModel(model), sources, targets, STARTS)
    assert_same(found, plain_log_probs(model, sources, targets))


def test_every_option_of_a_model_is_among_these_cases():
    assert {name for settings in CASES for name in settings} == set(ModelConfig.model_fields) - {
        "d_model",
        "num_placeholders",
    }


@pytest.mark.parametrize("positions", ["rotary", slow("relative"), "sinusoidal"])
def test_positions_beyond_512_are_those_of_the_model(make_model, positions):
    model = make_model(positions=positions, num_encoder_layers=1, num_decoder_layers=1)
    config = model.config
    sources, targets = draw(config, (601, 3), is_source=True), draw(config, (521, 5), is_source=False)
    found = packed_log_probs(PackedModel(model), sources, targets, (0, 515))
    assert_same(found, plain_log_probs(model, sources, targets))


def test_learned_positions_are_used_to_the_last_and_none_beyond(make_model):
    model = make_model(positions="learned", max_positions=13)
    packed = PackedModel(model)
    sources, targets = draw(model.config, (13, 2), is_source=True), draw(model.config, (13, 13), is_source=False)
    found = packed_log_probs(packed, sources, targets, (0, 1))
    assert_same(found, plain_log_probs(model, sources, targets))
    with pytest.raises(ConfigError, match="a sequence of 14 tokens"):
        packed_log_probs(packed, sources, draw(model.config, (14, 3), is_source=False), (0, 1))
    with pytest.raises(ConfigError, match="a sequence of 14 tokens"):
        packed.encode(pad_batch(draw(model.config, (14,), is_source=True), 0))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre", "positions": "rotary"},
        {"num_heads": 5, "d_k": 3, "d_v": 8, "positions": "learned"},
        {"positions": "relative", "relative_attention_num_buckets": 4, "relative_attention_max_distance": 4},
    ],
    ids=["paper", "rotary", "learned", "relative"],
)
def test_packed_beams_keep_their_own_past_when_they_branch_end_and_swap(make_model, settings):
    model = make_model(**settings)
    packed, sources = PackedModel(model), draw(model.config, (5, 11), is_source=True)
    slots = packed.cache(3, 2)
    slots.enter(packed.encode(pad_batch(sources, 0)), [5, 11])
    pasts = [[[]], [[]]]
    for parents in PARENTS:
        tokens = iter(torch.randint(3, 37, (6,)).tolist())
        pasts = [
            [[*beams[parent], next(tokens) if beams[parent] else 1] for parent in chosen]
            for beams, chosen in zip(pasts, parents, strict=True)
        ]
        index = [3 * slot + beam for slot in range(2) for beam in range(len(parents[slot]))]
        rows = slots.advance(index, [3 * slot + parent for slot in range(2) for parent in parents[slot]])
        flat = [(source, past) for source, beams in zip(sources, pasts, strict=True) for past in beams]
        newest = torch.tensor([past[-1] for _, past in flat])
        states = packed.hidden_states(newest, slots.past, slots.memory, rows)
        found = log_probs_of_all(packed, states, [None] * len(flat))
        expected = plain_log_probs(model, [source for source, _ in flat], [past for _, past in flat])
        assert_same(found[:, None], [row[-1:] for row in expected])


def test_memory_does_not_depend_on_the_padding(make_model):
    packed = PackedModel(make_model())
    sources = draw(packed.config, (17, 1, 5), is_source=True)
    together = packed.encode(pad_batch(sources, 0))
    for row, source in enumerate(sources):
        alone = packed.encode(torch.tensor([source]))
        torch.testing.assert_close(together[:, row : row + 1, : len(source)], alone, rtol=0, atol=1e-5)
    assert together.isfinite().all()


@pytest.mark.parametrize("settings", [{}, {"bos_id": 0}, {"bos_id": 2}, {"vocab_size": BLOCK}])
def test_packed_log_probs_are_infinite_only_for_pad_and_bos(make_model, settings):
    packed = PackedModel(make_model(**settings))
    config = packed.config
    for rows in packed_log_probs(packed, *draw_both(config), STARTS):
        possible = set(range(config.vocab_size)) - ({config.pad_id, config.bos_id} - {config.eos_id})
        for row in rows:
            assert set(row.isfinite().nonzero().flatten().tolist()) == possible
        assert (rows[~rows.isfinite()] == float("-inf")).all()


@pytest.mark.parametrize("engine", [PyTorchEngine, pytest.param(NativeEngine, marks=needs_the_core)])
def test_engine_is_not_current_after_weights_change(engine):
    with torch.inference_mode(False):  # as a model is made and trained
        model = Transformer(tiny(vocab_size=37)).eval()
        packed = engine(model)
        assert packed.is_current()
        with torch.no_grad():
            model.decoder.layers[1].feed_forward.up_proj.weight.mul_(1.5)
        assert not packed.is_current()
        packed = engine(model)
        assert packed.is_current()
        model.output_proj.weight = torch.nn.Parameter(torch.zeros(37, 128))
        assert not packed.is_current()
        packed = engine(model)
        model.decoder.layers[0] = Transformer(tiny(vocab_size=37)).eval().decoder.layers[0]
        assert not packed.is_current()


def test_an_encoder_alone_is_refused(make_model):
    with pytest.raises(ValueError, match="an encoder alone writes nothing"):
        PyTorchEngine(make_model(num_decoder_layers=0))


@pytest.mark.parametrize(
    # Measured: largest differences of 0.018 and 0.050.
    ("precision", "bound"),
    [("bf16", 0.05), pytest.param("int8", 0.15, marks=needs_vnni)],
)
def test_rounded_products_give_nearly_the_same(make_model, precision, bound):
    model = make_model(norm="pre")
    sources, targets = draw_both(model.config)
    exact = packed_log_probs(PackedModel(model), sources, targets, STARTS)
    rounded = packed_log_probs(PackedModel(model, precision), sources, targets, STARTS)
    assert_same(rounded, [rows[:, :37] for rows in exact], atol=bound)


def test_packing_leaves_the_model_as_it_was():
    with torch.inference_mode(False):
        model = Transformer(
            ModelConfig(vocab_size=37, d_model=26, num_heads=13, d_ff=19, num_encoder_layers=1, num_decoder_layers=1)
        )
        model.eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    packed = PackedModel(model)
    packed_log_probs(packed, *draw_both(model.config), STARTS)
    assert all(weight.equal(before[name]) for name, weight in model.state_dict().items())
    with torch.inference_mode(False):
        model(torch.tensor([[3, 5, 2]]), torch.tensor([[1, 7]])).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())

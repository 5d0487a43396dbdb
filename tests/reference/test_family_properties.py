"""What holds for every model of the family: causality, padding, equal paths, the cache, order, files, refusals.

The largest differences seen are recorded: `pytest -o junit_family=xunit1 --junitxml=FILE` writes them to FILE.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from clearhead.bundle import Bundle, load_bundle, save_bundle
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.files.tensors import read_weights
from clearhead.tokenizers import Tokenizer
from every_run import slow
from model_forms import T5_FORM

SIZES = {"vocab_size": 37, "d_model": 26, "num_heads": 13, "d_ff": 19, "dropout": 0.0}
LAYERS = {"num_encoder_layers": 3, "num_decoder_layers": 2}
ENCODER_ALONE, DECODER_ALONE = {"num_decoder_layers": 0}, {"num_encoder_layers": 0}

BIASES = {"attention_bias": True, "output_bias": True}
ROTARY = {"positions": "rotary", "num_heads": 3, "d_k": 10, "d_v": 7}
LLAMA = {**ROTARY, "norm": "pre", "norm_kind": "rms", "gated": True, "activation": "silu"}
T5 = {**T5_FORM, "num_heads": 5, "d_k": 3, "d_v": 3, "norm_eps": 1e-6}
FEW_BUCKETS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7}
BERT = {"positions": "learned", "max_positions": 97, "num_segments": 2, "embedding_norm": True, "activation": "gelu"}
HEAD = {"num_target_segments": 2, "output_transform": True}

# Each option at least once, in the company it keeps in models that exist.
ARCHITECTURES = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "torch.nn": {"final_norm": True, "attention_bias": True},
    "Marian": {**BIASES, "positions": "sinusoidal_halves", "activation": "silu"},
    "M2M100": {"attention_bias": True, "positions": "sinusoidal_t2t", "first_position": 2, "norm": "pre"},
    "BART": {**BIASES, **BERT, "num_segments": 0, "embedding_scale": False},
    "BERT to BERT": {**BIASES, **BERT, **HEAD, "embedding_scale": False, "tying": "none", "source_vocab_size": 41},
    "BERT": {**BIASES, **BERT, **ENCODER_ALONE, "embedding_scale": False},
    "GPT-2": {
        **DECODER_ALONE,
        **BIASES,
        "positions": "learned",
        "max_positions": 97,
        "norm": "pre",
        "activation": "gelu_tanh",
        "embedding_scale": False,
    },
    "Llama": {**DECODER_ALONE, **LLAMA, "feed_forward_bias": False, "tying": "none", "norm_eps": 1e-6},
    "rotary encoder and decoder": {**LLAMA, "tying": "embeddings"},
    "rotary post-norm": {**ROTARY, "tying": "decoder"},
    "rotary in narrow heads": {"positions": "rotary"},
    "T5": {**T5, "output_scale": True},
    "T5 1.1": {**T5, **FEW_BUCKETS, "activation": "gelu_tanh", "gated": True, "tying": "embeddings"},
    "relative post-norm": {"positions": "relative", **FEW_BUCKETS, "attention_bias": True},
    "relative, encoder alone": {"positions": "relative", **ENCODER_ALONE},
    "relative, decoder alone": {"positions": "relative", **DECODER_ALONE},
    "no positions": {"positions": "none", "norm_kind": "rms", "gated": True, "activation": "gelu"},
    "no positions, decoder alone": {"positions": "none", **DECODER_ALONE},
    "odd widths": {"positions": "none", "d_model": 29, "num_heads": 3, "d_k": 7, "d_v": 11, "norm": "pre"},
}
WITH_ENCODER = [name for name, settings in ARCHITECTURES.items() if settings.get("num_encoder_layers") != 0]
WITH_DECODER = [name for name, settings in ARCHITECTURES.items() if settings.get("num_decoder_layers") != 0]
POSITIONS = {"sinusoidal", "sinusoidal_halves", "sinusoidal_t2t", "learned", "rotary", "relative", "none"}
OTHERWISE = {"first_position": 0, "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
"""Required settings of a model whose positions are neither sinusoids nor relative."""

IN_EVERY_RUN = {
    "paper",
    "BERT to BERT",
    "GPT-2",
    "rotary encoder and decoder",
    "T5 1.1",
    "relative, encoder alone",
    "no positions",
}
"""Those that differ most; of the others, whose logits test_numpy_twin compares, the slow run takes the properties."""


def of(names):
    return [name if name in IN_EVERY_RUN else slow(name) for name in names]


every_architecture = pytest.mark.parametrize("name", of(ARCHITECTURES))
every_encoder = pytest.mark.parametrize("name", of(WITH_ENCODER))
every_decoder = pytest.mark.parametrize("name", of(WITH_DECODER))


@pytest.fixture
def make(make_model):
    return lambda name, **settings: make_model(**{**SIZES, **LAYERS, **ARCHITECTURES[name], **settings})


@pytest.fixture
def draw(make_batch):
    """Return a function that draws source and target ids for a model; what it does not read is None."""

    def drawn(config, source=(11, 5, 2), target=(4, 7, 1)):
        rows = config.source_vocab_size or config.vocab_size
        source_ids, _ = make_batch(config.model_copy(update={"vocab_size": rows}), source, target)
        _, target_ids = make_batch(config, source, target)
        return (source_ids if config.num_encoder_layers else None, target_ids if config.num_decoder_layers else None)

    return drawn


def output_of(model, source, target):
    """Return the logits, or the memory of an encoder alone."""
    return model.encode(source)[0] if target is None else model(source, target)


def explicit_output_of(model, source, target):
    """Return the same by equation 1 step by step instead of the fused kernel."""
    from clearhead.model import AttentionWeights, Recorder

    recorder = Recorder(AttentionWeights())
    memory, mask = (None, None) if source is None else model.encode(source, recorder=recorder)
    return memory if target is None else model.output_proj(model.states(target, memory, mask, recorder=recorder))


def assert_close(actual, expected, record_property=None, name="largest difference", tolerance=1e-5):
    assert actual.shape == expected.shape
    difference = (actual - expected).abs().max().item()
    if record_property is not None:
        record_property(name, difference)
    assert difference < tolerance


def test_the_architectures_above_try_every_setting_of_the_model():
    untried = {"dropout", "attention_dropout", "feed_forward_dropout", "pad_id", "bos_id", "eos_id", "num_placeholders"}
    tried = {setting for settings in ARCHITECTURES.values() for setting in settings} | set(SIZES) | set(LAYERS)
    assert tried | untried == set(ModelConfig.model_fields)
    assert {settings.get("positions", "sinusoidal") for settings in ARCHITECTURES.values()} == POSITIONS


# Causality


def assert_causal(run, source, target, last_seen):
    """Change everything after each of the given positions: not one bit may change at or before it."""
    before = run(source, target)
    for last in last_seen:
        changed = target.clone()
        changed[:, last + 1 :] = (target[:, last + 1 :] + torch.randint(1, 37, target[:, last + 1 :].shape)) % 37
        after = run(source, changed)
        assert after[:, : last + 1].equal(before[:, : last + 1]), last
        assert (after[:, last + 1] - before[:, last + 1]).abs().max() > 1e-3, last  # and what may change does


@every_decoder
@pytest.mark.parametrize("run", [output_of, explicit_output_of], ids=["fused", "explicit"])
@torch.no_grad()
def test_tokens_after_a_position_change_no_bit_up_to_it(make, draw, name, run):
    model = make(name)
    source, target = draw(model.config, target=(11, 13, 7))
    assert_causal(lambda *inputs: run(model, *inputs), source, target, range(12))


@pytest.mark.parametrize("name", ["paper", *map(slow, ("rotary encoder and decoder", "Llama", "T5", "odd widths"))])
@torch.no_grad()
def test_tokens_after_a_position_change_no_bit_up_to_it_in_long_targets(make, draw, name):
    # Past 512 positions tables grow, and kernels cut the keys into blocks.
    model = make(name, num_decoder_layers=1)
    source, target = draw(model.config, target=(607, 3, 601))
    assert_causal(lambda *inputs: output_of(model, *inputs), source, target, (0, 31, 32, 63, 255, 256, 511, 512, 605))


@every_decoder
def test_tokens_after_a_position_change_no_bit_up_to_it_in_training(make, draw, name):
    model = make(name).train()
    source, target = draw(model.config, target=(11, 13, 7))
    assert_causal(lambda *inputs: output_of(model, *inputs), source, target, range(12))


@pytest.mark.parametrize("name", ["paper", "rotary encoder and decoder", slow("Llama"), slow("T5")])
@torch.no_grad()
def test_tokens_after_a_position_change_no_bit_up_to_it_in_bfloat16(make, draw, name):
    model = make(name)
    source, target = draw(model.config, target=(11, 13, 7))

    def run(*inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return output_of(model, *inputs).float()

    assert_causal(run, source, target, range(12))


@every_decoder
def test_a_logit_has_no_gradient_from_later_tokens(make, draw, name):
    model = make(name)
    source, target = draw(model.config, target=(7, 7, 7))
    embedded = []
    model.target_embedding.register_forward_hook(lambda _, __, out: embedded.append(out))
    logits = output_of(model, source, target)
    (gradient,) = torch.autograd.grad(logits[:, 3].square().sum(), embedded[0])
    reached = gradient.abs().amax(dim=(0, 2))
    assert reached[:4].gt(1e-6).all()
    assert reached[4:].eq(0).all()


# Padding


@every_architecture
@torch.no_grad()
def test_padding_by_0_to_64_moves_no_output(make, draw, record_property, name):
    model = make(name)
    source, target = draw(model.config)
    before, largest = output_of(model, source, target), 0.0
    real = source != 0 if target is None else target != 0
    for extra in (0, 1, 2, 3, 5, 8, 13, 21, 32, 33, 63, 64):
        longer_source = None if source is None else functional.pad(source, (0, extra))
        longer_target = None if target is None else functional.pad(target, (0, extra * 7 % 65))
        after = output_of(model, longer_source, longer_target)[:, : before.size(1)]
        largest = max(largest, (after - before)[real].abs().max().item())
    record_property("largest difference", largest)
    assert largest < 1e-5


@every_architecture
@torch.no_grad()
def test_a_sentence_alone_gives_what_it_gives_in_a_padded_batch(make, draw, record_property, name):
    model = make(name)
    source, target = draw(model.config, (11, 5, 2), (4, 7, 1))
    together = output_of(model, source, target)
    for row, (source_length, target_length) in enumerate(((11, 4), (5, 7), (2, 1))):
        alone = output_of(
            model,
            None if source is None else source[row : row + 1, :source_length],
            None if target is None else target[row : row + 1, :target_length],
        )
        assert_close(together[row : row + 1, : alone.size(1)], alone, record_property)


@every_architecture
def test_padding_takes_no_part_in_any_gradient(make, draw, name):
    # With the positions and both vocabularies untied every row tells who used it.
    model = make(name, **{**OTHERWISE, "tying": "none", "positions": "learned", "max_positions": 17})
    source, target = draw(model.config)
    real = source != 0 if target is None else target != 0
    output_of(model, source, target)[real].square().sum().backward()
    for side, ids in (("source", source), ("target", target)):
        if ids is not None:
            embedding = model.get_submodule(f"{side}_embedding")
            assert embedding.weight.grad[0].eq(0).all(), side
            assert embedding.weight.grad[ids[ids != 0]].abs().amax(-1).gt(0).all(), side
            longest = int((ids != 0).sum(-1).max())
            assert embedding.positions.weight.grad[longest:].eq(0).all(), side
            assert embedding.positions.weight.grad[:longest].abs().amax(-1).gt(0).all(), side


# Paths that must agree


@every_architecture
@torch.no_grad()
def test_fused_and_explicit_attention_agree(make, draw, record_property, name):
    model = make(name)
    inputs = draw(model.config)
    assert_close(output_of(model, *inputs), explicit_output_of(model, *inputs), record_property)


@every_architecture
def test_training_with_dropout_0_agrees_with_eval_with_and_without_gradients(make, draw, record_property, name):
    model = make(name)
    inputs = draw(model.config)
    with torch.inference_mode():
        expected = output_of(model, *inputs).clone()
    assert_close(output_of(model, *inputs), expected, record_property, "largest difference, eval with gradients")
    model.train()
    assert_close(output_of(model, *inputs), expected, record_property, "largest difference, training")


@pytest.mark.parametrize("settings", [{"dropout": 0.3}, {"attention_dropout": 0.3}, {"feed_forward_dropout": 0.3}])
@every_architecture
def test_each_dropout_acts_in_training_alone(make, draw, settings, name):
    model = make(name, **settings)
    inputs = draw(model.config)
    torch.testing.assert_close(output_of(model, *inputs), output_of(model, *inputs), rtol=0, atol=0)
    model.train()
    for run in (output_of, explicit_output_of):
        assert (run(model, *inputs) - run(model, *inputs)).abs().max() > 1e-3


def compiled_differences():
    """Print, as JSON, how far each compiled model is from the one it was compiled from."""
    from clearhead.model import Transformer

    differences = {}
    for name, settings in ARCHITECTURES.items():
        torch.manual_seed(20170612)
        torch.compiler.reset()
        model = Transformer(ModelConfig.model_validate({**SIZES, **LAYERS, **settings})).eval()
        source, target = torch.randint(3, 37, (3, 11)), torch.randint(3, 37, (3, 7))
        source[1, 5:], target[2, 1:] = 0, 0
        inputs = (
            source if model.config.num_encoder_layers else None,
            target if model.config.num_decoder_layers else None,
        )
        compiled = torch.compile(output_of)
        with torch.no_grad():
            differences[name] = (compiled(model, *inputs) - output_of(model, *inputs)).abs().max().item()
    print(json.dumps(differences))


@pytest.mark.slow
def test_compiled_models_agree_with_plain_ones(record_property):
    # In a process of its own: the compiler cannot see through the checks of shapes that a test run installs.
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, __file__], env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert differences.keys() == ARCHITECTURES.keys()
    record_property("largest difference", max(differences.values()))
    assert max(differences.values()) < 1e-5, differences


# The cache


def step_by_step(model, target, memory, mask, cache=None):
    logits = []
    for newest in target.split(1, dim=1):
        step, cache = model.decode(newest, memory, mask, cache)
        logits.append(step)
    return torch.cat(logits, dim=1), cache


@every_decoder
@pytest.mark.parametrize("beams", [1, 5])
@torch.no_grad()
def test_cached_decoding_equals_uncached(make, draw, record_property, name, beams):
    model = make(name)
    source, _ = draw(model.config)
    _, target = draw(model.config, target=(13,) * 3 * beams)
    memory, mask = (None, None) if source is None else model.encode(source)
    repeated = None if source is None else source.repeat_interleave(beams, dim=0)
    expected = model(repeated, target)
    stepped, cache = step_by_step(model, target, memory, mask)
    assert cache.length == 13
    assert_close(stepped, expected, record_property, "largest difference, steps")
    at_once, cache = model.decode(target[:, :7], memory, mask)
    assert_close(at_once, expected[:, :7], record_property, "largest difference, at once")
    rest, _ = step_by_step(model, target[:, 7:], memory, mask, cache)
    assert_close(rest, expected[:, 7:], record_property, "largest difference, prefix and steps")


@every_decoder
@torch.no_grad()
def test_reordered_beams_continue_the_chosen_pasts(make, draw, record_property, name):
    model, beams = make(name), 2
    source, _ = draw(model.config)
    _, target = draw(model.config, target=(11,) * 3 * beams)
    memory, mask = (None, None) if source is None else model.encode(source)
    _, cache = step_by_step(model, target[:, :5], memory, mask)
    rows = torch.tensor([1, 0, 2, 2, 5, 5])
    cache.select(rows)
    stepped, _ = step_by_step(model, target[:, 5:], memory, mask, cache)
    histories = torch.cat([target[rows, :5], target[:, 5:]], dim=1)
    expected = model(None if source is None else source.repeat_interleave(beams, dim=0), histories)
    assert_close(stepped, expected[:, 5:], record_property)


@pytest.mark.parametrize(
    "name", ["paper", slow("M2M100"), slow("Llama"), "rotary encoder and decoder", slow("T5"), "T5 1.1"]
)
@torch.no_grad()
def test_cached_decoding_equals_uncached_where_tables_grow(make, draw, record_property, name):
    model = make(name)
    source, target = draw(model.config, target=(523,) * 3)
    memory, mask = (None, None) if source is None else model.encode(source)
    _, cache = model.decode(target[:, :509], memory, mask)
    stepped, _ = step_by_step(model, target[:, 509:], memory, mask, cache)
    assert_close(stepped, model(source, target)[:, 509:], record_property)


# Order and distance


@torch.no_grad()
def test_an_encoder_without_positions_does_not_see_order(make, draw):
    model = make("no positions").double()
    source, target = draw(model.config, source=(11, 11, 11))
    order = torch.randperm(11)
    memory, mask = model.encode(source)
    shuffled, _ = model.encode(source[:, order])
    assert_close(shuffled, memory[:, order], tolerance=1e-10)
    assert_close(model(source[:, order], target), model(source, target), tolerance=1e-10)
    assert mask.all()


@every_encoder
@torch.no_grad()
def test_every_other_encoder_does_see_order(make, draw, name):
    model = make(name)
    source, _ = draw(model.config, source=(11, 11, 11))
    swapped = source.clone()
    swapped[:, [2, 7]] = source[:, [7, 2]]
    moved = model.encode(source)[0]
    moved[:, [2, 7]] = moved[:, [7, 2]]
    difference = (model.encode(swapped)[0] - moved).abs().max()
    assert difference < 1e-5 if model.config.positions == "none" else difference > 1e-3


@pytest.mark.parametrize("name", of(sorted(set(WITH_ENCODER) & set(WITH_DECODER))))
@torch.no_grad()
def test_cross_attention_does_not_see_the_order_of_the_memory(make, draw, name):
    # Memory vectors contain their positions; cross-attention has no rotation and no relative bias.
    model = make(name).double()
    source, target = draw(model.config)
    memory, mask = model.encode(source)
    order = torch.randperm(11)
    shuffled, _ = model.decode(target, memory[:, order], mask[:, order])
    assert_close(shuffled, model.decode(target, memory, mask)[0], tolerance=1e-10)


@pytest.mark.parametrize("shift", [slow(1), 7, slow(64), slow(501)])
@every_encoder
@torch.no_grad()
def test_distances_alone_count_in_rotary_and_relative_encoders(make, draw, record_property, name, shift):
    # What is hidden before a sentence moves all its tokens on by as much.
    model = make(name, **({"max_positions": 601} if ARCHITECTURES[name].get("positions") == "learned" else {}))
    source, _ = draw(model.config, source=(11, 11, 11))
    memory, _ = model.encode(source)
    moved, _ = model.encode(functional.pad(source, (shift, 0)))
    difference = (moved[:, shift:] - memory).abs().max().item()
    if model.config.positions in ("rotary", "relative", "none"):
        record_property("largest difference", difference)
        assert difference < 1e-5
    else:
        assert difference > 1e-3


@torch.no_grad()
def test_distances_alone_count_in_rotary_decoders(make, draw, record_property):
    model = make("Llama")
    _, target = draw(model.config, target=(11, 11, 11))
    x = model.target_embedding(target)
    attention = model.decoder.layers[0].self_attn

    def weights(start):
        return weights_apart(start, start)

    def weights_apart(key_start, query_start):
        seen = []
        keys, values = attention.keys_and_values(x, key_start)
        attention.attend(attention.queries(x, query_start), keys, values, is_causal=True, weights=seen)
        return seen[0]

    for shift in (1, 7, 64, 509, 2003):
        assert_close(weights(shift), weights(0), record_property, f"largest difference, shift {shift}")
    assert (weights_apart(3, 5) - weights(0)).abs().max() > 1e-2


# Files

FILES = {
    "three-way": ({"tying": "three-way"}, 1),
    "decoder": ({"tying": "decoder"}, 2),
    "decoder, two vocabularies": ({"tying": "decoder", "source_vocab_size": 311}, 2),
    "embeddings": ({"tying": "embeddings"}, 2),
    "none": ({"tying": "none"}, 3),
    "none, two vocabularies": ({"tying": "none", "source_vocab_size": 311}, 3),
    "encoder alone": (ENCODER_ALONE, 1),
    "decoder alone, three-way": ({**DECODER_ALONE, "tying": "three-way"}, 1),
    "decoder alone, decoder": ({**DECODER_ALONE, "tying": "decoder"}, 1),
    "decoder alone, embeddings": ({**DECODER_ALONE, "tying": "embeddings"}, 2),
    "decoder alone, none": ({**DECODER_ALONE, "tying": "none"}, 2),
    "BERT to BERT": ({**ARCHITECTURES["BERT to BERT"], "source_vocab_size": 311}, 3),
    "Llama": (ARCHITECTURES["Llama"], 2),
    "BART": (ARCHITECTURES["BART"], 1),
    "T5": (ARCHITECTURES["T5"], 1),
    "T5 1.1": (ARCHITECTURES["T5 1.1"], 2),
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["A small dog runs across the meadow."], vocab_size=307)


def matrices(model):
    """Return the embeddings and the output matrix that a model has, by name."""
    modules = {name: getattr(model, name, None) for name in ("source_embedding", "target_embedding", "output_proj")}
    return {name: module.weight for name, module in modules.items() if module is not None}


@pytest.mark.parametrize("case", FILES)
@torch.no_grad()
def test_a_model_that_was_saved_and_loaded_is_the_same_bit_for_bit(make_model, draw, tokenizer, tmp_path, case):
    settings, num_matrices = FILES[case]
    sizes = {**SIZES, **LAYERS, **settings, "vocab_size": tokenizer.vocab_size}
    model = make_model(**sizes)
    save_bundle(tmp_path / "model", Bundle(model, tokenizer))
    loaded = load_bundle(tmp_path / "model").model

    tensors, _ = read_weights(tmp_path / "model" / "model.safetensors")
    assert tensors.keys() == dict(model.named_parameters()).keys()
    rows = {tokenizer.vocab_size, settings.get("source_vocab_size")}
    stored = [name for name, tensor in tensors.items() if tensor.dim() == 2 and tensor.size(0) in rows]
    assert len(stored) == num_matrices, stored
    assert loaded.config == model.config
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(tensor.view(torch.int32).equal(theirs[name].view(torch.int32)) for name, tensor in ours.items())
    inputs = draw(model.config)
    assert output_of(loaded, *inputs).equal(output_of(model, *inputs))

    def shared(one):
        return [[a is b for b in matrices(one).values()] for a in matrices(one).values()]

    assert shared(loaded) == shared(model)


# Refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"d_model": 15, "num_heads": 3},
            "model.d_model (15) must be even: sinusoidal positions come in pairs of sine and cosine (section 3.5); "
            "nearest that fit: 12, 18",
        ),
        (
            {"d_model": 15, "d_k": 4, "d_v": 5, "positions": "sinusoidal_t2t"},
            "model.d_model (15) must be even: sinusoidal positions come in pairs of sine and cosine (section 3.5); "
            "nearest that fit: 14, 16",
        ),
        (
            {"d_model": 26, "num_heads": 4, "positions": "none"},
            "model.d_model (26) must be a multiple of model.num_heads (4); nearest that fit: 24, 28",
        ),
        (
            {"d_model": 26, "num_heads": 4, "d_k": 5},
            "model.d_model (26) must be a multiple of model.num_heads (4); nearest that fit: 24, 28",
        ),
        (
            {"d_model": 26, "num_heads": 2, "positions": "rotary"},
            "model.d_k (13) must be even: rotary positions turn pairs of components; nearest that fit: 14",
        ),
        (
            {"d_model": 26, "num_heads": 2, "positions": "rotary", "d_k": 7},
            "model.d_k (7) must be even: rotary positions turn pairs of components; nearest that fit: 8",
        ),
        (
            {"positions": "relative", "relative_attention_num_buckets": 31},
            "model.relative_attention_num_buckets (31) must be even and at least 4: near and far keys, before the "
            "query and behind it; nearest that fits: 30",
        ),
        (
            {"positions": "relative", "relative_attention_num_buckets": 2, "relative_attention_max_distance": 1},
            "model.relative_attention_num_buckets (2) must be even and at least 4: near and far keys, before the query "
            "and behind it; nearest that fits: 4",
        ),
        (
            {"positions": "relative", "relative_attention_max_distance": 16},
            "model.relative_attention_max_distance (16) must be more than 16: so many distances have one of "
            "model.relative_attention_num_buckets (32) each; nearest that fits: 17",
        ),
        (
            {"positions": "rotary", "relative_attention_num_buckets": 64},
            "model.relative_attention_num_buckets (64) is for relative positions; with model.positions = 'rotary' it "
            "must be 32",
        ),
        (
            {"relative_attention_max_distance": 256},
            "model.relative_attention_max_distance (256) is for relative positions; with model.positions = "
            "'sinusoidal' it must be 128",
        ),
        (
            {"num_encoder_layers": 0, "num_decoder_layers": 0},
            "model.num_encoder_layers and model.num_decoder_layers must not both be 0",
        ),
        (
            {"source_vocab_size": 41},
            "model.tying = 'three-way' makes source and target embedding one matrix, so there can be no "
            "model.source_vocab_size (41); tyings without: 'decoder', 'none'",
        ),
        (
            {"source_vocab_size": 41, "tying": "embeddings"},
            "model.tying = 'embeddings' makes source and target embedding one matrix, so there can be no "
            "model.source_vocab_size (41); tyings without: 'decoder', 'none'",
        ),
        (
            {"vocab_size": 37, "source_vocab_size": 2, "tying": "none"},
            "model.pad_id, bos_id, eos_id (0, 1, 2) must lie below model.vocab_size (2)",
        ),
    ],
)
def test_impossible_combinations_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**settings)
    assert str(caught.value) == message


def test_model_configs_suggested_by_errors_are_valid():
    assert ModelConfig(d_model=26, num_heads=2, positions="rotary", d_k=14).key_dim == 14
    assert ModelConfig(d_model=15, num_heads=3, positions="none").value_dim == 5
    assert ModelConfig(d_model=15, num_heads=4, d_k=3, d_v=7, positions="learned").key_dim == 3
    assert ModelConfig(positions="relative", relative_attention_num_buckets=4, relative_attention_max_distance=3)
    assert ModelConfig(positions="relative", relative_attention_max_distance=17)
    assert ModelConfig(source_vocab_size=41, tying="none").source_vocab_size == 41
    assert ModelConfig(d_model=18, num_heads=3).key_dim == 6


@pytest.mark.parametrize("side", ["source", "target", "target by steps"])
@torch.no_grad()
def test_a_sequence_longer_than_learned_positions_is_refused(make, draw, side):
    model = make("BART", max_positions=11)
    source, target = draw(model.config, source=(11, 11), target=(11, 11))
    assert output_of(model, source, target).isfinite().all()  # the last that fits
    message = (
        r"^a sequence of 12 tokens does not fit this model, whose learned positions end after "
        r"model\.max_positions = 11; cut the text into shorter segments$"
    )
    longer = torch.cat([target, target[:, :1]], dim=1)
    memory, mask = model.encode(source)
    _, cache = model.decode(target, memory, mask)
    run = {
        "source": lambda: model.encode(longer),
        "target": lambda: model(source, longer),
        "target by steps": lambda: model.decode(longer[:, 11:], memory, mask, cache),
    }[side]
    with pytest.raises(ConfigError, match=message):
        run()


if __name__ == "__main__":
    compiled_differences()

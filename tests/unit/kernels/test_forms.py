"""Every form of the compiled core finds the same, to the last bit, as the plain one."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
import torch

from clearhead.config import DecodeConfig, ModelConfig, Sampling
from clearhead.decoding import SearchOptions, Shortlist, decode
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.neighbours import Neighbours, Pair
from clearhead.errors import DeviceError
from clearhead.kernels import library as library_module
from clearhead.kernels.library import describe, form, library
from clearhead.model import Transformer
from every_run import slow

pytestmark = [
    pytest.mark.skipif(library() is None, reason="needs the compiled core"),
    pytest.mark.usefixtures("inference"),
]

FORMS = ("amx", "avx512-bf16", "avx512-vnni", "avx512", "avx-vnni", "avx2", "neon-i8mm", "neon-dot", "neon", "plain")


@pytest.fixture
def use(monkeypatch):
    """Return a function that holds the core to a form until the test ends."""

    def hold_to(name):
        monkeypatch.setenv(library_module.ISA_VARIABLE, name)
        form.cache_clear()
        return form()

    yield hold_to
    monkeypatch.undo()
    form.cache_clear()
    form()


def forms_here(use):
    """Return the forms that this processor can run; the plain one is the last."""
    found = []
    for name in FORMS:
        try:
            found.append(use(name))
        except DeviceError:
            continue
    return found


def draw_model(rng, most):
    """Return a model of random shape, whose probabilities are sharp enough for its searches to end.

    Args:
        rng: Draws the shape.
        most: Largest number of layers, and of steps in widths.
    """
    step, heads = 64, rng.choice([1, 2, 3, 4])
    config = ModelConfig(
        vocab_size=rng.choice([11, 37, 211, 1_025]),
        d_model=step * rng.randint(1, most),
        d_ff=step * rng.randint(1, most + 1),
        num_heads=heads * 2,
        d_k=16 * rng.randint(1, 3),
        d_v=32 * rng.randint(1, 2),
        num_encoder_layers=rng.randint(1, most),
        num_decoder_layers=rng.randint(1, most),
        norm=rng.choice(["pre", "post"]),
        norm_kind=rng.choice(["layer", "rms"]),
        activation=rng.choice(["relu", "gelu", "gelu_tanh", "silu"]),
        gated=rng.random() < 0.3,
        attention_bias=rng.random() < 0.5,
        output_bias=rng.random() < 0.5,
        positions=rng.choice(["sinusoidal", "learned", "rotary", "relative", "none"]),
        max_positions=64,
        embedding_norm=rng.random() < 0.3,
    )
    torch.manual_seed(rng.randrange(1 << 30))
    model = Transformer(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(rng.choice([0.5, 1.0, 2.0, 4.0]))
    return model


def results(model, precision, sources, rng_seed):
    """Return all that the core computes with a model in the present form: searches, scores, samples."""
    rng = random.Random(rng_seed)
    engine, vocab_size = NativeEngine(model, precision), model.config.vocab_size
    found = []
    for beam_size in (1, rng.choice([2, 4, 5, 7, 13])):
        config = DecodeConfig(beam_size=beam_size, batch_tokens=rng.choice([7, 40, 400]), extra_length=9)
        options = SearchOptions(config, num_best=min(beam_size, 3))
        found.append(decode(engine, sources, options))
        # The first step of every other sentence is also that of its neighbours.
        targets = (*range(3, min(vocab_size, 9)), 2), (7, 2)
        near = [Neighbours(tuple(Pair(tuple(ids), target) for target in targets), 0.6) for ids in sources[::2]]
        alternating = [near[number // 2] if number % 2 == 0 else None for number in range(len(sources))]
        found.append(decode(engine, sources, options, neighbours=alternating))
        if beam_size == 1:  # another way to the same tokens
            without = decode(engine, sources, SearchOptions(config, scores=False))
            assert [one.tokens for [one] in without] == [one.tokens for [one] in found[-2]]
        if vocab_size > 30:
            rows = np.random.default_rng(1).integers(3, vocab_size, (vocab_size, 4), dtype=np.int32)
            shortlist = Shortlist(np.arange(2, 9, dtype=np.int32), rows)
            found.append(decode(engine, sources, SearchOptions(config, shortlist=shortlist)))
    found.append(decode(engine, sources, SearchOptions(config, num_best=2, sampling=Sampling(seed=3))))
    if precision == "fp32":
        targets = [[*(rng.randrange(3, vocab_size) for _ in range(rng.randint(0, 30))), 2] for _ in sources]
        found.append(engine.score(sources, targets))
    return found


def compare(use, seed, precisions, most):
    rng = random.Random(seed)
    model = draw_model(rng, most)
    vocab_size = model.config.vocab_size
    lengths = [rng.choice([1, 2, 3, 15, 16, 17, 18, 31, 33]) for _ in range(rng.randint(1, 3 * most))]
    sources = [[*(rng.randrange(3, vocab_size) for _ in range(length - 1)), 2] for length in lengths]
    for precision in precisions:
        found = {}
        for name in forms_here(use):
            if name == "amx" and precision.startswith("bf16"):
                continue  # adds up bfloat16 in another order
            use(name)
            found[name] = results(model, precision, sources, seed)
        for name, of_form in found.items():
            assert of_form == found["plain"], (seed, precision, name, model.config)


@pytest.mark.parametrize("seed", [1, 2, 3, 4, slow(5), slow(6)])
def test_every_form_finds_the_same_to_the_last_bit(use, seed):
    compare(use, seed, ["fp32", "int8", ("bf16", "bf16x3")[seed % 2]], most=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(7, 507, 10))
def test_every_form_finds_the_same_for_hundreds_of_models(use, first):
    is_sanitized = "libasan" in os.environ.get("LD_PRELOAD", "")  # by `make sanitize`: larger models take many hours
    for seed in range(first, first + 10):
        compare(use, seed, ["fp32", "int8", "bf16", "bf16x3"], most=1 if is_sanitized else 3)


def test_unknown_and_unsupported_forms_in_clearhead_isa_are_rejected(use):
    with pytest.raises(DeviceError, match=r"CLEARHEAD_ISA=avx9: the compiled core has no such form, or this"):
        use("avx9")
    other = "neon" if "avx2" in forms_here(use) else "avx2"
    with pytest.raises(DeviceError, match=rf"CLEARHEAD_ISA={other}: .* does not offer it; leave the variable unset"):
        use(other)


def test_the_form_in_use_is_named(use):
    assert use("plain") == "plain"
    assert describe() == "clearhead's compiled core is in use, in its form for plain"

"""The work of a translation and the machine's limits, by which the translation benchmark divides."""

from __future__ import annotations

import importlib
import shutil
import struct
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceProcessor

from clearhead.config import ModelConfig
from clearhead.files.tensors import model_tensors
from clearhead.interop.toolkits.marian_npz import _read_npz, config_from, key_table
from clearhead.model import Transformer
from clearhead.paper.counts import forward_flops

SMALL = ModelConfig(vocab_size=10, d_model=4, d_ff=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def test_the_work_of_a_small_model_is_what_a_hand_counts(bench):
    limits = bench("limits")
    # Three source and two target tokens. An attention has 4 matrices of 4 x 4, a feed-forward network 2 of 4 x 8.
    encoder = 3 * (64 + 64) + 3 * 3 * (4 + 4)  # nine pairs, of scores and of a weighted sum over 4 numbers each
    keys_and_values = 3 * 32
    steps = 2 * (64 + 32 + 64 + 4 * 10)  # self-attention, queries and output of cross-attention, feed-forward, logits
    pairs = (1 + 2) * (4 + 4) + 2 * 3 * (4 + 4)  # the second step sees two tokens of its own, each sees three sources
    assert limits.operations(SMALL, 3, 2, 1) == 2 * (encoder + keys_and_values + steps + pairs)
    assert limits.operations(SMALL, 3, 2, 5) == 2 * (encoder + keys_and_values + 5 * (steps + pairs))
    assert limits.weights_read(SMALL, 2) == 64 + 64 + 32 + 2 * (64 + 32 + 64 + 40)


@pytest.mark.parametrize("shape", [{}, {"gated": True, "d_k": 6, "d_v": 3}, {"num_encoder_layers": 3, "d_ff": 20}])
def test_the_work_is_that_of_training_but_for_the_scores_that_a_causal_mask_hides(bench, shape):
    config = SMALL.model_copy(update=shape)
    width = config.num_heads * (config.key_dim + config.value_dim)
    for source, target in [(1, 1), (5, 3), (4, 9)]:
        hidden = target * (target - 1) // 2 * width * config.num_decoder_layers
        expected = forward_flops(config, source, target) - 2 * hidden
        assert bench("limits").operations(config, source, target, 1) == expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_limits_are_measured_with_the_instructions_that_engines_may_use(bench, tmp_path):
    machine = bench("limits").Limits(tmp_path, None, 2)
    assert machine.peak("float32") > 0.0
    assert machine.bandwidth(3_000_001) > 0.0


def test_limits_without_a_c_compiler_raise_naming_what_is_left_out(bench, tmp_path, monkeypatch):
    limits = bench("limits")
    monkeypatch.setattr(limits.shutil, "which", lambda _: None)
    with pytest.raises(RuntimeError, match=r"^shares of the machine's limit are left out: there is no C compiler"):
        limits.Limits(tmp_path, None, 1)


def test_every_engine_and_instruction_set_has_a_limit(bench):
    limits, engines = bench("limits"), bench("engines")
    assert {engine.limit for engine in engines.ENGINES.values()} <= limits.PRECISIONS.keys()
    assert limits.FLAGS.keys() == {None, *engines.ISAS}


def test_ctranslate2_at_its_best_is_the_fastest_configuration_of_the_same_precision_and_device(bench):
    best_peer = bench("translate")._best_peer
    speeds = {
        "clearhead": [900.0, 900.0, 900.0],
        "ctranslate2": [100.0, 300.0, 100.0],
        "ctranslate2-workers": [200.0, 90.0, 200.0],  # the higher median
        "ctranslate2-int8": [500.0, 500.0, 500.0],
        "ctranslate2-int8-workers": [400.0, 400.0, 400.0],
        "ctranslate2-gpu-fp16": [800.0, 800.0, 800.0],
    }

    def best(name, among=speeds):
        return best_peer("ctranslate2", among, name)

    assert best("clearhead") == best("clearhead-bf16x3") == "ctranslate2-workers"
    assert best("clearhead-int8") == "ctranslate2-int8"
    assert best("clearhead-gpu") == "ctranslate2-gpu-fp16"
    assert best("clearhead-int8", {name: speeds[name] for name in ("clearhead", "ctranslate2")}) == "ctranslate2"
    assert best("clearhead-int8", {"clearhead": [1.0]}) is None


def test_marian_is_given_the_same_weights(bench, tmp_path, monkeypatch):
    conversion = bench("conversion")
    monkeypatch.setattr(conversion.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    config, tensors = conversion.comparable(SMALL, model_tensors(Transformer(SMALL)))
    conversion.write_marian(tmp_path / "marian", config, tensors)
    options, parameters = _read_npz(tmp_path / "marian" / "model.npz")
    read = config_from(options)
    sizes = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers", "norm", "activation")
    assert [getattr(read, size) for size in sizes] == [getattr(SMALL, size) for size in sizes]
    back = key_table(read, has_old_output=True).from_theirs(parameters, origin="marian")
    assert tensors.keys() - back.keys() == {"target_embedding.weight"} & tensors.keys()
    for name in tensors.keys() & back.keys():
        torch.testing.assert_close(back[name], tensors[name], rtol=0, atol=0)
    torch.testing.assert_close(back["output_proj.weight"], tensors["source_embedding.weight"], rtol=0, atol=0)
    assert all(not back[name].any() for name in back.keys() - tensors.keys() if name.endswith(".bias"))
    lines = (tmp_path / "marian" / "vocab.yml").read_text().splitlines()
    assert lines[config.eos_id] == f'"</s>": {config.eos_id}'
    assert lines[5] == '"5": 5'


def test_slimt_is_given_a_model_of_the_same_sizes(bench, tmp_path, monkeypatch):
    slimt_files = bench("slimt_files")
    monkeypatch.setattr(slimt_files, "convert_by_marian", lambda *_: None)
    slimt_files.write_slimt(tmp_path / "slimt", SMALL)
    content = (tmp_path / "slimt" / "model.bin").read_bytes()
    version, number = struct.unpack_from("<QQ", content)
    headers = [struct.unpack_from("<4Q", content, 16 + 32 * item) for item in range(number)]
    at, names, shapes = 16 + 32 * number, [], []
    for length, *_ in headers:
        names.append(content[at : at + length - 1].decode())
        at += length
    for _, _, axes, _ in headers:
        shapes.append(struct.unpack_from(f"<{axes}i", content, at))
        at += 4 * axes
    (gap,) = struct.unpack_from("<Q", content, at)
    assert version == 1
    assert (at + 8 + gap) % 256 == 0
    assert at + 8 + gap + sum(size for *_, size in headers) == len(content)
    found = dict(zip(names, shapes, strict=True))
    assert found["Wemb"] == (10, 4)
    assert found["encoder_l1_ffn_W1"] == (4, 8)
    assert found["decoder_l1_rnn_Wf"] == found["decoder_l1_context_Wo"] == (4, 4)
    assert len(found) == number
    encoder = SentencePieceProcessor(model_file=str(tmp_path / "slimt" / "vocab.spm"))
    assert encoder.encode("7 2 9") == [7, 2, 9]
    assert encoder.eos_id() == 0

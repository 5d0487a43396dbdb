"""A run within `--max-memory`: the peak of its process, its parts after a resume, and a limit on a GPU."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest
import torch

from clearhead.config import Config, read_toml
from clearhead.errors import ConfigError
from clearhead.runtime import memory as of_device
from clearhead.training import memory as module
from clearhead.training.run import train_from_values
from commands import clearhead
from small_runs import QUICK, assert_same_weights, tiny_settings, train_arguments, write_tsv

PROGRAM = """
import atexit, sys
from pathlib import Path
atexit.register(lambda: print(Path("/proc/self/status").read_text()))
from clearhead.cli.main import run
run(sys.argv[1:])"""


def peak(arguments: list[str]) -> int:
    """Return the most bytes that a process had which ran the command.

    `ru_maxrss` would be no less than what this process has, from which that one is forked.
    """
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return int(re.search(r"VmHWM:\s+(\d+) kB", ran.stdout)[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="needs a process's memory in known units")
def test_the_process_of_a_run_keeps_within_its_budget_and_takes_more_without_one(tmp_path):
    choose = random.Random(5)
    lines = [" ".join(choose.choices("abcdefgh", k=19)) for _ in range(2_100)]
    write_tsv(tmp_path / "numbers.tsv", [(line, line.upper()) for line in lines])
    model = {"d_model": 64, "d_ff": 128, "num_encoder_layers": 2, "num_decoder_layers": 2}
    train = {"max_steps": 2, "validate_every": 2, "batch_tokens": 40_000, "micro_batch_tokens": 50_000}
    values = tiny_settings(tmp_path, {"model": model, "train": train, "tokenizer": {"vocab_size": 270}})
    without = peak(train_arguments({**values, "out": str(tmp_path / "without")}))
    budget = int(0.85 * without)
    assert peak([*train_arguments(values), "--max-memory", f"{budget / 1e9:.4f}GB"]) < budget
    saved = read_toml(tmp_path / "run" / "config.toml")["train"]
    assert saved["max_memory"] == pytest.approx(budget, abs=10**5)
    assert 1_000 < saved["micro_batch_tokens"] < 40_000  # more than needed is not cut


@pytest.fixture
def counted(monkeypatch):
    """Let a process need a thousand times the tensors of a step, and no more."""
    monkeypatch.setattr(module, "process_memory", lambda: 0)
    for name, value in {"_LIBRARIES": 0, "_KEPT": 1_000, "_COPIES": 0}.items():
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("counted")
def test_a_resumed_run_keeps_its_parts_unless_the_budget_changes(settings, monkeypatch):
    with pytest.raises(ConfigError, match="is too little") as told:
        train_from_values(settings(train={**QUICK, "max_memory": "10MB"}))
    least = re.search(r"train\.max_memory = '(\d+MB)'", str(told.value))[1]

    def trained(out, steps, **train):
        values = settings(train={**QUICK, "schedule": "constant", "max_steps": steps, **train})
        run = train_from_values({**values, "out": f"{values['out']}-{out}"}).run
        return run, read_toml(run / "config.toml")["train"]["micro_batch_tokens"]

    whole, cut = trained("whole", 4, max_memory=least)
    assert cut < 64 == settings()["train"]["micro_batch_tokens"]
    assert trained("broken", 2, max_memory=least) == (whole.with_name("run-broken"), cut)
    monkeypatch.setattr(module, "process_memory", lambda: 10**12)
    broken, after = trained("broken", 4, max_memory=least)
    assert after == cut
    assert_same_weights(broken / "checkpoints" / "step-00000004", whole / "checkpoints" / "step-00000004")
    with pytest.raises(ConfigError, match=r"is too little: .* about 1e\+03 GB; train\.max_memory = '1\d{6}MB'"):
        trained("broken", 6, max_memory="1GB")
    assert clearhead("train", broken, "--max-steps", 6, "--max-memory", "2TB") == 0
    saved = Config.load(broken / "config.toml").train
    assert (saved.max_memory, saved.micro_batch_tokens) == (2 * 10**12, cut)


def test_a_gpu_is_limited_for_the_time_of_the_run(monkeypatch):
    fractions = []
    monkeypatch.setattr(of_device, "device_memory", lambda _: 80)

    def limit(fraction, device):
        if device is not None:
            torch.cuda._utils._get_device_index(device)  # refuses "cuda", as the real function does
        fractions.append((fraction, device))

    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limit)
    for device, size in (("cpu", 20), ("cuda:1", None)):
        with of_device.limited_gpu_memory(device, size):
            assert fractions == []
    with pytest.raises(KeyError), of_device.limited_gpu_memory("cuda:1", 20):
        raise KeyError
    assert fractions == [(0.25, 1), (1.0, 1)]
    with of_device.limited_gpu_memory("cuda", 90):  # the device `auto`
        assert fractions[2:] == [(1.0, None)]


def test_own_models_have_no_budget(settings, capsys):
    from clearhead.model.transformer import Transformer
    from clearhead.training.own_parts import OwnParts

    values = settings(train={"max_memory": "1GB", "own_parts": ["model"]})
    with pytest.raises(ConfigError, match=r"^train\.max_memory counts the memory of the package's own model"):
        train_from_values(values, own=OwnParts(Transformer))

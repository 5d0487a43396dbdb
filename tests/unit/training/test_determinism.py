"""Deterministic algorithms are chosen on a GPU alone, and an operation that has none is one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from clearhead.config.nested import merge
from clearhead.errors import TrainingError
from clearhead.training import run as run_module
from clearhead.training.checkpoints import Checkpoints
from clearhead.training.determinism import deterministic
from clearhead.training.run import train_from_values
from small_runs import assert_same_weights

GPU = torch.device("cuda", 1)  # no GPU is used: what is chosen is chosen for the process
NAME = "CUBLAS_WORKSPACE_CONFIG"


@pytest.mark.parametrize("kept", [None, ":16:8"])
def test_flags_are_set_within_the_block_alone(monkeypatch, kept):
    monkeypatch.setenv(NAME, kept) if kept else monkeypatch.delenv(NAME, raising=False)
    with deterministic(GPU, is_asked_for=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ[NAME] == (kept or ":4096:8")
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.delenv(NAME, raising=False)
    for device, is_asked_for in ((GPU, False), (torch.device("cpu"), True)):
        with deterministic(device, is_asked_for=is_asked_for):
            assert not torch.are_deterministic_algorithms_enabled()
            assert NAME not in os.environ


def test_an_operation_without_a_deterministic_algorithm_is_one_line(monkeypatch):
    monkeypatch.setenv(NAME, ":4096:8")
    with pytest.raises(TrainingError) as caught, deterministic(GPU, is_asked_for=True):
        torch.zeros(3).put_(torch.tensor([1]), torch.tensor([2.0]))
    assert f"{caught.value}" == "put_ has no deterministic algorithm on cuda:1; train without train.deterministic"
    with pytest.raises(RuntimeError, match="must match the size"), deterministic(GPU, is_asked_for=True):
        torch.zeros(2) + torch.zeros(3)
    assert not torch.are_deterministic_algorithms_enabled()


class Background(Checkpoints):
    """Checkpoints that a thread writes, as those of a run on a GPU."""

    def __init__(self, *parts: object, is_background: bool) -> None:
        super().__init__(*parts, is_background=not is_background)


def test_a_deterministic_run_resumes_from_what_a_thread_wrote(settings, monkeypatch, tmp_path):
    """On a CPU the setting and the thread change no bit."""
    steps = {"schedule": "constant", "warmup_steps": 3, "checkpoint_every": 5, "keep_checkpoints": 2}
    values = {name: settings(out=str(tmp_path / name), train=steps) for name in "ab"}
    train_from_values(merge(values["a"], {"train": {"max_steps": 30}}))
    monkeypatch.setattr(run_module, "Checkpoints", Background)
    for max_steps in (17, 30):
        train_from_values(merge(values["b"], {"train": {"max_steps": max_steps, "deterministic": True}}))
    found, expected = (sorted(Path(tmp_path, name, "checkpoints").iterdir()) for name in "ba")
    assert found[-1].name == expected[-1].name == "step-00000030"
    assert_same_weights(found[-1], expected[-1])

"""`attention.jsonl`: what the run's weights attended to at each validation, and no text."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.files.tensors import load_weights
from clearhead.model import Transformer
from clearhead.training.attention_log import AttentionLog


@pytest.fixture
def run(finished_run, tmp_path):
    shutil.copy(finished_run / "attention.jsonl", tmp_path)
    return tmp_path


@pytest.fixture
def log(finished_run, run) -> AttentionLog:
    config = Config.load(finished_run / "config.toml")
    return AttentionLog(run, open_prepared(finished_run / "data").valid, config.model)


def test_attention_log_holds_the_cross_attention_of_every_validation(finished_run, log):
    snapshots = log.read()
    assert [step for step, _ in snapshots] == [14, 28, 40]
    config, data = Config.load(finished_run / "config.toml"), open_prepared(finished_run / "data")
    model = Transformer(config.model).eval()
    load_weights(model, finished_run / "checkpoints" / "step-00000040" / "model.safetensors")
    assert len(log.rows) == 3
    for row, weights in zip(log.rows, snapshots[-1][1], strict=True):
        source = torch.tensor([data.valid.source_ids(row).tolist()])
        target = torch.tensor([[config.model.bos_id, *data.valid.target_ids(row)[:-1].tolist()]])
        cross = torch.cat(model.attention_weights(source, target).cross)
        np.testing.assert_allclose(weights, cross.detach().numpy(), atol=0.5 / 255 + 1e-6)


def test_add_leaves_the_model_in_training_mode(finished_run, log):
    model = Transformer(Config.load(finished_run / "config.toml").model).train()
    log.add(model, 50)
    assert all(module.training for module in model.modules())
    assert log.read()[-1][0] == 50


def test_the_model_directory_and_the_file_hold_no_sentence(finished_run, run):
    assert not list((finished_run / "model").glob("attention*"))
    data = open_prepared(finished_run / "data")
    words = {word for row in range(len(data.valid)) for word in data.valid.source(row).split() if len(word) > 3}
    text = (run / "attention.jsonl").read_text(encoding="utf-8")
    assert not [word for word in words if f'"{word}' in text or f" {word}" in text]


def test_read_skips_damaged_lines_and_cut_removes_later_steps(run, log):
    before = (run / "attention.jsonl").read_bytes().splitlines(keepends=True)
    with (run / "attention.jsonl").open("ab") as file:
        file.write(before[0].replace(b'"step": 14', b'"step": 30').replace(b'"weights": ["', b'"weights": ["AAAA'))
        file.write(before[-1][:50])  # as a crash leaves it
    assert [step for step, _ in log.read()] == [14, 28, 40]
    log.cut(28)
    assert (run / "attention.jsonl").read_bytes().splitlines(keepends=True) == before[:2]

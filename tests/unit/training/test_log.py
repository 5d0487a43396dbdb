"""`metrics.jsonl` and the TensorBoard file."""

from __future__ import annotations

import json
import os

import pytest
from deadline import within

from clearhead.errors import CheckpointError
from clearhead.training.log import MetricsLog, Window, read_metrics
from clearhead.training.step import StepResult

SCORES = {"measured_on": "0", "nll": 1.0, "bleu": 7.0, "chrf": 30.0}


def write(run, *records, step=0, validated_step=0):
    with MetricsLog(run, step=step, validated_step=validated_step) as log:
        for split, number in records:
            log.write(split, number, **(SCORES if split == "valid" else {}), loss=number / 3)


def steps(run):
    return [(record["split"], record["step"]) for record in read_metrics(run / "metrics.jsonl")]


def test_read_metrics_returns_the_written_records(tmp_path):
    write(tmp_path, ("train", 25), ("valid", 30))
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {"split": "train", "step": 25, "loss": 25 / 3},
        {"split": "valid", "step": 30, **SCORES, "loss": 10.0},
    ]


def test_no_file_has_no_records(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_records_from_after_the_checkpoint_are_removed(tmp_path):
    write(tmp_path, ("train", 25), ("valid", 30), ("train", 50), ("valid", 60))
    write(tmp_path, ("train", 50), step=40, validated_step=30)
    assert steps(tmp_path) == [("train", 25), ("valid", 30), ("train", 50)]


def test_a_validation_the_checkpoint_does_not_know_of_is_removed(tmp_path):
    # Killed after the validation of step 50 and before the checkpoint that follows it: it will be validated again.
    write(tmp_path, ("train", 50), ("valid", 30), ("valid", 50))
    write(tmp_path, ("valid", 50), step=50, validated_step=30)
    assert steps(tmp_path) == [("train", 50), ("valid", 30), ("valid", 50)]


@pytest.mark.parametrize("tail", ['{"split": "train", "st', '{"split": "train"}\n', "[1]\n", "\n\n", "7"])
def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path, tail):
    write(tmp_path, ("train", 25))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(tail)
    write(tmp_path, ("train", 50), step=25)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [25, 50]


@pytest.mark.parametrize(
    "line",
    [
        *(b"\xff\xfe", b"{", b"[" * 100_000, b'{"split": "train", "step": "3"}', b'{"split": "train", "step": true}'),
        *(b'{"split": "train", "step": -1}', b'{"split": 3, "step": 3}', b'{"split": "train", "step": 3, "loss": "x"}'),
        b'{"split": "train", "step": 3, "loss": 1' + b"0" * 400 + b"}",
        b'{"split": "valid", "step": 3, "nll": 1.0, "bleu": 0.0, "chrf": 0.0}',
    ],
    ids=lambda line: f"{line!r:.40}",
)
def test_a_damaged_line_is_named_unless_nothing_follows_it(tmp_path, line):
    write(tmp_path, ("train", 25))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + line)
    assert steps(tmp_path) == [("train", 25)]
    path.write_bytes(whole + line + b"\n" + whole)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl, line 2 is damaged: .*; remove the line"):
        read_metrics(path)


def test_a_pipe_in_the_place_of_the_log_is_refused(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with within(seconds=120), pytest.raises(CheckpointError, match="it must be a regular file"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_tensorboard_events_hold_train_and_valid_losses(tmp_path):
    write(tmp_path, ("train", 25), ("valid", 30))
    (events,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    content = events.read_bytes()
    assert b"train/loss" in content
    assert b"valid/loss" in content
    assert b"train/bleu" not in content


def test_a_window_weighs_steps_by_their_tokens():
    window = Window()
    window.add(StepResult(loss=2.0, nll=1.0, grad_norm=0.3, target_tokens=30), 0.5)
    window.add(StepResult(loss=5.0, nll=3.0, grad_norm=0.7, target_tokens=10), 0.25)
    assert window == Window(loss=110.0, nll=60.0, grad_norm=0.7, tokens=40, steps=2, seconds=0.75)

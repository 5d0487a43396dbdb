"""What older versions wrote is read as it was meant: models, checkpoints and whole runs, stored byte for byte."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from clearhead.bundle import load_bundle, read_golden
from clearhead.bundle.model_directory import FORMAT_VERSION, ROUNDED_FORMAT, model_directory
from clearhead.errors import CheckpointError, ModelError
from clearhead.files.tensors import read_weights, write_weights
from clearhead.training.checkpoints import CHECKPOINT_FORMAT, Checkpoints, TrainingState
from clearhead.training.log import read_metrics
from clearhead.training.publish import average_run
from clearhead.training.run import train_from_values
from clearhead.translation.golden import check_golden
from clearhead.translation.translator import Translator
from commands import clearhead
from every_run import slow

STORED = sorted(path.parent for path in Path(__file__).parent.glob("*/SHA256SUMS"))
STORED_STEP, LAST_STEP = 400, 425
TOLERANCE = {"rel": 1e-3, "abs": 1e-3}
"""Sums of float32 in another order, on another processor or after another version, for 25 steps at most."""


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def stored(request):
    """Return a stored run; whatever a test reads of it, its files are unchanged afterwards."""
    yield request.param
    expected = (request.param / "SHA256SUMS").read_text(encoding="utf-8")
    names = [line.split("  ")[1] for line in expected.splitlines()]
    assert sorted(names) == sorted(
        path.relative_to(request.param).as_posix()
        for path in request.param.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    )
    found = [f"{hashlib.sha256((request.param / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    assert "".join(found) == expected


@pytest.fixture
def copied_run(stored, tmp_path):
    """Return a copy of a stored run, which may be written."""
    return Path(shutil.copytree(stored / "run", tmp_path / "run"))


def expectations(stored):
    return json.loads((stored / "expected.json").read_text(encoding="utf-8"))


def test_there_is_a_stored_model_and_a_stored_checkpoint_of_every_format():
    models = [json.loads((path / "run/model/config.json").read_text(encoding="utf-8")) for path in STORED]
    assert {model["format_version"] for model in models} == set(range(1, FORMAT_VERSION + 1))
    states = [
        json.loads(next(path.glob("run/checkpoints/*/state.json")).read_text(encoding="utf-8")) for path in STORED
    ]
    assert {state.get("format_version", 1) for state in states} == set(range(1, CHECKPOINT_FORMAT + 1))


def test_the_first_formats_named_the_shared_embedding_otherwise():
    names = {path.name: set(read_names(path / "run/model/model.safetensors")) for path in STORED}
    assert {name for name, tensors in names.items() if "embedding.weight" in tensors} == {"format-1"}
    assert all("source_embedding.weight" in tensors for name, tensors in names.items() if name != "format-1")


def read_names(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def test_a_model_translates_as_it_did_when_it_was_made(stored):
    translator = Translator.load(stored / "run" / "model")
    golden = read_golden(stored / "run" / "model")
    assert len(golden) >= 5
    assert check_golden(translator, golden) == []
    expected = expectations(stored)["translations"]
    found = translator.translate([sentence["source"] for sentence in expected])
    assert [translation.text for translation in found] == [sentence["text"] for sentence in expected]
    scores = [translation.score for translation in found]
    assert scores == pytest.approx([sentence["score"] for sentence in expected], **TOLERANCE)


def test_a_model_passes_verify_and_info_on_the_command_line(stored, capsys):
    for command, *options in (["verify"], ["info", "--all"]):
        assert clearhead(command, stored / "run" / "model", *options) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "passed  golden sentences" in shown
    assert "parameters: 3,840" in shown


def test_a_checkpoint_holds_the_weights_that_its_model_was_made_of(stored):
    found = Checkpoints(stored / "run" / "checkpoints", pytest.fail).newest()
    assert found is not None
    path, state = found
    assert (state.step, state.device) == (STORED_STEP, "cpu")
    model = load_bundle(stored / "run").model
    tensors, _ = read_weights(path / "model.safetensors")
    assert tensors.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in model.named_parameters())


@pytest.mark.parametrize(
    "stored",
    [path if path.name in ("checkpoint-2", "format-1") else slow(path) for path in STORED],
    indirect=True,
    ids=lambda path: path.name,
)
def test_stored_run_resumes_with_the_recorded_losses(stored, copied_run):
    result = train_from_values({"out": str(copied_run), "train": {"max_steps": LAST_STEP}})
    assert (result.step, result.ended_by) == (LAST_STEP, "max_steps")
    for expected in expectations(stored)["metrics"]:
        (found,) = [
            record
            for record in read_metrics(copied_run / "metrics.jsonl")
            if (record["split"], record["step"]) == (expected["split"], expected["step"])
        ]
        assert found["nll"] == pytest.approx(expected["nll"], **TOLERANCE)
    assert Translator.load(copied_run).translate(["drei null"])[0].text == "three zero"


@pytest.mark.parametrize(
    "stored",
    [path if path.name == "format-1" else slow(path) for path in STORED],
    indirect=True,
    ids=lambda path: path.name,
)
def test_checkpoints_of_older_formats_are_averaged_with_new_ones(copied_run, tmp_path):
    train_from_values({"out": str(copied_run), "train": {"max_steps": LAST_STEP}})
    paths = average_run(copied_run, tmp_path / "mean", last=2, device="cpu", force=False, notice=print)
    assert [path.name for path in paths] == [f"step-{step:08d}" for step in (STORED_STEP, LAST_STEP)]
    parts = [read_weights(path / "model.safetensors")[0]["source_embedding.weight"] for path in paths]
    mean = load_bundle(tmp_path / "mean").model.source_embedding.weight
    torch.testing.assert_close(mean, (parts[0] + parts[1]) / 2)


def test_a_model_of_a_later_format_is_refused_with_a_line(copied_run):
    path = model_directory(copied_run) / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "format_version": ROUNDED_FORMAT + 1}), encoding="utf-8")
    with pytest.raises(ModelError, match=rf"in format {ROUNDED_FORMAT + 1}; .* up to {ROUNDED_FORMAT}: upgrade"):
        load_bundle(copied_run)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (CHECKPOINT_FORMAT + 1, rf"reads formats up to {CHECKPOINT_FORMAT}: upgrade"),
        *((version, "is not a training state: format_version") for version in (0, True, "2", None, [2])),
    ],
)
def test_a_checkpoint_of_an_unknown_format_is_refused_with_a_line(version, message):
    values = {**TrainingState().to_dict(), "format_version": version}
    with pytest.raises(CheckpointError, match=message):
        TrainingState.from_dict(values)


def test_a_run_with_a_checkpoint_of_a_later_format_is_not_taken_back_to_an_older_one(copied_run, monkeypatch):
    checkpoints = Checkpoints(copied_run / "checkpoints", pytest.fail)
    with monkeypatch.context() as patch:
        patch.setattr("clearhead.training.checkpoints.CHECKPOINT_FORMAT", CHECKPOINT_FORMAT + 1)
        checkpoints.save(TrainingState(step=LAST_STEP), {"w": torch.zeros(3)}, {"m": torch.zeros(3)})
    with pytest.raises(CheckpointError, match=rf"is of format {CHECKPOINT_FORMAT + 1}; .* up to {CHECKPOINT_FORMAT}"):
        checkpoints.newest()


def test_a_file_with_both_names_of_the_shared_embedding_loses_neither(tmp_path):
    tensors = {"embedding.weight": torch.zeros(2), "source_embedding.weight": torch.ones(2)}
    write_weights(tmp_path / "both.safetensors", tensors, {})
    found, _ = read_weights(tmp_path / "both.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)

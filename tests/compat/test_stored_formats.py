"""A run that is stored byte for byte is read as it was meant: its model, its checkpoint and its data."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from clearhead.bundle import load_bundle, read_golden
from clearhead.bundle.model_directory import FORMAT_VERSION
from clearhead.data.prepare import open_prepared
from clearhead.errors import ClearheadError
from clearhead.files.tensors import read_weights
from clearhead.training.checkpoints import CHECKPOINT_FORMAT, Checkpoints
from clearhead.training.log import read_metrics
from clearhead.training.publish import average_run
from clearhead.training.run import train_from_values
from clearhead.translation.alignment import alignment_head
from clearhead.translation.golden import check_golden
from clearhead.translation.translator import Translator
from commands import clearhead

STORED = Path(__file__).parent / "0.1.0"
CHECKPOINT = Path("checkpoints", "step-00000400")
STORED_STEP, LAST_STEP = 400, 425
TOLERANCE = {"rel": 1e-3, "abs": 1e-3}
"""Sums of float32 in another order, on another processor or after another version, for 25 steps at most."""


@pytest.fixture
def stored():
    """Return the stored run; whatever a test reads of it, its files are unchanged afterwards."""
    yield STORED
    expected = (STORED / "SHA256SUMS").read_text(encoding="utf-8")
    names = [line.split("  ")[1] for line in expected.splitlines()]
    assert sorted(names) == sorted(
        path.relative_to(STORED).as_posix()
        for path in STORED.rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    )
    found = [f"{hashlib.sha256((STORED / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    assert "".join(found) == expected


@pytest.fixture
def copied_run(stored, tmp_path):
    """Return a copy of the stored run, which may be written."""
    return Path(shutil.copytree(stored / "run", tmp_path / "run"))


@pytest.fixture
def expected(stored):
    return json.loads((stored / "expected.json").read_text(encoding="utf-8"))


def read_model(run):
    return alignment_head(load_bundle(run, verify=False))  # without comparing checksums


def read_state(run):
    return Checkpoints.state(run / CHECKPOINT)


def read_data(run):
    return open_prepared(run / "data")


def test_the_stored_run_is_in_the_formats_that_are_written(stored):
    config, state = (
        json.loads((stored / "run" / name).read_text(encoding="utf-8"))
        for name in ("model/config.json", CHECKPOINT / "state.json")
    )
    assert (config["format_version"], state["format_version"]) == (FORMAT_VERSION, CHECKPOINT_FORMAT)


def test_the_model_translates_as_it_did_when_it_was_made(stored, expected):
    translator = Translator.load(stored / "run" / "model")
    golden = read_golden(stored / "run" / "model")
    assert len(golden) >= 5
    assert check_golden(translator, golden) == []
    sentences = expected["translations"]
    found = translator.translate([sentence["source"] for sentence in sentences])
    assert [translation.text for translation in found] == [sentence["text"] for sentence in sentences]
    scores = [translation.score for translation in found]
    assert scores == pytest.approx([sentence["score"] for sentence in sentences], **TOLERANCE)


def test_the_model_passes_verify_and_info_on_the_command_line(stored, capsys):
    for command, *options in (["verify"], ["info", "--all"]):
        assert clearhead(command, stored / "run" / "model", *options) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "passed  golden sentences" in shown
    assert "parameters: 3,840" in shown


def test_the_checkpoint_holds_the_weights_that_the_model_was_made_of(stored):
    found = Checkpoints(stored / "run" / "checkpoints", pytest.fail).newest()
    assert found is not None
    path, state = found
    assert (state.step, state.device) == (STORED_STEP, "cpu")
    model = load_bundle(stored / "run").model
    tensors, _ = read_weights(path / "model.safetensors")
    assert tensors.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in model.named_parameters())


def test_the_run_resumes_with_the_recorded_losses_and_is_averaged(copied_run, expected, tmp_path):
    result = train_from_values({"out": str(copied_run), "train": {"max_steps": LAST_STEP}})
    assert (result.step, result.ended_by) == (LAST_STEP, "max_steps")
    for recorded in expected["metrics"]:
        (found,) = [
            record
            for record in read_metrics(copied_run / "metrics.jsonl")
            if (record["split"], record["step"]) == (recorded["split"], recorded["step"])
        ]
        assert found["nll"] == pytest.approx(recorded["nll"], **TOLERANCE)
    assert Translator.load(copied_run).translate(["drei null"])[0].text == "three zero"
    paths = average_run(copied_run, tmp_path / "mean", last=2, device="cpu", force=False, notice=print)
    assert [path.name for path in paths] == [f"step-{step:08d}" for step in (STORED_STEP, LAST_STEP)]
    parts = [read_weights(path / "model.safetensors")[0]["source_embedding.weight"] for path in paths]
    mean = load_bundle(tmp_path / "mean").model.source_embedding.weight
    torch.testing.assert_close(mean, (parts[0] + parts[1]) / 2)


@pytest.mark.parametrize(
    ("file", "field", "read", "message"),
    [
        ("model/config.json", "side_files", read_model, "its 'side_files' are not those of a model"),
        ("model/config.json", "info.data.line_statistics.source_forms", read_model, "source_forms: Field required"),
        ("model/alignment.json", "agreement", read_model, "agreement must be a number"),
        (CHECKPOINT / "state.json", "format_version", read_state, "not a training state: format_version = None"),
        (CHECKPOINT / "state.json", "precision", read_state, "not a training state: its fields must be step, "),
        (CHECKPOINT / "state.json", "best.measured_on", read_state, "not a training state: its fields must be step, "),
        ("data/report.json", "checksums", read_data, "is damaged: it has no checksums"),
    ],
)
def test_a_run_that_lacks_a_field_is_damaged(copied_run, file, field, read, message):
    values = outer = json.loads((copied_run / file).read_text(encoding="utf-8"))
    *names, last = field.split(".")
    for name in names:
        outer = outer[name]
    del outer[last]
    (copied_run / file).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ClearheadError, match=message):
        read(copied_run)

from __future__ import annotations

import json
from functools import partial

import pytest

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.side_files import QUALITY_FILE, add_side_files
from clearhead.cli.verify import verify
from clearhead.errors import ModelError
from clearhead.translation.golden import make_golden
from clearhead.translation.quality import Calibration, save_calibration
from clearhead.translation.translator import Translator


@pytest.fixture
def make_golden_dir(make_bundle, tmp_path, sentences):
    """Return a function that writes a model with golden sentences, each changed by `change`."""

    def make(change=lambda sentence: sentence):
        bundle = make_bundle()
        golden = [change(sentence) for sentence in make_golden(Translator(bundle), sentences[:3])]
        save_bundle(tmp_path / "model", bundle, golden=golden)
        return tmp_path / "model"

    return make


def test_a_sound_model_passes_every_check(run_command, make_golden_dir):
    result = run_command(verify, make_golden_dir())
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert all(line.startswith("passed ") for line in lines)
    for line, check in zip(lines, ("format", "checksums", "weights", "tokenizer", "golden sentences"), strict=True):
        assert check in line
    assert "all 3" in lines[-1]


def test_files_beside_a_model_are_checked(run_command, make_golden_dir):
    directory = make_golden_dir()
    own = {QUALITY_FILE: partial(save_calibration, calibration=Calibration(3.0, -2.5))}
    add_side_files(directory, own, load_bundle(directory).identity())
    assert "passed  other files        quality: made for this model" in run_command(verify, directory).stdout
    changed = (directory / "quality.json").read_text().replace("-2.5", "-6.5")
    (directory / "quality.json").write_text(changed)
    with pytest.raises(ModelError, match=r"quality\.json is damaged or belongs to another model"):
        run_command(verify, directory)
    (directory / "quality.json").unlink()
    with pytest.raises(ModelError, match=r"quality\.json is missing: the model directory is incomplete"):
        run_command(verify, directory)


def test_a_file_of_another_model_beside_a_model_is_named(run_command, make_golden_dir):
    directory = make_golden_dir()
    (directory / "quality.json").write_text("{}")
    assert "ignored other files        quality.json: not part of this model" in run_command(verify, directory).stdout


def test_verify_accepts_a_run_directory(run_command, make_golden_dir):
    assert run_command(verify, make_golden_dir().parent).exit_code == 0


def test_a_model_without_golden_sentences_says_so(run_command, make_model_dir):
    result = run_command(verify, make_model_dir())
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("none ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sentence: {**sentence, "text": "otherwise"}, r"should read 'otherwise', but now reads"),
        (lambda sentence: {**sentence, "score": sentence["score"] - 0.5}, r"should score -\d.*, but now scores"),
        (lambda sentence: {"source": "x"}, r"is damaged"),
    ],
)
def test_a_model_that_translates_otherwise_fails(run_command, make_golden_dir, change, message):
    with pytest.raises(ModelError, match=message) as caught:
        run_command(verify, make_golden_dir(change))
    assert "3 of 3 golden sentences" in str(caught.value)


def test_weights_that_changed_fail_on_their_golden_sentences(run_command, make_golden_dir):
    directory = make_golden_dir()
    golden = [json.loads(line) for line in (directory / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
    bundle = load_bundle(directory)
    bundle.model.source_embedding.weight.data.mul_(1.5)
    save_bundle(directory, bundle, golden=golden)  # the checksums fit again
    with pytest.raises(ModelError, match="does not translate as it did when it was made"):
        run_command(verify, directory)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "generation_config.json", "golden.jsonl"])
def test_a_damaged_file_is_named(run_command, make_golden_dir, name):
    path = make_golden_dir() / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(ModelError, match=rf"{name} is damaged"):
        run_command(verify, path.parent)


def test_verify_rejects_a_directory_without_config_json(run_command, tmp_path):
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        run_command(verify, tmp_path)

"""Where a model directory is found, what its config.json must say, and which directories are never replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from model_files import contents, edit_config, message_of

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.model_directory import CHECKED_FILES, FORMAT_VERSION, ROUNDED_FORMAT, model_directory
from clearhead.errors import ModelError


@pytest.fixture
def model_dir(make_model_dir) -> Path:
    return make_model_dir(golden=[["A dog.", "Ein Hund."]], info={"preset": "tiny"})


# Checksums and config.json


@pytest.mark.parametrize("name", CHECKED_FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_flipped_bit_is_noticed(model_dir, name, place):
    damaged = bytearray((model_dir / name).read_bytes())
    damaged[round(place * (len(damaged) - 1))] ^= 0b100
    (model_dir / name).write_bytes(damaged)
    message = message_of(load_bundle, model_dir)
    assert str(model_dir / name) in message
    assert "damaged or belongs to another model" in message


def test_a_flipped_bit_anywhere_in_the_configuration_is_noticed(model_dir):
    whole = (model_dir / "config.json").read_bytes()
    for place in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (model_dir / "config.json").write_bytes(damaged)
        assert str(model_dir) in message_of(load_bundle, model_dir), damaged


def test_a_number_changed_in_the_configuration_is_noticed(model_dir):
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    # Every shape stays as it was: without a checksum of its own the model would be another one, silently.
    edit_config(model_dir, model={**config["model"], "num_heads": 2})
    message = message_of(load_bundle, model_dir)
    assert "config.json is damaged or was edited" in message


@pytest.mark.parametrize("name", CHECKED_FILES)
def test_a_missing_file_is_named(model_dir, name):
    (model_dir / name).unlink()
    message = message_of(load_bundle, model_dir)
    assert str(model_dir / name) in message
    assert "incomplete" in message


@pytest.mark.parametrize("name", CHECKED_FILES)
def test_a_file_cut_short_is_noticed(model_dir, name):
    (model_dir / name).write_bytes((model_dir / name).read_bytes()[:-1])
    assert str(model_dir / name) in message_of(load_bundle, model_dir)


def test_a_directory_in_the_place_of_a_file_is_refused(model_dir):
    (model_dir / "golden.jsonl").unlink()
    (model_dir / "golden.jsonl").mkdir()
    assert f"cannot read {model_dir / 'golden.jsonl'}" in message_of(load_bundle, model_dir)


def test_the_layout_of_the_configuration_may_change(model_dir):
    edit_config(model_dir)  # written on one line now
    assert load_bundle(model_dir).info["preset"] == "tiny"


@pytest.mark.parametrize(
    ("version", "advice"),
    [(ROUNDED_FORMAT + 1, "upgrade with pip"), (FORMAT_VERSION - 1, "train or import the model again")],
)
def test_another_format_says_which_version_wrote_it_and_what_to_do(model_dir, version, advice):
    edit_config(model_dir, format_version=version, clearhead_version="99.1", checksums="of another kind")
    message = message_of(load_bundle, model_dir)
    assert f"{model_dir} was written by clearhead 99.1 in format {version}; this is clearhead" in message
    assert message.endswith(f"which reads formats {FORMAT_VERSION} and {ROUNDED_FORMAT}: {advice}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "config.json is damaged"),
        ("{", "config.json is damaged"),
        ("[1, 2]", "must hold a JSON object"),
        ('{"model_type": "marian"}', "model -o NEW` makes one of a model of another library"),
        ('{"model_type": "clearhead"}', "does not describe a clearhead model"),
        ('{"model_type": "clearhead", "format_version": "1"}', "does not describe a clearhead model"),
        ('{"model_type": "clearhead", "format_version": 2}', "checksums are incomplete"),
        ('{"model_type": "clearhead", "format_version": 2, "checksums": {"x": 1}}', "checksums are incomplete"),
    ],
)
def test_load_bundle_rejects_config_json_that_is_no_configuration(model_dir, text, reason):
    (model_dir / "config.json").write_text(text, encoding="utf-8")
    message = message_of(load_bundle, model_dir)
    assert reason in message
    assert str(model_dir / "config.json") in message


def test_a_configuration_that_is_not_utf8_is_refused(model_dir):
    (model_dir / "config.json").write_bytes(b'{"model_type": "\xff"}')
    assert "config.json is damaged" in message_of(load_bundle, model_dir)


# Directories that are not replaced


@pytest.mark.parametrize(
    "files",
    [
        {"notes.txt": "mine"},
        {"model.safetensors": "weights of a checkpoint", "state.json": "{}"},
        {"model.safetensors": "weights of another library", "config.json": '{"model_type": "marian"}'},
        {"config.json": "not JSON"},
    ],
)
def test_save_bundle_does_not_replace_a_directory_without_a_model(make_bundle, tmp_path, files):
    (tmp_path / "precious").mkdir()
    for name, text in files.items():
        (tmp_path / "precious" / name).write_text(text, encoding="utf-8")
    message = message_of(save_bundle, tmp_path / "precious", make_bundle())
    assert "is not a model directory" in message
    assert {name: data.decode() for name, data in contents(tmp_path / "precious").items()} == files


def test_a_file_in_the_way_is_left_alone(make_bundle, tmp_path):
    (tmp_path / "model").write_text("mine", encoding="utf-8")
    assert "is not a model directory" in message_of(save_bundle, tmp_path / "model", make_bundle())
    assert (tmp_path / "model").read_text(encoding="utf-8") == "mine"


def test_a_place_that_cannot_be_written_is_named(make_bundle, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    message = message_of(save_bundle, tmp_path / "file" / "model", make_bundle())
    assert f"cannot write to {tmp_path / 'file' / 'model'}: {tmp_path / 'file'} is not a directory that" in message


def test_a_model_is_not_written_where_it_could_not_be_read(make_bundle, tmp_path):
    directory = tmp_path / "\udcff"  # safetensors opens no such path
    assert "its path is not UTF-8; choose another name" in message_of(save_bundle, directory, make_bundle())
    assert not list(tmp_path.iterdir())


# Where it is found


@pytest.mark.parametrize("path", [3, None, b"model", ["model"]])
def test_load_bundle_rejects_arguments_that_are_not_paths(path):
    assert "a model is named by the path of its directory, not by " in message_of(load_bundle, path)


@pytest.mark.parametrize("path", ["x" * 5_000, "x/" * 5_000, "a\0b", "\udcff", "model/config.json/model"])
def test_a_path_that_no_file_can_have_leads_to_no_model(model_dir, monkeypatch, path):
    monkeypatch.chdir(model_dir.parent)
    assert message_of(load_bundle, path).startswith("no model at ")


def test_model_directory_of_a_run_is_that_of_its_model(model_dir):
    run = model_dir.parent
    (run / "config.toml").write_text("", encoding="utf-8")
    assert model_directory(run) == model_dir
    assert model_directory(model_dir) == model_dir
    assert load_bundle(run).info["preset"] == "tiny"


def test_load_bundle_errors_distinguish_missing_directories_and_runs(tmp_path):
    assert "there is no such directory" in message_of(load_bundle, tmp_path / "nowhere")
    assert "it holds no config.json" in message_of(load_bundle, tmp_path)
    (tmp_path / "config.toml").write_text("", encoding="utf-8")
    message = message_of(load_bundle, tmp_path)
    assert "is a run without a model; `clearhead train " in message


def test_reading_a_model_renames_nothing(tmp_path):
    (tmp_path / ".notes.old").mkdir()
    (tmp_path / ".notes.old" / "config.json").write_text("{}")
    for name in ("notes", "other"):
        with pytest.raises(ModelError, match="there is no such directory"):
            load_bundle(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [".notes.old"]

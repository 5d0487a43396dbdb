"""`clearhead export`: what is written, and when nothing is; tests/reference compares with their library."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from clearhead.cli.export import export
from clearhead.errors import ConfigError, ModelError
from clearhead.interop import proof


@pytest.fixture
def unproven(monkeypatch):
    monkeypatch.setattr(proof.importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("unproven")
def test_a_directory_of_theirs_is_written(make_model_dir, tmp_path, run_command):
    model = make_model_dir(language_tags=("de", "fr"), decode={"beam_size": 3, "length_penalty": 0.4})
    output = tmp_path / "theirs"
    said = run_command(export, model, "-o", output, "--to", "hf")
    assert f"written  {output}, a pegasus model" in said.stdout
    assert "not compared with transformers: pip install 'clearhead[interop]'" in said.stdout
    assert "divides by length ** 0.4, not by ((5 + length) / 6) ** 0.4" in said.stderr
    assert "does not end repetition loops" in said.stderr
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in output.iterdir()} == names
    generation = json.loads((output / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.4)
    assert generation["early_stopping"] == "never"
    asked = json.loads((output / "tokenizer_config.json").read_text())
    assert asked["extra_special_tokens"] == ["<2de>", "<2fr>"]
    assert load_file(output / "model.safetensors")["model.encoder.embed_positions.weight"].shape == (1_024, 22)


@pytest.mark.usefixtures("unproven")
def test_what_stands_there_stays(make_model_dir, tmp_path, run_command):
    (tmp_path / "mine").mkdir()
    with pytest.raises(ModelError, match="mine is there already; choose another name, or remove it first"):
        run_command(export, make_model_dir(), "-o", tmp_path / "mine", "--to", "hf")
    assert not list((tmp_path / "mine").iterdir())


def test_what_differs_there_is_not_written(make_model_dir, tmp_path, run_command, monkeypatch):
    model = make_model_dir()
    monkeypatch.setattr(proof, "can_prove", lambda: True)

    def differs(directory, kind, bundle, sources):
        assert (directory / "model.safetensors").exists()
        assert len(sources) == 8
        raise ModelError("another text")

    monkeypatch.setattr(proof, "prove", differs)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ModelError, match="another text"):
        run_command(export, model, "-o", tmp_path / "theirs", "--to", "hf")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("unproven")
def test_what_their_library_has_not_is_said(make_model_dir, tmp_path, run_command):
    with pytest.raises(ConfigError, match="no kind of model in Hugging Face transformers can hold this one"):
        run_command(export, make_model_dir(positions="rotary"), "-o", tmp_path / "theirs", "--to", "hf")
    with pytest.raises(ConfigError, match=r"CTranslate2 cannot hold this model: model\.positions is 'rotary'"):
        run_command(export, make_model_dir(positions="rotary"), "-o", tmp_path / "theirs", "--to", "ctranslate2")
    theirs = make_model_dir(positions="relative", attention_scale=False, output_scale=True)
    with pytest.raises(ConfigError, match=r"attention_scale is False .*output_scale is True .*positions is 'relative'"):
        run_command(export, theirs, "-o", tmp_path / "theirs", "--to", "ctranslate2")
    with pytest.raises(ConfigError, match="--precision int8 has no meaning with --to hf"):
        run_command(export, make_model_dir(), "-o", tmp_path / "theirs", "--to", "hf", "--precision", "int8")
    assert not (tmp_path / "theirs").exists()
    with pytest.raises(ModelError, match="no model at"):
        run_command(export, tmp_path / "nowhere", "-o", tmp_path / "theirs", "--to", "hf")

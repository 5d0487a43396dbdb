"""`clearhead corpus prepare`: `train` with the same settings begins with its data, and with others prepares anew."""

from __future__ import annotations

import os
import re

import pytest

from clearhead.data.prepare import open_prepared
from clearhead.training.loop import Loop
from commands import clearhead
from small_runs import numbers, write_numbers, write_tsv

FLAGS = ["--preset", "tiny", "--max-steps", 4, "--device", "cpu", "--golden", "none"]
"""Flags of `train` that matter to the model alone."""


@pytest.fixture
def config(tmp_path):
    pairs = write_numbers(tmp_path / "numbers.tsv")
    settings = [f'pairs = ["{pairs}"]', "valid_size = 17", "[tokenizer]", "vocab_size = 277"]
    (path := tmp_path / "train.toml").write_text("\n".join(["[data]", *settings]) + "\n")
    return path


@pytest.fixture(autouse=True)
def without_steps(monkeypatch):
    def stop(*_):
        raise SystemExit(0)

    monkeypatch.setattr(Loop, "begin", stop)


def identities(run):
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted((run / "data").iterdir())}


def test_train_begins_with_the_prepared_data(tmp_path, config, capsys):
    run = tmp_path / "run"
    assert clearhead("corpus", "prepare", config, "-o", run) == 0
    said = capsys.readouterr().err
    assert re.search(r"prepared 183 training and 17 validation pairs in \d+ s", said)
    assert said.endswith(f"prepared in {run}; train it with the same settings\n")
    assert sorted(os.listdir(run)) == [".lock", "data", "tokenizer.json"]
    made = identities(run)

    assert clearhead("train", config, "--out", run, *FLAGS) == 0
    assert "prepared 183 training and 17 validation pairs before\n" in capsys.readouterr().err
    assert identities(run) == made
    # A run that prepares by itself has the same data.
    assert clearhead("train", config, "--out", tmp_path / "other", *FLAGS) == 0
    for path in made:
        assert path.read_bytes() == (tmp_path / "other" / "data" / path.name).read_bytes()

    assert clearhead("corpus", "prepare", config, "-o", run) == 1
    assert f"{run} is a run that was started, with data of its own; name another --out" in capsys.readouterr().err


def damage(run, config):
    path = run / "data" / "train.arrow"
    path.write_bytes(path.read_bytes()[:-1])


def change_the_text(run, config):
    write_tsv(config.with_name("numbers.tsv"), numbers()[:193])


@pytest.mark.parametrize(
    ("change", "flags", "said", "kept"),
    [
        (None, ["--set", "data.max_ratio=3.5"], "data.max_ratio was 6.0 and now is 3.5", 183),
        (None, ["--set", "train.seed=5"], "train.seed was 1 and now is 5", 183),
        (change_the_text, [], " bytes, the prepared data was made of ", 176),
        (damage, [], "train.arrow is damaged", 183),
    ],
)
def test_data_of_other_settings_or_text_are_prepared_again(tmp_path, config, capsys, change, flags, said, kept):
    run = tmp_path / "run"
    assert clearhead("corpus", "prepare", config, "-o", run) == 0
    made = identities(run)
    if change:
        change(run, config)
    capsys.readouterr()
    assert clearhead("train", config, "--out", run, *flags, *FLAGS) == 0
    err = capsys.readouterr().err
    assert said in err
    assert "are prepared again" in err
    assert identities(run) != made
    assert open_prepared(run / "data").report["train"]["kept"] == kept


def test_prepare_reports_what_it_cannot_use(tmp_path, config, capsys):
    assert clearhead("corpus", "prepare", config) == 1
    assert "name the run directory: --out RUN" in capsys.readouterr().err
    assert clearhead("corpus", "prepare", tmp_path / "no.toml", "-o", tmp_path / "run") == 1
    assert "no.toml" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

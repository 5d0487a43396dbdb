"""`clearhead corpus prepare`: `train` with the same settings begins with its data, and with others prepares anew."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from clearhead.data import staged_corpus
from clearhead.data.prepare import open_prepared
from clearhead.errors import DataError
from clearhead.files import json_sha256, read_json, write_json
from clearhead.files.finished_steps import FinishedSteps
from clearhead.training.loop import Loop
from clearhead.training.run_directory import lock
from commands import clearhead
from small_runs import numbers, write_numbers, write_sides, write_tsv

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


def forget_settings(run, config):
    report = read_json(path := run / "data" / "report.json", DataError)
    checksums = report.pop("checksums")
    del report["settings"]
    write_json(path, {**report, "checksums": {**checksums, "report.json": json_sha256(report)}})


@pytest.mark.parametrize(
    ("change", "flags", "said", "kept"),
    [
        (None, ["--set", "data.max_ratio=3.5"], "data.max_ratio was 6.0 and now is 3.5", 183),
        (None, ["--set", "train.seed=5"], "train.seed was 1 and now is 5", 183),
        (change_the_text, [], " bytes, the prepared data was made of ", 176),
        (damage, [], "train.arrow is damaged (not what its checksum says)\n", 183),
        (forget_settings, [], "made by an earlier version, which did not note its settings", 183),
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


def prepared_and_renamed(tmp_path, data, before, after):
    """Prepare a text, rename its file, and train; return the report of the data."""
    (config := tmp_path / "train.toml").write_text(f"[data]\n{data}\nvalid_size = 17\n[tokenizer]\nvocab_size = 277\n")
    assert clearhead("corpus", "prepare", config, "-o", tmp_path / "run") == 0
    before.rename(after)
    config.write_text(config.read_text().replace(str(before), str(after)))
    assert clearhead("train", config, "--out", tmp_path / "run", *FLAGS) == 0
    return open_prepared(tmp_path / "run" / "data").report


def test_text_under_the_name_of_another_language_is_prepared_again(tmp_path, capsys):
    source, target = write_sides(tmp_path / "a", numbers())
    data = f'source = ["{source}"]\ntarget = ["{target}"]'
    report = prepared_and_renamed(tmp_path, data, target, target.with_suffix(".nl"))
    assert "files.languages was ['de', 'en'] and now is ['de', 'nl']\n" in capsys.readouterr().err
    assert report["languages"] == ["de", "nl"]


def test_text_moved_to_an_entry_of_another_weight_is_prepared_again(tmp_path, capsys):
    for name, (start, end) in {"x/a": (0, 90), "x/b": (90, 150), "y/c": (150, 200)}.items():
        path = tmp_path / f"{name}.tsv"
        path.parent.mkdir(exist_ok=True)
        write_tsv(path, numbers()[start:end])
    data = f'pairs = ["{tmp_path / "x"}", "{tmp_path / "y"}"]\nweights = [1, 3]\nhold_out = "line"'
    report = prepared_and_renamed(tmp_path, data, tmp_path / "x" / "b.tsv", tmp_path / "y" / "b.tsv")
    assert "files.of_entries was [2, 1] and now is [1, 2]\n" in capsys.readouterr().err
    assert dict(report["weights"])[3] > 50


def test_train_begins_with_prepared_data_whose_text_was_removed(tmp_path, config, capsys):
    config.write_text(config.read_text().replace("valid_size", "weights = [2]\nvalid_size"))
    assert clearhead("corpus", "prepare", config, "-o", tmp_path / "run") == 0
    (tmp_path / "numbers.tsv").unlink()
    assert clearhead("train", config, "--out", tmp_path / "run", *FLAGS) == 0
    assert "prepared 183 training and 17 validation pairs before\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        ([*numbers()[:150], *[pair[::-1] for pair in numbers()[150:]]], "de,en", r"about 2\d % of the training pairs"),
        (numbers(), "de,fr", r"the files have different target languages: en .*; fr "),
    ],
)
def test_train_refuses_data_that_were_prepared_only_with_force(tmp_path, config, capsys, rows, header, said):
    more = numbers(240)[200:]
    for name, first, pairs in (("more", "de,en", more), ("numbers", header, rows)):
        lines = [first, *(",".join(pair) for pair in pairs)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = f'"{tmp_path / "more.csv"}", "{tmp_path / "numbers.csv"}"'
    config.write_text(config.read_text().replace(f'"{tmp_path / "numbers.tsv"}"', files))
    command = ["train", config, "--out", tmp_path / "run", *FLAGS]
    assert clearhead("corpus", "prepare", config, "-o", tmp_path / "run", "--force-data") == 0
    capsys.readouterr()
    assert clearhead(*command) == 1
    refused = capsys.readouterr().err
    assert re.search(said, refused)
    assert refused.endswith("if all is as it should be, add --force-data\n")
    assert clearhead(*command, "--force-data") == 0
    assert re.search(r"prepared \d+ training and 17 validation pairs before\n", capsys.readouterr().err)


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_after_ctrl_c_the_same_command_continues(tmp_path, config, capsys, monkeypatch, command):
    monkeypatch.setattr(staged_corpus, "PIECE_ROWS", 19)
    run, add = tmp_path / "run", FinishedSteps.add
    arguments = (
        ["corpus", "prepare", config, "-o", run] if command == "prepare" else ["train", config, "-o", run, *FLAGS]
    )

    def stop(steps, name, *rest):
        add(steps, name, *rest)
        if name.endswith("-00000004"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FinishedSteps, "add", stop)
        assert clearhead(*arguments) == 130
    kept = "finished parts are kept in {}; the same text and settings continue from them\nclearhead: interrupted\n"
    assert capsys.readouterr().err.endswith(kept.format(run / "data.parts"))
    assert sorted(os.listdir(run)) == [".lock", "data.parts"]

    with lock(run):
        assert clearhead(*arguments) == 1
    assert "another process is training in" in capsys.readouterr().err
    # Started over, nothing is used, and if that is interrupted, nothing is kept.
    if command == "train":
        with monkeypatch.context() as patch:
            patch.setattr(FinishedSteps, "add", stop)
            assert clearhead(*arguments, "--fresh") == 130
        assert not re.search("finished parts| before", capsys.readouterr().err)
        assert sorted(os.listdir(tmp_path)) == ["numbers.tsv", "run", "train.toml"]

    assert clearhead(*arguments) == 0
    assert re.search(
        r"the text was read and cleaned before\n(.*\n)*\d+ pairs were tokenised before", capsys.readouterr().err
    )
    assert not (run / "data.parts").exists()
    # Killed between the last two steps: the parts are removed by the next command.
    shutil.copytree(run / "data", run / "data.parts")
    (run / "config.toml").unlink(missing_ok=True)
    assert clearhead("train", config, "-o", run, *FLAGS) == 0
    assert not (run / "data.parts").exists()


def test_prepare_reports_what_it_cannot_use(tmp_path, config, capsys):
    assert clearhead("corpus", "prepare", config) == 1
    assert "name the run directory: --out RUN" in capsys.readouterr().err
    assert clearhead("corpus", "prepare", tmp_path / "no.toml", "-o", tmp_path / "run") == 1
    assert "no.toml" in capsys.readouterr().err
    config.write_text('[data]\npairs = ["-"]\n')
    assert clearhead("corpus", "prepare", config, "-o", tmp_path / "run") == 1
    assert "- can be read only once, so `train` could not tell" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

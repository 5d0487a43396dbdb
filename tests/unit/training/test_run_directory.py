"""The directory of a run: what killed runs left is cleared away, and nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clearhead.errors import CheckpointError
from clearhead.files import new_file
from clearhead.training.run_directory import claim, from_here, is_finished, lock, opened


def names(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


def test_a_translation_that_is_being_written_into_a_run_is_not_cleared_away(tmp_path):
    with lock(tmp_path / "run"), new_file(tmp_path / "run" / "config.toml") as settings:
        settings.write_text("")
    with new_file(tmp_path / "run" / "out.txt") as output:
        output.write_text("hours of work")
        with lock(tmp_path / "run"):
            pass
    assert (tmp_path / "run" / "out.txt").read_text() == "hours of work"


def test_lock_removes_partial_files_of_killed_runs_and_restores_old_ones(tmp_path):
    run = tmp_path / "run"
    left = {
        *(".config.toml.0123456789abcdef.partial", ".data.0123456789abcdef.partial/train.jsonl"),
        "checkpoints/.step-00000020.0123456789abcdef.partial/model",
    }
    kept = {"checkpoints/step-00000010/model", "corpus/text", ".model.0123456789abcdef.old/config.json"}
    for name in left | kept:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    claim(run)  # there is no config.toml yet, and none of this is foreign
    with lock(run):
        assert names(run) == [".lock", "checkpoints/step-00000010/model", "corpus/text", "model/config.json"]


def test_the_lock_of_a_run_does_not_follow_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "precious").write_text("thesis")
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious")
    with (
        pytest.raises(CheckpointError, match=r"\.lock: it is a link to another file; remove it"),
        lock(tmp_path / "run"),
    ):
        pass
    assert (tmp_path / "precious").read_text() == "thesis"


def test_claim_rejects_a_foreign_file_named_like_a_partial_one(tmp_path):
    (tmp_path / "notes.partial").write_text("")
    with pytest.raises(CheckpointError, match=r"is not a run \(it holds notes.partial\)"):
        claim(tmp_path)


def test_a_path_that_is_not_utf8_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="the path is not UTF-8; name another directory"):
        claim(tmp_path / "\udcff" / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_whose_model_was_put_aside_by_a_writer_is_finished(tmp_path):
    (tmp_path / "report.html").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert is_finished(tmp_path)
    (tmp_path / "model").rename(tmp_path / ".model.0123456789abcdef.old")
    assert is_finished(tmp_path)


def test_a_run_is_named_as_people_type_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert from_here(tmp_path / "runs" / "x") == Path("runs/x")
    assert from_here(tmp_path) == tmp_path
    assert from_here(tmp_path.parent / "other") == tmp_path.parent / "other"


def test_a_run_that_cannot_be_started_over_stays(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with lock(run):
        (run / "config.toml").write_text("a")
    mkdir = Path.mkdir

    def read_only(path, *given, **named):
        if path.parent == tmp_path and path != run:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        mkdir(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", read_only)
    message = rf"{run} stays as it is: cannot make another run in {tmp_path}: Permission denied"
    with pytest.raises(CheckpointError, match=message), opened(run, fresh=True):
        pass
    assert names(tmp_path) == ["run/.lock", "run/config.toml"]

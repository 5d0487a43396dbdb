"""Side files of a model: written with it, covered by its checksums, added whole or not at all."""

from __future__ import annotations

import os
import signal
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from model_files import contents, message_of

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.side_files import ALIGNMENT_FILE, QUALITY_FILE, SHORTLIST_FILE, add_side_files, side_file_path
from clearhead.files import write_json
from processes import FileOperations, call


@pytest.fixture
def model_dir(make_model_dir) -> Path:
    return make_model_dir()


def quality(**values):
    """Return the side file quality.json, to be written with some values and the name of its model."""
    return {QUALITY_FILE: lambda path, model: write_json(path, {**values, **model})}


def test_side_files_are_written_with_a_model_and_covered_by_its_checksums(make_bundle, tmp_path):
    save_bundle(tmp_path / "model", make_bundle(), side_files=quality(slope=3.5))
    bundle = load_bundle(tmp_path / "model")
    assert bundle.side_file(QUALITY_FILE) == {"slope": 3.5, **bundle.identity()}
    assert bundle.side_file(ALIGNMENT_FILE) is None
    path = tmp_path / "model" / QUALITY_FILE
    written = path.read_text()
    path.write_text(written.replace("3.5", "0.1"))
    assert f"{path} is damaged or belongs to another model" in message_of(load_bundle, tmp_path / "model")
    path.unlink()
    assert f"{path} is missing" in message_of(load_bundle, tmp_path / "model")


def test_a_side_file_that_is_not_listed_is_ignored(model_dir):
    (model_dir / QUALITY_FILE).write_text("{")
    bundle = load_bundle(model_dir)
    assert bundle.side_file(QUALITY_FILE) is None
    assert bundle.leftovers() == [QUALITY_FILE]


def test_side_file_path_tells_a_missing_file_from_one_that_is_not_part_of_the_model(model_dir):
    path = model_dir / SHORTLIST_FILE
    path.write_text("left over")
    assert "is not part of this model" in message_of(side_file_path, model_dir, SHORTLIST_FILE)
    add_side_files(model_dir, {SHORTLIST_FILE: lambda path, _: path.touch()}, load_bundle(model_dir).identity())
    assert side_file_path(model_dir, SHORTLIST_FILE) == path
    path.unlink()
    assert f"{path} is missing: the model directory is incomplete" in message_of(side_file_path, model_dir, path.name)


def test_side_files_are_added_and_everything_else_is_kept(model_dir):
    (model_dir / "notes").mkdir()
    (model_dir / "notes" / "mine.txt").write_text("precious")
    (model_dir / ALIGNMENT_FILE).write_text("left over")
    before, identity = load_bundle(model_dir), load_bundle(model_dir).identity()
    for slope in (1.5, 2.5):
        add_side_files(model_dir, quality(slope=slope), identity)
        bundle = load_bundle(model_dir)
        assert bundle.side_file(QUALITY_FILE) == {"slope": slope, **identity}
        assert bundle.leftovers() == [ALIGNMENT_FILE]
        assert bundle.info == before.info
        assert (model_dir / "notes" / "mine.txt").read_text() == "precious"
    assert before.side_file(QUALITY_FILE) is None  # as it was read
    assert [path.name for path in model_dir.parent.iterdir()] == [model_dir.name]


def test_files_that_are_not_of_the_model_are_kept_when_it_is_replaced(make_bundle, model_dir):
    (model_dir / "notes").mkdir()
    (model_dir / "notes" / "mine.txt").write_text("precious")
    (model_dir / "terms.tsv").write_text("a\tb\n")
    (model_dir / QUALITY_FILE).write_text("{}")
    (model_dir / ".README.md.0123456789abcdef.partial").write_text("")
    save_bundle(model_dir, make_bundle(seed=8))
    assert (model_dir / "notes" / "mine.txt").read_text() == "precious"
    assert (model_dir / "terms.tsv").read_text() == "a\tb\n"
    assert len(list(model_dir.iterdir())) == 6 + 2
    assert load_bundle(model_dir).leftovers() == []


def test_side_files_are_not_added_to_another_model(make_bundle, model_dir):
    identity = load_bundle(model_dir).identity()
    before = contents(model_dir)
    message = message_of(add_side_files, model_dir, quality(slope=1.5), {**identity, "model_sha256": "0" * 64})
    assert "holds another model by now" in message
    assert contents(model_dir) == before

    def write_late(path, model):
        write_json(path, {})
        save_bundle(model_dir, make_bundle(seed=8))

    assert "was replaced or changed meanwhile" in message_of(
        add_side_files, model_dir, {QUALITY_FILE: write_late}, identity
    )
    assert load_bundle(model_dir).side_files == {}


@pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
def test_a_kill_leaves_the_model_with_all_side_files_or_none(model_dir):
    assert call(partial(_add_and_be_killed, model_dir)) == 0


def _add_and_be_killed(directory):
    """Add two files in forks that are killed before their first, second .. file operation, until one is not."""
    both, identity = sorted([ALIGNMENT_FILE, QUALITY_FILE]), load_bundle(directory).identity()
    values = dict.fromkeys(both, lambda path, model: write_json(path, dict(model)))
    add_side_files(directory, values, identity)  # imports what the forks need
    for last in count(1):
        save_bundle(directory, load_bundle(directory))
        if (child := os.fork()) == 0:
            FileOperations().until(last)()
            add_side_files(directory, values, identity)
            os._exit(0)
        code, found = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sorted(load_bundle(directory).side_files)
        if code == 0:
            assert (found, last > 30) == (both, True)
            return
        assert code == -signal.SIGKILL
        assert found in ([], both)

"""Preparation that was ended continues: the same bytes as without, or a line that says why it begins anew."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pieces_of_text import PIECE, cut_small, of_linked_lines, of_pairs

from clearhead.config import Config
from clearhead.config.nested import merge
from clearhead.data import staged_corpus
from clearhead.data.prepare import prepare
from clearhead.errors import DataError
from clearhead.files import is_leftover


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    cut_small(monkeypatch)


def made(run: Path) -> dict[str, bytes]:
    """Return all files of a run."""
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def prepared(config, run, **options) -> list[str]:
    """Prepare a text, and return what was said."""
    said: list[str] = []
    prepare(config, run / "data", notice=said.append, is_forced=True, **options)
    return [line for line in said if " is read as " not in line]


def interrupt(config, run, pieces=4, **options):
    """Prepare a text until some pieces are tokenised."""

    def stop(stage, count):
        if stage == "tokenising" and count >= pieces * PIECE:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(config, run / "data", on_progress=stop, is_forced=True, **options)
    assert (run / "data.parts").is_dir()
    assert not (run / "data").exists()


@pytest.fixture
def undisturbed(tmp_path):
    prepared(of_linked_lines(tmp_path), tmp_path / "whole")
    return made(tmp_path / "whole")


@pytest.mark.slow
def test_a_preparation_that_is_killed_continues_with_any_number_of_processes(tmp_path):
    prepared(of_pairs(tmp_path), tmp_path / "whole")
    script, run = Path(__file__).with_name("killed_preparation.py"), tmp_path / "run"
    kept = []
    for at, count, processes in (
        ("text", 1, 1),
        ("survey", 1, 2),
        ("tokenised", 4, 1),
        ("tokenised", 5, 2),
        ("append", 6, 3),
        ("-", 1, 2),
    ):
        command = [sys.executable, str(script), at, str(count), str(processes), str(tmp_path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
        assert done.returncode == (0 if at == "-" else -signal.SIGKILL)
        assert (run / "data").exists() == (at == "-")
        steps = {path.name for path in (run / "data.parts").glob("*") if not is_leftover(path.name)}
        parts = {name for name in steps if re.fullmatch(r"tokenised-[0-9a-f]{16}-\d{8}", name)}
        kept.append((steps & {"text", "survey"}, len(parts)))
        assert ("the text was read and cleaned before" in done.stdout) == (at not in ("text", "survey"))
        assert ("pairs were tokenised before" in done.stdout) == (len(kept) > 3)
    assert kept[:4] == [(set(), 0), ({"text"}, 0), ({"text", "survey"}, 3), ({"text", "survey"}, 7)]
    assert kept[4][1] > 30
    assert kept[5] == (set(), 0)
    for path in filter(lambda path: is_leftover(path.name), run.iterdir()):
        shutil.rmtree(path)
    assert made(run) == made(tmp_path / "whole")


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("origin", flip),
        ("text", flip),
        ("train.jsonl", flip),
        ("valid.jsonl", Path.unlink),
        ("survey", flip),
        ("tokenizer.json", flip),
        ("tokenised-*-00000001", flip),
        ("tokenised-*-00000002.pairs.arrow", flip),
        ("tokenised-*-00000003.copies.arrow", Path.unlink),
        ("tokenised-*-00000000", lambda path: path.write_bytes(b"")),
    ],
)
def test_a_damaged_part_is_said_and_made_again(tmp_path, undisturbed, name, harm):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    interrupt(config, run)
    (path,) = (run / "data.parts").glob(name)
    harm(path)
    said = prepared(config, run, processes=2)
    assert [str(path) in line for line in said if "damaged" in line] == [True]
    assert made(run) == undisturbed


@pytest.mark.parametrize("name", ["origin", "text", "survey", "tokenised-*-00000001", "train.jsonl"])
def test_a_part_that_cannot_be_read_is_an_error_and_stays(tmp_path, name):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    interrupt(config, run)
    (path,) = (run / "data.parts").glob(name)
    path.rename(path.with_name("aside"))
    path.mkdir()
    with pytest.raises(DataError, match=f"cannot read {path}: Is a directory"):
        prepared(config, run)
    path.rmdir()
    path.with_name("aside").rename(path)
    assert prepared(config, run)[-1].endswith(" pairs were tokenised before")


def add_a_line(tmp_path):
    for name, text in (("a.de", "Ein Berg."), ("a.nl", "Een berg."), ("a.links", "0-0")):
        with open(tmp_path / name, "a", encoding="utf-8") as file:
            file.write(text + "\n")


@pytest.mark.parametrize(
    ("harm", "changes", "reason"),
    [
        (add_a_line, {}, "the SHA-256 of .*a.de was '[0-9a-f]{64}' and now is '[0-9a-f]{64}'; the SHA-256 of "),
        (None, {"data": {"max_ratio": 3.0}}, "data.max_ratio was 6.0 and now is 3.0$"),
        (None, {"tokenizer": {"vocab_size": 297}}, "tokenizer.vocab_size was 300 and now is 297$"),
        (lambda tmp_path: (tmp_path / "a.links").rename(tmp_path / "b.links"), {}, "data.alignments was "),
    ],
)
def test_parts_of_another_text_or_setting_are_not_used(tmp_path, harm, changes, reason):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    interrupt(config, run)
    if harm:
        harm(tmp_path)
    values = merge(config.model_dump(exclude_unset=True), changes)
    if (tmp_path / "b.links").exists():
        values["data"]["alignments"] = [str(tmp_path / "b.links")]
    config = Config.from_dict(values)
    (line,) = prepared(config, run)
    pattern = rf"the finished parts in .*data\.parts cannot be used, and are made again: {reason}"
    assert re.match(pattern, line)
    prepared(config, tmp_path / "other")
    assert made(run) == made(tmp_path / "other")


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path):
    config = of_linked_lines(tmp_path)

    def change(stage, count):
        if stage == "holding out validation pairs" and not count:
            add_a_line(tmp_path)

    with pytest.raises(DataError, match=r"a\.de, .*a\.nl, .*a\.links changed while it was read; run the same command"):
        prepare(config, tmp_path / "run" / "data", on_progress=change, is_forced=True)
    assert list((tmp_path / "run").iterdir()) == []


def test_of_a_text_of_one_piece_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_corpus, "PIECE_ROWS", 10_000)
    with pytest.raises(KeyboardInterrupt):
        prepare(of_linked_lines(tmp_path), tmp_path / "run" / "data", on_progress=stop_after_all, is_forced=True)
    assert list((tmp_path / "run").iterdir()) == []


def stop_after_all(stage, count):
    if stage == "tokenising validation text":
        raise KeyboardInterrupt


def test_of_text_from_a_pipe_nothing_is_kept(tmp_path):
    config = of_linked_lines(tmp_path)
    os.mkfifo(pipe := tmp_path / "pipe")
    values = merge(config.model_dump(exclude_unset=True), {"data": {"source": [str(pipe)]}})
    with subprocess.Popen(["cp", tmp_path / "a.de", pipe]), pytest.raises(KeyboardInterrupt):
        prepare(Config.from_dict(values), tmp_path / "run" / "data", on_progress=stop_after_all, is_forced=True)
    assert list((tmp_path / "run").iterdir()) == []


def test_after_a_full_disk_the_preparation_continues(tmp_path, undisturbed, monkeypatch):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    fsync = os.fsync

    def fill_up(descriptor):
        if len(list((run / "data.parts").glob("tokenised-*.pairs.arrow"))) > 3:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(DataError, match=r"cannot write the prepared data .*data: No space left on device"):
            prepared(config, run)
    said = prepared(config, run)
    assert said[-1].endswith(" pairs were tokenised before")
    assert made(run) == undisturbed


def test_pieces_are_removed_while_they_are_joined_if_the_disk_has_no_room_for_both(tmp_path, undisturbed, monkeypatch):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    left = []

    def count(stage, count):
        if stage == "tokenising validation text" and not count:
            left.append(len(list((run / "data.parts").glob("tokenised-*.pairs.arrow"))))

    prepared(config, run, on_progress=count)
    shutil.rmtree(run)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    prepared(config, run, on_progress=count)
    assert left[0] > 20
    assert left[1] == 0
    assert made(run) == undisturbed


def test_a_text_that_was_refused_is_not_read_again_when_it_is_forced(tmp_path, monkeypatch):
    config, run = of_linked_lines(tmp_path), tmp_path / "run"
    monkeypatch.setattr("clearhead.data.doctor.wrong_pairs.MOST_SHARE", -1.0)
    with pytest.raises(DataError, match="if all is as it should be, add --force-data"):
        prepare(config, run / "data")
    interrupt(config, run)
    # What was forced is refused without, also if it was surveyed before.
    said: list[str] = []
    with pytest.raises(DataError, match="if all is as it should be, add --force-data"):
        prepare(config, run / "data", notice=said.append)
    assert said[-1] == "the text was read and cleaned before"
    assert prepared(config, run)[-1].endswith(" pairs were tokenised before")

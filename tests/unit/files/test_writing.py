"""Files and directories appear whole or not at all, whoever else is writing and however the writer ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from clearhead import files
from clearhead.errors import ClearheadWarning


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    with files.new_file(tmp_path / "out") as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path
        assert not (tmp_path / "out").exists()
        temporary.write_text("whole")
    assert (tmp_path / "out").read_text() == "whole"
    assert names(tmp_path) == ["out"]


def test_files_that_look_temporary_but_are_not_ours_stay(tmp_path: Path) -> None:
    for name in ("out.partial", ".out.partial", ".out.old", ".out.0123.partial"):
        (tmp_path / name).write_text("mine")
    with files.new_file(tmp_path / "out") as temporary:
        temporary.write_text("new")
    with files.new_directory(tmp_path / "model") as directory:
        (directory / "a").write_text("new")
    files.remove_leftovers(tmp_path)
    assert [
        (tmp_path / name).read_text() for name in ("out.partial", ".out.partial", ".out.old", ".out.0123.partial")
    ] == ["mine"] * 4


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with files.new_file(tmp_path / name) as temporary:
            temporary.write_text("new")
            assert files.is_leftover(temporary.name)
    assert (tmp_path / name).read_text() == "new"
    assert names(tmp_path) == [name]


def test_two_writers_of_one_name_do_not_mix(tmp_path: Path) -> None:
    with files.new_file(tmp_path / "out") as first, files.new_file(tmp_path / "out") as second:
        first.write_text("first")
        second.write_text("second")
        assert first != second
    assert (tmp_path / "out").read_text() == "first"  # it ended last
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), SystemExit(143)])
def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "out").write_text("old")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("old")

    def fail_halfway() -> None:
        with files.new_file(tmp_path / "out") as file, files.new_directory(tmp_path / "model") as directory:
            file.write_text("half")
            (directory / "a").write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail_halfway()
    assert (tmp_path / "out").read_text() == (tmp_path / "model" / "a").read_text() == "old"
    assert names(tmp_path) == ["model", "out"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_permissions_are_those_of_the_old_file_or_what_the_umask_leaves(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("private")
    (tmp_path / "old").chmod(0o600)
    before = os.umask(0o027)
    try:
        for name in ("old", "new"):
            with files.new_file(tmp_path / name) as temporary:
                temporary.unlink()  # as safetensors does, which writes a file of its own and renames it
                temporary.write_text("text")
                temporary.chmod(0o700)
        with files.new_directory(tmp_path / "model"):
            pass
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in names(tmp_path)}
    assert modes == {"old": 0o600, "new": 0o640, "model": 0o750}


def test_write_text_writes_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.fixture(params=["exchanged", "moved"])
def can_exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether the system exchanges two directories at once."""
    if request.param == "moved":
        monkeypatch.setattr(files.writing, "_exchange", lambda first, second: False)
    return request.param == "exchanged"


@pytest.mark.usefixtures("can_exchange")
def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for content in ({"a": "1", "b": "1"}, {"a": "2"}):
        with files.new_directory(tmp_path / "models" / "model") as directory:
            for name, text in content.items():
                (directory / name).write_text(text)
        assert {path.name: path.read_text() for path in (tmp_path / "models" / "model").iterdir()} == content
    assert names(tmp_path / "models") == ["model"]


@pytest.mark.usefixtures("can_exchange")
def test_an_old_directory_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").touch()
    with (
        pytest.warns(ClearheadWarning, match=r"\.model\.\w+\.(partial|old) is left over"),
        files.new_directory(tmp_path / "model") as directory,
    ):
        (directory / "new").touch()
    assert names(tmp_path / "model") == ["new"]


@pytest.mark.usefixtures("can_exchange")
def test_a_directory_is_replaced_and_the_old_one_kept(tmp_path: Path) -> None:
    for content in "12":
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / content).touch()
        (tmp_path / "run").mkdir(exist_ok=True)
        files.replace_keeping_old(tmp_path / "new", tmp_path / "run")
    assert [names(tmp_path / name) for name in ("run", "run.old-1", "run.old-2")] == [["2"], [], ["1"]]
    assert names(tmp_path) == ["run", "run.old-1", "run.old-2"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_directory_that_cannot_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    def busy(first: Path, second: Path) -> bool:
        if can_exchange:
            raise OSError("busy")
        return False

    rename = os.rename

    def rename_others(first: Path, second: Path) -> None:
        if (first.name, second.name) == ("new", "run"):
            raise OSError("busy")
        rename(first, second)

    monkeypatch.setattr(files.writing, "_exchange", busy)
    monkeypatch.setattr(os, "rename", rename_others)
    for name in ("new", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in {name}").touch()
    with pytest.raises(OSError, match="busy"):
        files.replace_keeping_old(tmp_path / "new", tmp_path / "run")
    assert names(tmp_path / "run") == ["in run"]
    assert "in new" in names(tmp_path / "new") or not can_exchange


def test_a_directory_above_that_cannot_be_flushed_costs_no_old_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> None:
        raise OSError("no flush")

    monkeypatch.setattr(files.writing, "_flush", failing)
    for name in ("new", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in {name}").touch()
    with suppress(OSError):
        files.replace_keeping_old(tmp_path / "new", tmp_path / "run")
    shutil.rmtree(tmp_path / "new", ignore_errors=True)  # as callers remove what did not take the place
    assert [names(tmp_path / name) for name in ("run", "run.old-1")] == [["in new"], ["in run"]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the test's file system may not exchange names")
def test_a_reader_never_finds_the_name_of_a_replaced_directory_missing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with files.new_directory(path) as directory:
        (directory / "a").write_text("0")
    missing: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            missing.extend([1] * (not path.exists()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(50):
        with files.new_directory(path) as directory:
            (directory / "a").write_text(str(number))
    done.set()
    watcher.join()
    assert not missing


@pytest.mark.parametrize("name", ["model", "model[1]"])
def test_readable_version_and_remove_leftovers_after_a_killed_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    with files.new_directory(path) as directory:
        (directory / "a").write_text("old")
    monkeypatch.setattr(files.writing, "_exchange", lambda first, second: False)
    rename, calls = os.rename, []

    def killed_after_the_old_one_is_aside(first: Path, second: Path) -> None:
        calls.append(second)
        if len(calls) == 3:
            raise KeyboardInterrupt
        rename(first, second)

    monkeypatch.setattr(os, "rename", killed_after_the_old_one_is_aside)
    with pytest.raises(KeyboardInterrupt), files.new_directory(path) as directory:
        (directory / "a").write_text("new")
    monkeypatch.undo()

    before = names(tmp_path)
    assert (files.readable_version(path) / "a").read_text() == "old"
    assert names(tmp_path) == before != [name]
    elsewhere = tmp_path.parent / f"{tmp_path.name}-link"  # which a writer follows
    elsewhere.symlink_to(path)
    assert (files.readable_version(elsewhere) / "a").read_text() == "old"
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == [name]
    assert files.readable_version(path) == path
    assert (path / "a").read_text() == "old"


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL")
def test_leftovers_of_a_killed_process_are_cleared_away(tmp_path: Path) -> None:
    program = f"""
import os, signal
from clearhead import files
with files.new_file({str(tmp_path / "out")!r}) as file, files.new_directory({str(tmp_path / "model")!r}) as directory:
    (directory / "a").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_a_json_hash_tells_values_not_layouts() -> None:
    assert files.json_sha256({"a": 1, "b": (1, 2)}) == files.json_sha256({"b": [1, 2], "a": 1})
    assert files.json_sha256({"a": 1}) != files.json_sha256({"a": 2})

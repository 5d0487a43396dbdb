"""Finished steps of long work: used again if they are of the same origin and whole, else said and made again."""

from __future__ import annotations

import hashlib

import pytest

from clearhead.errors import DataError
from clearhead.files.finished_steps import FinishedSteps


def begin(directory, origin, *, fails=True):
    """Finish a step with a file, and end with an error or without; return what was said."""
    said = []
    try:
        with FinishedSteps.of(directory, origin, said.append) as steps:
            if (found := steps.get("count")) is not None:
                said.append(f"found {found}")
            (directory / "numbers").write_bytes(b"1 2 3")
            steps.add("count", {"numbers": 3}, {"numbers": hashlib.sha256(b"1 2 3").hexdigest()})
            steps.are_kept = True
            if fails:
                raise RuntimeError
    except RuntimeError:
        pass
    return said


def test_steps_stay_after_an_error_and_go_at_the_end(tmp_path):
    directory = tmp_path / "parts"
    assert begin(directory, {"seed": 5}) == []
    (directory / ".numbers.0123456789abcdef.partial").touch()  # of a killed process
    assert begin(directory, {"seed": 5}) == ["found {'numbers': 3}"]
    assert sorted(path.name for path in directory.iterdir()) == ["count", "numbers", "origin"]
    assert begin(directory, {"seed": 5}, fails=False) == ["found {'numbers': 3}"]
    assert not directory.exists()


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        ({"seed": 5, "text": "a"}, {"seed": 7, "text": "a"}, "seed was 5 and now is 7"),
        ({"text": "a"}, {"text": "a", "seed": 7}, "seed was None and now is 7"),
        ({}, {}, "it is not known whether they are of the same"),
        ({"seed": 5}, {}, "it is not known whether they are of the same"),
    ],
)
def test_steps_of_another_origin_are_said_and_removed(tmp_path, before, now, reason):
    begin(tmp_path / "parts", before)
    (line,) = begin(tmp_path / "parts", now)
    assert line == f"the finished parts in {tmp_path / 'parts'} cannot be used, and are made again: {reason}"


@pytest.mark.parametrize("name", ["count", "numbers"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_not_used_and_nothing_is_written_through_it(tmp_path, name, exists):
    begin(tmp_path / "parts", {"seed": 5})
    (link := tmp_path / "parts" / name).rename(tmp_path / "mine")
    content = (tmp_path / "mine").read_bytes()
    link.symlink_to(tmp_path / ("mine" if exists else "none"))
    assert begin(tmp_path / "parts", {"seed": 5}) == [
        f"{link} is damaged (not what its checksum says), and is made again"
    ]
    assert (tmp_path / "mine").read_bytes() == content
    assert link.read_bytes() == content
    assert not link.is_symlink()


def test_an_origin_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FinishedSteps, "add", refuse)
    with pytest.raises(OSError, match="No space"), FinishedSteps.of(tmp_path / "parts", {"seed": 5}, print):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_directory_is_an_error_and_stays(tmp_path):
    (tmp_path / "parts").write_text("mine")
    with pytest.raises(DataError, match=r"cannot read .*origin: Not a directory"):
        begin(tmp_path / "parts", {"seed": 5})
    assert (tmp_path / "parts").read_text() == "mine"


def test_a_removed_step_is_not_finished(tmp_path):
    with FinishedSteps.of(tmp_path / "parts", {"seed": 5}, print) as steps:
        (file := steps.directory / "numbers").write_bytes(b"1 2 3")
        steps.add("count", 3, {"numbers": hashlib.sha256(b"1 2 3").hexdigest()})
        first = steps.sha256("count")
        steps.add("count", 3, {"numbers": hashlib.sha256(b"1 2 4").hexdigest()})
        assert steps.sha256("count") != first
        steps.remove("count", [str(file)])
        assert steps.get("count") is None
        assert not file.exists()

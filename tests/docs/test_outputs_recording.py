"""What bench/outputs.py records is the same each time, and a changed output is reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from benchmarks import BENCH

import output_materials
import outputs

CALLS = """# Calls that need no model.
clearhead --version
clearhead corpus convert pairs/few.«tsv|csv» out.tmx ; clearhead corpus stats out.tmx --json ; cp out.tmx copy.tmx
clearhead corpus stats - < pairs/few.tsv
clearhead corpus nothing
$ clearhead corpus stats pairs/nothing.tsv
>>> ch.presets.tiny().d_model
>>> ch.Terms.load("terms/«terms|malformed».tsv").found_in("drei")
"""
RECORD_TWICE = """
import sys
from pathlib import Path

import torch

import clearhead.cli.corpus
import clearhead.cli.main
import output_materials
import outputs

outputs.CALLS = Path("calls")
outputs.make_materials = lambda root, command: output_materials.write_files(root)
outputs.warm_up = lambda: None  # what these calls need, imported above, is not everything
for name in ("before.jsonl", "after.jsonl"):
    outputs.main(["record", name])
"""


OPEN_A_PIPE = """
from pathlib import Path

import output_processes

output_processes.SECONDS = 1
[result] = output_processes.run_command("$ clearhead corpus stats pipe.tsv", Path.cwd(), Path.cwd())
print(result.status)
"""
PATHS = os.pathsep.join([str(BENCH), *sys.path])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "calls").mkdir()
    (directory / "calls" / "few.txt").write_text(CALLS, encoding="utf-8")
    environment = {**os.environ, **outputs.ENVIRONMENT, "PYTHONPATH": PATHS}
    subprocess.run([sys.executable, "-c", RECORD_TWICE], cwd=directory, env=environment, check=True, timeout=600)
    return directory


def test_a_call_gives_its_status_streams_files_and_value(recorded):
    found = outputs.read(recorded / "before.jsonl")
    assert len(found) == 9
    version = found["clearhead --version"]
    assert version.pop("stdout").startswith("clearhead ")
    assert version == {
        "call": "clearhead --version",
        "group": "few",
        "status": 0,
        "stderr": "",
        "files": {},
        "removed": [],
    }
    converted = found[
        "clearhead corpus convert pairs/few.tsv out.tmx ; clearhead corpus stats out.tmx --json ; cp out.tmx copy.tmx"
    ]
    assert "<seg>vier fünf sechs</seg>" in converted["files"]["out.tmx"]
    assert converted["files"]["copy.tmx"] == converted["files"]["out.tmx"]
    assert json.loads(converted["stdout 2"])["rows"]["pairs"] == 4
    assert found["clearhead corpus nothing"]["status"] == 2
    assert found["$ clearhead corpus stats pairs/nothing.tsv"]["stderr"].startswith("clearhead: ")
    assert found[">>> ch.presets.tiny().d_model"]["value"] == "128"
    assert '"DataError"' in found['>>> ch.Terms.load("terms/malformed.tsv").found_in("drei")']["value"]


def test_run_command_ends_a_process_of_its_own_that_takes_too_long(tmp_path):
    os.mkfifo(tmp_path / "pipe.tsv")  # nobody writes to it
    done = subprocess.run(
        [sys.executable, "-c", OPEN_A_PIPE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PATHS},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == -signal.SIGKILL


def test_record_runs_processes_with_absolute_paths_of_python(monkeypatch):
    def execve(path, arguments, environment):
        raise SystemExit(environment["PYTHONPATH"])

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "/somewhere"]))
    monkeypatch.setenv("COLUMNS", "7")
    monkeypatch.setattr("os.execve", execve)
    with pytest.raises(SystemExit) as ended:
        outputs.main(["record", "never.jsonl"])
    assert ended.value.code == os.pathsep.join([os.path.abspath("src"), "/somewhere"])


def test_two_recordings_are_equal(recorded, capsys):
    assert outputs.compare(recorded / "before.jsonl", recorded / "after.jsonl", []) == 0
    assert capsys.readouterr().out == "9 and 9 calls: 0 differ, and 0 as allowed\n"


def test_a_changed_output_is_reported_unless_it_may_differ(recorded, tmp_path, capsys):
    lines = (recorded / "before.jsonl").read_text(encoding="utf-8")
    changed = tmp_path / "changed.jsonl"
    changed.write_text(lines.replace("vier fünf", "fünf vier"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        outputs.main(["compare", str(recorded / "before.jsonl"), str(changed)])
    assert ended.value.code == 1
    told = capsys.readouterr().out
    assert told.startswith(
        "clearhead corpus convert pairs/few.tsv out.tmx ; clearhead corpus stats out.tmx --json ; cp out.tmx copy.tmx\n"
    )
    assert "-files.out.tmx: " in told
    assert "+files.out.tmx: " in told
    assert told.endswith(" 1 differ, and 0 as allowed\n")
    assert outputs.compare(recorded / "before.jsonl", changed, ["clearhead corpus convert *"]) == 0


def test_a_call_of_one_recording_alone_is_reported(recorded, tmp_path, capsys):
    lines = (recorded / "before.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "shorter.jsonl").write_text("".join(lines[1:]), encoding="utf-8")
    assert outputs.compare(recorded / "before.jsonl", tmp_path / "shorter.jsonl", []) == 1
    assert "only in" in capsys.readouterr().out


def test_the_tables_name_a_thousand_calls_once_each():
    assert len(outputs.calls([])) >= 1000
    assert set(outputs.calls(["serve"]).values()) == {"serve"}


def test_calls_rejects_an_unknown_group():
    with pytest.raises(SystemExit, match="no group 'nothing'"):
        outputs.calls(["nothing"])


def test_alternatives_are_combined():
    assert list(outputs.alternatives("a «b|c» «d|»")) == ["a b d", "a b ", "a c d", "a c "]
    assert len(list(outputs.alternatives("«@texts»"))) == len(output_materials.TEXTS)

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from clearhead.cli.console import show_warnings_as_notices
from clearhead.errors import CompiledCoreWarning
from clearhead.kernels import library as core
from commands import clearhead


def test_warnings_of_our_own_are_a_line_on_stderr_and_others_are_left_alone(capsys):
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        show_warnings_as_notices()
        warnings.warn("it cannot be used", CompiledCoreWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "clearhead: it cannot be used\n"
    assert [str(warning.message) for warning in others] == ["something else"]


def test_control_characters_of_a_file_name_do_not_reach_the_terminal(tmp_path, capsys):
    name = "a\x1b]0;title\x07\u202etxt.\r\x9b2J"
    clearhead("corpus", "stats", tmp_path / f"{name}.tsv")
    assert r"a\x1b]0;title\x07\u202etxt.\r\x9b2J.tsv" in capsys.readouterr().err


TRANSLATE = """
import sys
from pathlib import Path
from clearhead.cli.main import run
from clearhead.kernels import library as core
core._record = lambda: Path(sys.argv[1])
run(["translate", *sys.argv[2:]])
"""


def write_damaged_core(directory):
    """Write a library that is not what its record says; return the record."""
    directory.joinpath("_core.so").write_bytes(b"\x7fELF")
    record = directory / "_core.sha256"
    record.write_text(f"{'0' * 64}  _core.so\n")
    return record


@pytest.fixture
def damaged_core(tmp_path, monkeypatch):
    kept = (core._load, core.library, core.form)
    for function in kept:
        function.cache_clear()
    record = write_damaged_core(tmp_path)
    monkeypatch.setattr(core, "_record", lambda: record)
    yield record.with_name("_core.so")
    for function in kept:
        function.cache_clear()


def test_a_damaged_core_is_one_line_and_pytorch_translates(damaged_core, make_model_dir, write_lines, capsys):
    lines = write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert clearhead("translate", make_model_dir(), lines) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    (said,) = (line for line in err.splitlines() if line.startswith("clearhead: the compiled core"))
    assert f"is not in use: {damaged_core} is damaged" in said


@pytest.mark.slow
def test_with_a_damaged_core_pytorch_translates_and_one_line_says_why(make_model_dir, write_lines, tmp_path):
    core = write_damaged_core(tmp_path)
    model, lines = make_model_dir(), write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    arguments = [sys.executable, "-c", TRANSLATE, core, model, lines]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("clearhead: the compiled core")]
    assert len(told) == 1
    assert f"is not in use: {core.with_name('_core.so')} is damaged" in told[0]

"""The public face: every name it lists can be had, and nothing heavy is loaded before it is asked for."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead


@pytest.mark.parametrize("name", clearhead.__all__)
def test_every_public_name_resolves(name):
    value = getattr(clearhead, name)
    home = clearhead._HOMES.get(name)
    expected = (
        importlib.import_module("clearhead.config.presets")
        if home is None
        else getattr(importlib.import_module(home), name)
    )
    assert value is expected


def test_every_public_name_has_a_home_and_every_home_a_public_name():
    assert {*clearhead._HOMES, "presets"} == set(clearhead.__all__)


def test_dir_lists_the_public_names():
    assert set(clearhead.__all__) <= set(dir(clearhead))
    assert "__version__" in dir(clearhead)


def test_other_names_are_refused_by_name():
    with pytest.raises(AttributeError, match="module 'clearhead' has no attribute 'Transfromer'"):
        clearhead.Transfromer  # noqa: B018


def test_type_checkers_see_no_module_getattr():
    visible = [
        str(path)
        for path in Path(clearhead.__file__).parent.rglob("__init__.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if "__getattr__" in ast.unparse(node) and not ast.unparse(node).startswith("if not TYPE_CHECKING:")
    ]
    assert visible == []


@pytest.mark.slow
def test_mypy_names_a_misspelt_public_name_and_types_the_others(tmp_path):
    program = tmp_path / "program.py"
    names = "\n".join(f"ch.{name}" for name in clearhead.__all__)
    program.write_text(
        f"import clearhead as ch\n{names}\nch.Transfromer\nreveal_type(ch.Terms.load('a.tsv'))\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [line for line in found.splitlines() if line.startswith(str(program))]
    assert len(lines) == 2, found
    assert 'Module has no attribute "Transfromer"' in lines[0]
    assert "clearhead.translation.terminology.Terms" in lines[1]

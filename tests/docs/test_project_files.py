"""The files for whoever picks the project up are well-formed, and say what the others say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_runs_the_tests_on_every_python_that_is_promised():
    job = read(".github/workflows/test.yml")["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert matrix["python"] == [match[1] for match in classifiers if match]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert job["runs-on"] == "${{ matrix.os }}"
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test"]


def test_the_citation_names_this_version_and_licence():
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_commits_are_checked_by_the_linter_that_make_uses():
    ruff = read(".pre-commit-config.yaml")["repos"][0]
    assert f"ruff=={ruff['rev'].removeprefix('v')}" in (ROOT / "constraints.txt").read_text().split()

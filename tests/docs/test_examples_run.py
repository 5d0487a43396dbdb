"""Every example runs as a reader would run it, prints what the page of concepts says, and stays short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.paper.concepts import CONCEPTS
from every_run import slow

ROOT = Path(__file__).parents[2]
OF_THIS_MACHINE = {"bert-generation", "masked-word", "patches-and-frames", "reverse-digits"}
"""They print numbers of this processor or of this version of transformers; what they assert holds on all."""


@pytest.mark.parametrize("name", [one.name if one.name == "soft-dictionary" else slow(one.name) for one in CONCEPTS])
def test_an_example_prints_what_the_page_says(name):
    path = ROOT / "examples" / f"{name.replace('-', '_')}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    printed = done.stdout
    if name in OF_THIS_MACHINE:
        page, printed = (re.sub(r"\d+\.?\d*", "#", text) for text in (page, printed))
    assert f"```\n{printed}```" in page


def test_the_program_of_a_concept_is_short_and_every_example_is_listed():
    programs = [one.program for one in CONCEPTS]
    assert [path.name for path in programs if len(path.read_text(encoding="utf-8").splitlines()) >= 60] == []
    listed = re.findall(r"\]\((\w+)\.py\)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))

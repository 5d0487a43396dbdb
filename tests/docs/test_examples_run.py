"""Every example runs as a reader would run it, holds what it claims, and stays short."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))

FINDINGS = {
    "bert_and_gpt": "GPT, the next word",
    "bert_generation": "hidden states of 2 + 2 layers, each [1, 7, 128]",
    "logits_to_text": "beam 2: a cat sleeps, probability 0.324",
    "masked_word": "the bird [MASK] in the tree: sings",
    "masks": "LEAK: it can read it",
    "one_attention_layer": "equal to ch.MultiHeadAttention",
    "positions": "shift by 20: one matrix moves all 28 positions",
    "reverse_digits": "held-out strings are reversed without a mistake",
    "soft_dictionary": "how many legs has a bat?",
}
"""Example to a part of what it prints; the numbers are asserted in the example itself."""


def run(name: str, *arguments: str) -> str:
    """Run an example in a process of its own, with warnings as errors, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"},
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


first_run = functools.cache(run)


@pytest.mark.parametrize("name", [path.stem for path in FILES if path.stem != "reverse_digits"])
def test_an_example_holds_what_it_claims(name):
    assert FINDINGS[name] in first_run(name)


@pytest.mark.usefixtures("fonts")
def test_digits_are_reversed_and_the_attention_is_drawn(tmp_path):
    picture = tmp_path / "attention.png"
    can_draw = importlib.util.find_spec("matplotlib") is not None
    printed = run("reverse_digits", *(["--png", str(picture)] if can_draw else []))
    assert FINDINGS["reverse_digits"] in printed
    shades = re.findall(r"^   \d (.{17})$", printed, flags=re.MULTILINE)
    darkest = [max(range(9), key=lambda place, row=row: " .:-=+*#%@".index(row[2 * place])) for row in shades]
    assert darkest == [7, 6, 5, 4, 3, 2, 1, 0]
    assert not can_draw or picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("module", ["matplotlib", ""])
def test_a_picture_that_cannot_be_made_is_told_before_anything_is_learned(tmp_path, module):
    # As where matplotlib is not installed, or where there is no such folder.
    code = (
        f"import runpy, sys; sys.modules[{module!r}] = None; sys.argv[1:] = ['--png', {str(tmp_path / 'no' / 'x')!r}]"
    )
    path = str(EXAMPLES / "reverse_digits.py")
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; runpy.run_path({path!r}, run_name='__main__')"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: argument --png: " in done.stderr
    assert "Traceback" not in done.stderr


def test_examples_draw_the_same_numbers_every_time():
    assert run("logits_to_text") == first_run("logits_to_text")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_under_eighty_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


def test_every_example_is_in_the_table_and_every_finding_has_one():
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \|", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(FINDINGS) == [path.stem for path in FILES]

"""Every example runs as a reader would run it, holds what it claims, and stays short."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
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
LEARNS = {
    "bert_and_gpt": {"range(300)": "range(2)"},
    "reverse_digits": {
        "STEPS, SHADES = 1_000": "STEPS, SHADES = 20",
        "step % 200": "step % 10",
        "range(20)": "range(1)",
    },
}
"""Example that learns for seconds to parts of its code, and what makes them brief."""
LAST_LINES = {
    "bert_and_gpt": r"BERT, a masked word +( +\d+%){8}\n  GPT, the next word +( +\d+%){8}\n$",
    "reverse_digits": r"step    20  loss \d(?:.|\n)*\n     1 4 1 4 2 1 3 5 </s>\n(   \d .{17}\n){8}$",
}


def run_as_a_reader(name: str) -> str:
    """Run an example in a process of its own, with warnings as errors, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def run_briefly(monkeypatch, capsys) -> Callable[..., str]:
    """Return a function that runs an example on a few steps of learning, and without what it asserts of more."""

    def run(name: str, *arguments: str) -> str:
        path = EXAMPLES / f"{name}.py"
        text = path.read_text(encoding="utf-8")
        for part, brief in LEARNS[name].items():
            assert text.count(part) == 1, part
            text = text.replace(part, brief)
        monkeypatch.setattr(sys, "argv", [path.name, *arguments])
        exec(compile(text, path, "exec", optimize=1), {"__name__": "__main__"})
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., str]:
    """Return a function that runs an example in this process, where warnings are errors, and returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=pytest.mark.slow if path.stem in LEARNS else ())
        for path in FILES
        if path.stem != "reverse_digits"
    ],
)
def test_an_example_holds_what_it_claims(name, run):
    assert FINDINGS[name] in run(name)


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("name", LEARNS)
def test_an_example_that_learns_for_seconds_runs_to_its_end(name, tmp_path, run_briefly):
    picture = tmp_path / "attention.png"
    is_drawn = name == "reverse_digits" and importlib.util.find_spec("matplotlib") is not None
    printed = run_briefly(name, *(["--png", str(picture)] if is_drawn else []))
    assert re.search(LAST_LINES[name], printed)
    assert not is_drawn or picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.usefixtures("fonts")
def test_digits_are_reversed_and_the_attention_is_drawn(tmp_path, run):
    picture = tmp_path / "attention.png"
    can_draw = importlib.util.find_spec("matplotlib") is not None
    printed = run("reverse_digits", *(["--png", str(picture)] if can_draw else []))
    assert FINDINGS["reverse_digits"] in printed
    shades = re.findall(r"^   \d (.{17})$", printed, flags=re.MULTILINE)
    darkest = [max(range(9), key=lambda place, row=row: " .:-=+*#%@".index(row[2 * place])) for row in shades]
    assert darkest == [7, 6, 5, 4, 3, 2, 1, 0]
    assert not can_draw or picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("module", ["matplotlib", ""])
def test_a_picture_that_cannot_be_made_is_told_before_anything_is_learned(tmp_path, module, run, monkeypatch, capsys):
    # As where matplotlib is not installed, or where there is no such folder.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match="2"):
        run("reverse_digits", "--png", str(tmp_path / "no" / "x"))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: argument --png: " in printed.err


def test_an_example_draws_the_same_numbers_every_time(run):
    assert run("logits_to_text") == run("logits_to_text")


@pytest.mark.slow
def test_examples_draw_the_same_numbers_every_time_in_a_process_of_their_own_too(run):
    assert run_as_a_reader("logits_to_text") == run("logits_to_text")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_under_eighty_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80


def test_every_example_is_in_the_table_and_every_finding_has_one():
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \|", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(FINDINGS) == [path.stem for path in FILES]

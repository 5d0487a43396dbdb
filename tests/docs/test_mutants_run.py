"""bench/mutants.py changes one place at a time, runs the tests that call it, and tells which changes none notices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import run_benchmark

from mutations import counterparts, draw, mutants_of

CHECKED = "def lowered(number: int) -> int:\n    return number - 1\n"
UNCHECKED = "def doubled(number: int) -> int:\n    return number * 2\n"
TESTS = """from multiprocessing import get_context
from tiny.numbers import doubled, lowered

def test_lowered():
    assert lowered(7) == 6

def test_doubled():
    doubled(5)
    process = get_context("spawn").Process(target=doubled, args=(5,))
    process.start()
    process.join()
    assert process.exitcode == 0
"""


def write_tree(tree: Path, module: str, text: str) -> Path:
    files = {f"src/tiny/{module}.py": text, "tests/test_numbers.py": TESTS, "pytest.ini": "[pytest]"}
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content, encoding="utf-8")
    return tree


def test_map_and_run_name_the_test_that_fails_and_what_survives(tmp_path):
    tree = write_tree(tmp_path / "tree", "numbers", CHECKED + UNCHECKED + "LARGEST = 7\n")
    options = ["--tree", str(tree), "--load", "json"]
    calls, results = tmp_path / "map.jsonl", tmp_path / "mutants.jsonl"
    run_benchmark("mutants.py", "map", str(calls), *options)
    assert {"tiny/numbers.py:doubled"} == set(json.loads(calls.read_text().splitlines()[1])["functions"])
    [outside] = (mutant for mutant in draw(tree, 3) if not mutant.function)
    known = json.dumps({**outside._asdict(), "outcome": "timeout"}) + "\n"
    results.write_text(known)  # of a run that was stopped
    printed = run_benchmark("mutants.py", "run", str(results), *options, "--map", str(calls), "--seed", "3")
    assert sorted(printed.split()) == ["1", "1", "1", "killed", "survived", "timeout"]
    assert results.read_text().startswith(known)
    entries = {entry["function"]: entry for entry in map(json.loads, results.read_text().splitlines())}
    assert entries["lowered"]["outcome"] == "killed"
    assert entries["lowered"]["by"] == "tests/test_numbers.py::test_lowered (call)"
    assert entries["doubled"]["outcome"] == "survived"
    assert entries["doubled"]["tests"] == 2
    assert (tree / "src/tiny/numbers.py").read_text() == CHECKED + UNCHECKED + "LARGEST = 7\n"


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("a = b < c", ["a = b <= c"]),
        ("a = b is not c", ["a = b is c"]),
        ("a = b and c and d", ["a = b or c and d"]),
        ("a = 'é' in b", ["a = 'é' not in b"]),
        ("a = b + 'c'", []),
        ("a = b * 2", ["a = b + 2", "a = b * 3"]),
        ("a: Literal[2] = True", ["a: Literal[2] = False"]),
        ("a = f'{b + 1}'", []),
        ("a = [b for b in c if d]", ["a = [b for b in c if (not (d))]"]),
        ("a.append(b)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("if not a: del b", ["if a: del b", "if (not (not a)): del b", "if not a: pass"]),
        ("def a(): return b", ["def a(): return None"]),
        ("'''1 < 2'''", []),
    ],
)
def test_mutants_of_a_line(line, changed):
    assert sorted(mutant.after for mutant in mutants_of("a.py", line)) == sorted(changed)


def test_mutants_have_whole_lines():
    text = "b = 'é'\nclass A:\n    def f(self):\n        self.x(\n            b,\n        )\n        b[0]()\n"
    first, *_ = mutants_of("a.py", text)
    assert (first.function, first.line, first.column, first.kind) == ("A.f", 4, 8, "statement")
    assert (first.before, first.after) == ("        self.x(\n            b,\n        )\n", "        pass\n")


def test_mutants_of_the_package_are_programs():
    source = Path(__file__).parents[2] / "src"
    for file in ("clearhead/training/schedule.py", "clearhead/decoding/repetition.py"):
        text = (source / file).read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for mutant in mutants_of(file, text):
            after = lines[mutant.line - 1 + mutant.before.count("\n") :]
            assert mutant.before != mutant.after
            compile("".join([*lines[: mutant.line - 1], mutant.after, *after]), file, "exec")


def test_counterparts_are_in_functions_of_the_same_name(tmp_path):
    before = write_tree(tmp_path / "before", "numbers", CHECKED + UNCHECKED)
    moved = "class Numbers:\n" + "".join(f"    {line}\n" for line in UNCHECKED.splitlines())
    after = write_tree(tmp_path / "after", "classes", moved)
    [(earlier, later)] = counterparts(after, list(draw(before, 1)))
    assert (earlier.function, later.function, later.file) == ("doubled", "Numbers.doubled", "src/tiny/classes.py")
    assert earlier.after.strip() == later.after.strip()

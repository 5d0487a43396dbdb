"""Mutation testing: change one place of the package at a time, and see whether a test fails.

python bench/mutants.py map build/map.jsonl                                     # which functions each test calls
python bench/mutants.py run build/mutants.jsonl --map build/map.jsonl --count 300 --seed 1
python bench/mutants.py run build/there.jsonl --map build/there-map.jsonl --tree ../there --again build/mutants.jsonl

A mutant that no test fails has survived: either no test checks that line, or the change makes no difference. Only a
copy of the tree is changed. A run that was stopped goes on. The third makes the changes of an earlier file in another
tree, at the same lines of a function of the same name, and so shows which tests a change of the code has lost.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from mutations import Mutant, counterparts, draw

ROOT = Path(__file__).parents[1]
LOADED_ONCE = ("torch", "numpy", "pydantic", "typer.testing", "hypothesis", "tokenizers", "fastapi")
"""What most tests import. Each run of tests is forked from a process that has it."""
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
FIRST_FILES, MOST_FILES = 2, 8
"""Files of tests that are run first, and how many of those that have the name of a function are run."""
PLAIN = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def test_of(item: pytest.Item) -> str:
    """Return the name of a test without the parameters of its case."""
    return item.nodeid.split("[")[0]


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.split("::")[0]


class Calls:
    """A plugin of pytest: write for each test the functions that it and its fixtures call, and its time."""

    def __init__(self, source: Path, file: Path, most_cases: int = 2) -> None:
        self.source, self.file, self.most_cases = f"{source}{os.sep}", file, most_cases
        self.codes: set[CodeType] = set()
        self.shared: dict[Any, set[CodeType]] = {}
        self.known = {entry["test"] for entry in read(file)}
        self.cases: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out tests that the file has, and most cases of the others."""
        some = []
        for item in items:
            self.cases[test_of(item)] += 1
            if test_of(item) not in self.known and self.cases[test_of(item)] <= self.most_cases:
                some.append(item)
        items[:] = some

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; returning None, it is not asked about the lines."""
        self.codes.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        """Keep the calls of a fixture that several tests share."""
        outer, self.codes = self.codes, set()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared[fixturedef] = self.codes
            self.codes |= outer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
        """Write the entry of a test."""
        self.codes, start = set(), time.perf_counter()
        threading.settrace(self.note)
        sys.settrace(self.note)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            used = [one for name in item.fixturenames for one in item._fixtureinfo.name2fixturedefs.get(name, ())]
            codes = self.codes.union(*(self.shared.get(one, ()) for one in used))
            functions = {
                f"{code.co_filename.removeprefix(self.source)}:{code.co_qualname.split('.<locals>')[0]}"
                for code in codes
                if code.co_filename.startswith(self.source)
            }
            entry = {
                "test": test_of(item),
                "seconds": round(time.perf_counter() - start, 3),
                "cases": self.cases[test_of(item)],
                "functions": sorted(functions),
            }
            with self.file.open("a") as out:
                out.write(json.dumps(entry) + "\n")


class Chosen:
    """A plugin of pytest: take tests in the order of a list, until one fails or the time is over."""

    def __init__(self, tests: list[str], seconds: float, result: Path) -> None:
        self.places = {test: at for at, test in reversed(list(enumerate(tests)))}
        self.end, self.result, self.failed, self.number = time.monotonic() + seconds, result, "", 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out all other tests; the list has names of tests and of whole files."""
        last = len(self.places)
        places = {
            item: min(self.places.get(name, last) for name in (test_of(item), file_of(test_of(item)))) for item in items
        }
        items[:] = sorted((item for item in items if places[item] < last), key=places.__getitem__)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid} (import)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first failure."""
        if report.failed:
            self.failed = self.failed or f"{report.nodeid} ({report.when})"

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Stop when the time is over."""
        self.number += 1
        if time.monotonic() > self.end:
            item.session.shouldstop = "the time is over"

    def pytest_sessionfinish(self) -> None:
        """Write what happened."""
        self.result.write_text(json.dumps({"by": self.failed, "tests": self.number}), encoding="utf-8")


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """Yield a copy of a tree, beside which is what is beside the tree."""
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        copy = Path(name, "tree")
        shutil.copytree(tree, copy, ignore=NOT_COPIED, symlinks=True)
        if (tree.parent / "shared").exists():
            Path(name, "shared").symlink_to(tree.parent / "shared")
        yield copy


def run_tests(copy: Path, arguments: list[str], plugin: object, seconds: float | None = None) -> int | None:
    """Run pytest in a process of its own; return its exit status, or `None` if it took longer than that."""

    def child() -> None:
        os.setsid()
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy / "src")
        here = str(Path(__file__).parent)  # last: processes that tests spawn import this program
        sys.path[:] = [str(copy / "src"), *(entry for entry in sys.path if entry != here), here]
        if seconds is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
        os._exit(pytest.main([*PLAIN, *arguments], plugins=[plugin]))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(None if seconds is None else 2 * seconds)
    late = process.is_alive()
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return None if late or process.exitcode == -signal.SIGXCPU else process.exitcode


def write_map(file: Path, tree: Path, tests: list[str]) -> None:
    """Run tests, of each at most two cases, and write what they call."""
    with copied(tree) as copy:
        run_tests(copy, tests, Calls(copy / "src", file))


class Tests:
    """Which tests may notice a mutant, by a map and by their texts."""

    def __init__(self, tree: Path, file: Path | None) -> None:
        self.texts = {
            path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(tree.glob("tests/**/test_*.py"))
        }
        self.seconds: dict[str, float] = {}
        self.callers: dict[str, set[str]] = defaultdict(set)
        entries = read(file) if file else []
        for entry in (entry for entry in entries if file_of(entry["test"]) in self.texts):
            self.seconds[entry["test"]] = entry["seconds"] * entry["cases"]
            for function in entry["functions"]:
                self.callers[function].add(entry["test"])

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """Return tests that call the function, then files that have its name or are named as the module.

        Those of the module are first, then those of its room, and the fast ones. Of a line outside functions, the
        files are those that have its first name. Where there are none, they are those named as the folder.
        """
        path = Path(mutant.file.removeprefix("src/"))
        stem, room = f"test_{path.stem.strip('_')}", f"/{path.parts[1]}/"
        name = mutant.function.split(".")[-1] or "".join(re.findall(r"[^\W\d]\w+", mutant.before)[:1])

        def order(test: str) -> tuple[bool, bool, float]:
            return stem not in file_of(test), room not in test, self.seconds.get(test, 0.0)

        calling = sorted(self.callers[f"{path.as_posix()}:{mutant.function}"], key=order)
        files = [file for file, text in self.texts.items() if stem in file or re.search(rf"\b{name}\b", text)]
        if not calling and not files:
            files = [file for file in self.texts if path.parts[-2] in file]
        files = sorted(dict.fromkeys([*map(file_of, calling), *sorted(files, key=order)[:MOST_FILES]]), key=order)
        return [test for test in [*calling, *files] if file_of(test) in files[: 2 * MOST_FILES]]


def read(file: Path) -> list[dict[str, Any]]:
    """Return the entries of a file with one JSON value a line; a file that is absent has none."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def try_mutant(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> dict[str, Any]:
    """Change the copy, run tests until one fails, and change it back; return what happened."""
    path, result = copy / mutant.file, copy.parent / "result.json"
    cached = Path(importlib.util.cache_from_source(path))
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    at, start = mutant.line - 1, time.monotonic()
    number, by = 0, ""
    changed = [*lines[:at], mutant.after, *lines[at + len(mutant.before.splitlines()) :]]
    files = list(dict.fromkeys(map(file_of, tests)))
    try:
        cached.unlink(missing_ok=True)  # its time and size may be those of the changed file
        path.write_text("".join(changed), encoding="utf-8")
        for some in (files[:FIRST_FILES], files[FIRST_FILES:]):  # to import all of them takes longer than most tests
            left = seconds - (time.monotonic() - start)
            if some and not by and left > 0:
                result.write_text('{"by": "", "tests": 0}', encoding="utf-8")
                status = run_tests(copy, ["-x", *some], Chosen(tests, left, result), seconds + 20)
                found = json.loads(result.read_text(encoding="utf-8"))
                number += found["tests"]
                expected = status in (0, 1, 2, 5)  # all pass, one fails, the time is over, there are none
                by = found["by"] or ("" if expected else "timeout" if status is None else f"exit status {status}")
    finally:
        cached.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")
    outcome = by if by == "timeout" else "killed" if by else "survived"
    spent = round(time.monotonic() - start, 1)
    return {**mutant._asdict(), "outcome": outcome, "by": by, "tests": number, "seconds": spent}


def run(file: Path, tree: Path, mutants: Iterator[Mutant], tests: Tests, seconds: float) -> None:
    """Try mutants that are not yet in the file, append one line for each, and print the counts."""
    known = {(entry["file"], entry["line"], entry["column"], entry["after"]) for entry in read(file)}
    with copied(tree) as copy:
        for mutant in mutants:
            if (mutant.file, mutant.line, mutant.column, mutant.after) in known:
                continue
            entry = try_mutant(copy, mutant, tests.for_mutant(mutant), seconds)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    print(*(f"{outcome} {number}" for outcome, number in Counter(entry["outcome"] for entry in read(file)).items()))


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["map", "run"])
    parser.add_argument("file", type=Path, help="where lines of JSON are appended")
    parser.add_argument("tests", nargs="*", default=["tests"], help="of map: folders or files of tests")
    parser.add_argument("--tree", type=Path, default=ROOT, help="with src and tests in it (this repository)")
    parser.add_argument("--load", nargs="*", default=LOADED_ONCE, help="modules that all tests import")
    parser.add_argument("--map", type=Path, help="of run: what map wrote")
    parser.add_argument("--count", type=int, default=100, help="of run: the number of mutants (100)")
    parser.add_argument("--seed", type=int, default=1, help="of run: which mutants (1)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of run: time for the tests of one mutant (30)")
    parser.add_argument("--again", type=Path, help="of run: the file of a run of another tree, whose mutants are tried")
    parser.add_argument("--outcome", help="of run: take only those mutants of the other run, such as survived")
    args = parser.parse_args()
    for name in args.load:
        with suppress(ImportError):
            importlib.import_module(name)
    tree = args.tree.resolve()
    if args.step == "map":
        write_map(args.file.absolute(), tree, args.tests)
        return
    if args.again:
        earlier = [
            Mutant(*(entry[field] for field in Mutant._fields))
            for entry in read(args.again)
            if args.outcome in (None, entry["outcome"])
        ]
        mutants = (there for _, there in counterparts(tree, earlier))
    else:
        mutants = draw(tree, args.seed)
    run(args.file, tree, islice(mutants, args.count), Tests(tree, args.map), args.seconds)


if __name__ == "__main__":
    main()

"""`make benchmarks` runs what fits into its time, says what it left out, and shows every figure with its spread."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lxml import etree

import run_all

DOCS = Path(__file__).parents[2] / "docs"
FOUND = {
    "train.py": {
        "missing": {"eole": "skipped: eole is not installed; to have it: pip install eole"},
        "cases": [
            {
                "name": "tiny",
                "about": "4+4 layers",
                "candidates": {
                    "torch.nn": {"windows": [1000, 2000, 1500]},
                    "clearhead": {"windows": [3000, 2900, 3100]},
                },
            }
        ],
    },
    "translate.py": {
        "missing": {},
        "cases": [
            {
                "name": "student",
                "about": "6+2 layers",
                "beams": [{"beam": 5, "runs": [{"batch": 64, "engines": {"clearhead": {"windows": [70.0, 50.0]}}}]}],
            }
        ],
    },
}
"""What the benchmarks print, in short."""


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """Let each benchmark take seven minutes of a clock, and print `FOUND`."""
    clock = SimpleNamespace(now=0.0, run=[], fails=set())

    def run(command: list[str], **settings: Any) -> SimpleNamespace:
        if command[0] == "git":
            return SimpleNamespace(stdout="0123456789ab-dirty\n")
        name = Path(command[1]).name
        clock.run.append((name, settings["timeout"]))
        if settings["timeout"] < 7 * 60:
            raise subprocess.TimeoutExpired(command, settings["timeout"])
        clock.now += 7 * 60
        return SimpleNamespace(returncode=int(name in clock.fails), stdout=json.dumps(FOUND[name]))

    monkeypatch.setattr(run_all.subprocess, "run", run)
    monkeypatch.setattr(run_all.time, "monotonic", lambda: clock.now)
    return clock


def last_of(minutes: float, *, quick: bool) -> dict[str, Any]:
    """Return the results after the last benchmark."""
    *_, last = run_all.run_all(minutes, quick=quick)
    return last


def test_an_hour_has_room_for_all_that_fits(clock):
    results = last_of(40, quick=False)
    *fitting, last = run_all.JOBS
    assert [name for name, _ in clock.run] == [job.command.split()[0] for job in fitting]
    seconds = [seconds for _, seconds in clock.run]
    assert seconds == sorted(seconds, reverse=True)
    assert 7 * 60 < seconds[-1] < seconds[0] <= 40 * 60
    reasons = [one.get("left_out") for one in results["benchmarks"]]
    assert reasons == [*[None] * len(fitting), f"it takes about {last.minutes} minutes, and 12 were left"]
    assert results["machine"]["commit"] == "0123456789ab-dirty"
    assert "commit `0123456789ab` with changes, at most 40 minutes |" in run_all.page(results)
    assert "speed means nothing" not in run_all.page(results)
    assert results["benchmarks"][0]["seconds"] == 420


def test_benchmark_that_fails_or_does_not_end_is_left_out_with_the_reason(clock):
    clock.fails = {"train.py"}
    results = last_of(12, quick=True)
    assert [one.get("left_out") for one in results["benchmarks"]] == [
        "it ended with status 1",
        "it had not ended after 5.0 minutes",
    ]
    assert "Left out: it ended with status 1.\n" in run_all.page(results)
    assert "toys, whose speed means nothing" in run_all.page(results)


def test_measurements_before_an_interrupt_are_kept(clock, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "9-9.svg").touch()  # of an earlier run
    run = run_all.subprocess.run

    def stopped(command: list[str], **settings: Any) -> SimpleNamespace:
        if Path(command[1]).name == "translate.py":
            raise KeyboardInterrupt
        return run(command, **settings)

    monkeypatch.setattr(run_all.subprocess, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run_all.main(["--out", str(tmp_path)])
    results = json.loads((tmp_path / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    assert results["benchmarks"][0]["tables"][0]["rows"]["clearhead"] == [3000, 2900, 3100]
    assert [one.get("left_out") for one in results["benchmarks"]] == [
        None,
        *["the run was stopped before it"] * (len(run_all.JOBS) - 1),
    ]
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8") == run_all.page(results, docs=docs_from(tmp_path))
    assert [file.name for file in (tmp_path / "benchmarks").glob("*.svg")] == ["0-0.svg"]


def docs_from(directory: Path) -> str:
    return f"{os.path.relpath(run_all.BENCH.parent / 'docs', directory.resolve())}/"


@pytest.mark.parametrize("wrong", ["out", "page", "results"])
def test_files_that_cannot_be_used_are_named_before_anything_runs(wrong, clock, tmp_path, capsys):
    (tmp_path / "file").write_text("no JSON", encoding="utf-8")
    (tmp_path / "page" / "benchmarks.md").mkdir(parents=True)
    arguments = {
        "out": ["--out", str(tmp_path / "file")],
        "page": ["--out", str(tmp_path / "page")],
        "results": ["--page", str(tmp_path / "file"), "--out", str(tmp_path)],
    }
    with pytest.raises(SystemExit, match="2"):
        run_all.main(arguments[wrong])
    assert str(tmp_path / {"page": "page/benchmarks.md"}.get(wrong, "file")) in capsys.readouterr().err
    assert clock.run == []


def test_without_git_the_commit_is_unknown(clock, monkeypatch):
    monkeypatch.setattr(run_all.shutil, "which", lambda name: None)
    assert "commit unknown, at most" in run_all.page(last_of(15, quick=False))


def test_the_page_has_the_median_and_the_spread_of_every_figure(clock, tmp_path, capsys):
    run_all.main(["--minutes", "15", "--out", str(tmp_path)])
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "| clearhead | 3,000 | 2,900 to 3,100 | 1.00 |\n| torch.nn | 1,500 | 1,000 to 2,000 | 0.50 |\n" in page
    assert "| clearhead | 60 | 50 to 70 | 1.00 |" in page
    assert "- Left out: eole is not installed; to have it: pip install eole" in page
    assert "python bench/train.py --json --cases tiny --steps 4\n" in page
    named = re.findall(r"!\[[^]]+\]\((.+?)\)", page)
    assert named == ["benchmarks/0-0.svg", "benchmarks/1-0.svg"]
    drawing = etree.parse(tmp_path / named[0])
    widths = [float(bar.get("width")) for bar in drawing.iterfind(".//{*}rect") if bar.get("height") == "16"]
    assert widths == [pytest.approx(440 * 3000 / 3100, abs=0.1), pytest.approx(440 * 1500 / 3100, abs=0.1)]
    (tmp_path / "again").mkdir()
    run_all.main(["--page", str(tmp_path / "benchmarks" / "results.json"), "--out", str(tmp_path / "again")])
    assert (tmp_path / "again" / "benchmarks" / "0-0.svg").read_bytes() == (tmp_path / named[0]).read_bytes()
    assert len(clock.run) == 2
    assert capsys.readouterr().out.endswith("benchmarks.md\n")


def test_a_busy_machine_is_named_so(clock, monkeypatch):
    monkeypatch.setattr(run_all.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(run_all.os, "getloadavg", lambda: (9.0, 0.0, 0.0))
    assert "**The machine was busy**: 9 processes shared its cores." in run_all.page(last_of(15, quick=False))
    monkeypatch.setattr(run_all.os, "getloadavg", lambda: (2.0, 0.0, 0.0))
    assert "busy" not in run_all.page(last_of(15, quick=False))


def test_the_page_of_the_docs_is_that_of_its_results():
    results = json.loads((DOCS / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    assert not results["quick"]
    renew = "run: python bench/run_all.py --page docs/benchmarks/results.json --out docs"
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == run_all.page(results), renew
    for name, picture in run_all.pictures(results).items():
        assert (DOCS / "benchmarks" / name).read_text(encoding="utf-8") == picture, renew


@pytest.mark.slow
def test_the_benchmarks_themselves_run_on_toys():
    results = last_of(10, quick=True)
    assert [one.get("left_out") for one in results["benchmarks"]] == [None, None]
    assert all(table["rows"]["clearhead"] for one in results["benchmarks"] for table in one["tables"])

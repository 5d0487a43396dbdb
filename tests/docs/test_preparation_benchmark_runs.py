"""The benchmark of the preparation prepares the same data by one process and by two."""

from __future__ import annotations

import re

import pytest
from benchmarks import run_benchmark


@pytest.mark.parametrize("threads", ["one", "all"])
def test_preparations_by_any_number_of_processes_are_timed_and_compared(tmp_path, threads):
    for name in ("de", "en"):
        lines = [f"{name} {number} {'words and ' * (number % 5)}end." for number in range(97)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    files = ["--source", str(tmp_path / "de"), "--target", str(tmp_path / "en")]
    options = ["--pairs", "803", "--processes", "2", "1", "--rounds", "1", "--threads", threads]
    printed = run_benchmark("preparation.py", *files, *options)
    runs = re.findall(
        r"^(\d) processes: [\d.]+ s, \d+ \+ \d+ MB, processor time [\d.]+ \+ [\d.]+ s, load [\d.]+; "
        r"reading and cleaning .*, tokenising ",
        printed,
        re.M,
    )
    assert runs == ["2", "1"]
    assert re.findall(r"^(\d) processes: [\d,]+ pairs a second$", printed, re.M) == ["2", "1"]
    assert printed.endswith("the data are the same\n")

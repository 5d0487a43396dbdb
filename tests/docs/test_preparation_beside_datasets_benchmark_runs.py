"""The comparison with `datasets` keeps the same pairs by both ways, and by one process and two."""

from __future__ import annotations

import re

from benchmarks import run_benchmark


def test_both_ways_keep_the_same_pairs(tmp_path):
    for name in ("de", "en"):
        lines = [f"{name} {number} {'words and ' * (number % 5)}end." for number in range(97)]
        (tmp_path / name).write_text("\n".join([*lines, " ", "long " * 300]) + "\n")
    files = ["--source", str(tmp_path / "de"), "--target", str(tmp_path / "en")]
    printed = run_benchmark("preparation_beside_datasets.py", *files, "--pairs", "803", "--rounds", "1")
    runs = re.findall(r"^(\w+), (\d) processes: [\d.]+ s, processor time [\d.]+ s, ([\d,]+) kept$", printed, re.M)
    assert [run[:2] for run in runs] == [(way, count) for count in "12" for way in ("clearhead", "datasets")]
    assert {kept for *_, kept in runs} == {runs[0][2]}
    assert 300 < int(runs[0][2].replace(",", "")) < 803

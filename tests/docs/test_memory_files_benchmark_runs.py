"""The benchmark of translation memories runs on a small one, and has read all of it."""

from __future__ import annotations

import re

import pytest
from benchmarks import run_benchmark


@pytest.mark.slow
def test_both_commands_end_well():
    printed = run_benchmark("memory_files.py", "--megabytes", "1")
    units = re.search(r"([\d,]+) units", printed)[1]
    assert printed.count("exit status 0") == 2
    assert int(units.replace(",", "")) > 0

"""The benchmark of what a run costs measures the memory that was expected."""

from __future__ import annotations

import pytest
from benchmarks import run_benchmark


@pytest.mark.slow
def test_the_expected_memory_of_a_step_is_what_is_allocated():
    row = [cell.strip() for cell in run_benchmark("run_costs.py", "tiny").split("|")]
    assert row[1:3] == ["tiny", "1,024"]
    assert abs(float(row[5].rstrip("%"))) < 15


@pytest.mark.slow
def test_the_expected_memory_of_sharded_weights_is_what_two_processes_allocate():
    row = [cell.strip() for cell in run_benchmark("run_costs.py", "tiny", "--workers", "2").split("|")]
    assert row[1:4] == ["tiny", "2", "1,024"]
    assert abs(float(row[6].rstrip("%"))) < 15

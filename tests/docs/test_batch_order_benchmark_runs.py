"""The benchmark of the order of batches compares windows with one order of all pairs."""

from __future__ import annotations

import re

from benchmarks import run_benchmark


def test_windows_have_about_the_steps_of_one_order_and_more_padding():
    printed = run_benchmark("batch_order.py", "--pairs", "40000", "--window", "10240", "--whole")
    windows, whole = (int(number) for number in re.findall(r"(\d+) steps an epoch", printed))
    assert whole <= windows <= whole + 4
    padding = [float(number) for number in re.findall(r"padding ([\d.]+) %", printed)]
    assert padding[0] > padding[1] > 0

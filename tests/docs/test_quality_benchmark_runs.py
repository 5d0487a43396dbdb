"""The benchmark of the quality estimate runs on a toy, and its measures are what they should be."""

from __future__ import annotations

import runpy

import numpy as np
import pytest
from benchmarks import BENCH, run_here, write_toy

from clearhead.config import DecodeConfig

SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank.", "Drei Kinder spielen im Sand."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench.", "Three children play in the sand."]


def test_the_tables_are_printed(tmp_path):
    model, source, reference = write_toy(tmp_path, SOURCES, TARGETS, DecodeConfig(beam_size=1, extra_length=1))
    files = "--valid", "toy", model, source, reference, "--test", "toy", source, reference
    printed = run_here("quality.py", *files, "--samples", "2", "--threads", "1")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()]
    head = next(row for row in rows if row[:2] == ["model", "text"])
    assert head[2:] == [
        "score per token",
        "score per word",
        "score per character",
        "length ratio",
        "sureness",
        "coverage by attention",
        "agreement of 2 samples",
    ]
    assert ["model", "text", "good", "others' constants", "own constants", "good of those from 0.9"] in rows
    assert "general constants, of all models but students: Calibration(slope=" in printed


def test_correlation_and_calibration_error_by_hand():
    bench = runpy.run_path(str(BENCH / "quality.py"), run_name="quality")
    one, other = np.array([1.0, 2.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0, 40.0])
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert bench["spearman"](one, other) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    quality, is_good = np.repeat([0.1, 0.9], 50), np.arange(100) >= 50
    assert bench["calibration_error"](quality, is_good) == pytest.approx(0.1)

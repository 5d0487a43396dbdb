"""The benchmark of the ways to decode runs on a toy."""

from __future__ import annotations

from benchmarks import run_here, write_toy

from clearhead.config import DecodeConfig

SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench."]


def test_the_tables_are_printed(tmp_path):
    model, source, reference = write_toy(tmp_path, SOURCES, TARGETS, DecodeConfig(extra_length=1))
    files = ["--source", source, "--reference", reference, "--train-source", source, "--train-target", reference]
    printed = run_here("ways.py", model, *files, "--ensemble", model, "--threads", "1")
    rows = {cells[0].strip(): cells for line in printed.splitlines() if (cells := line.strip("| ").split("|"))}
    assert {"`--beam 4`", "`--mbr 64`", "`--sample` (epsilon 0.02)", "0", "0.5"} <= rows.keys()
    assert all(float(rows[diversity][1]) > 0 for diversity in ("0", "1.5"))

"""The load on the server runs on a toy: all is answered, nothing is wrong or lost, and it ends in order."""

from __future__ import annotations

import pytest
from benchmarks import run_benchmark, write_toy

from clearhead.config import DecodeConfig

SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank.", "Drei Kinder spielen im Sand."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench.", "Three children play in the sand."]


@pytest.mark.slow
def test_every_answer_is_the_one_for_its_text(tmp_path):
    model, source, _ = write_toy(tmp_path, SOURCES, TARGETS, DecodeConfig(beam_size=1, extra_length=1))
    brief = ["--seconds", "0.5", "--texts", "20", "--clients", "4", "--factors", "0.8", "4"]
    printed = run_benchmark("serving.py", model, "--source", source, *brief, "--set", "max_requests=3")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]
    loads = [row for row in rows if row[0].startswith(("1 client", "4 clients", "0.8 times", "4 times"))]
    assert len(loads) == 4
    assert [row[-3:] for row in loads] == [["0", "0", "0"]] * 4
    assert all(int(row[1].replace(",", "")) > 0 for row in loads)
    assert printed.rstrip().endswith("it ended with status 0")

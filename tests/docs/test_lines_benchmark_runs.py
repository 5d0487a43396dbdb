"""The benchmark of lines and flags runs on a toy, and finds the damage that needs no knowledge of training."""

from __future__ import annotations

from benchmarks import run_here, write_toy

from clearhead.config import DecodeConfig

SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank.", "Drei Kinder spielen im Sand."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench.", "Three children play in the sand."]


def test_the_tables_are_printed(tmp_path):
    model, source, reference = write_toy(tmp_path, SOURCES, TARGETS, DecodeConfig(beam_size=1, extra_length=1))
    files = ["--source", source, "--reference", reference]
    printed = run_here("lines.py", model, *files, "--joined", "1", "3", "--threads", "1")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()]
    assert ["sentences a line", "1", "3"] in rows
    assert {row[0] for row in rows} >= {"`--split never`", "`--split auto`", "translated one a line, then joined"}
    lines = {"as it is", "in upper case", "in small letters", "without its end mark", "with stray spaces"}
    assert {row[0] for row in rows} >= lines
    found = {row[1]: row[2] for row in rows if len(row) == 3}
    assert {found[kind] for kind in ("repetition", "copied", "unseen_script", "numbers", "placeholders")} == {"100.0%"}
    assert found["too_short"] == "0.0%"  # nothing is known of what is usual

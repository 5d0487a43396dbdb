"""The benchmark of look-ups runs on a small corpus, and finds every source with one word replaced."""

from __future__ import annotations

import re

import pytest
from benchmarks import run_benchmark


@pytest.mark.slow
def test_sources_with_a_word_replaced_are_found(tmp_path):
    lines = [" ".join(f"word{number * place % 97}" for place in range(1, 12)) for number in range(60)]
    (tmp_path / "a").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = str(tmp_path / "a")
    printed = run_benchmark("memory_lookups.py", "--source", path, "--target", path, "--lines", path, "--pairs", "200")
    assert "200 pairs written" in printed
    found, of = re.search(r"one word replaced, cold: (\d+) of (\d+) found", printed).groups()
    assert found == of == "200"

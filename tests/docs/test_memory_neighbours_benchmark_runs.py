"""The benchmark of consulted memories runs, and pairs that are the lines themselves lead even an untrained model."""

from __future__ import annotations

import re

import pytest
from benchmarks import run_here, write_toy

from clearhead.config import DecodeConfig
from clearhead.kernels.library import library

SOURCES = [f"Der {word} Hund schläft heute." for word in ("kleine", "alte", "braune")]
TARGETS = [f"The {word} dog sleeps today." for word in ("small", "old", "brown")]


@pytest.mark.skipif(library() is None, reason="needs the compiled core")
def test_the_pairs_of_the_lines_themselves_raise_the_scores(tmp_path):
    decode = DecodeConfig(beam_size=1, extra_length=9)
    model, *files = write_toy(tmp_path, SOURCES, TARGETS, decode, width=64)
    printed = run_here("memory_neighbours.py", model, "--memory", *files, "--lines", *files, "--settings")
    chrf = {
        name.strip(): float(score) for name, score in re.findall(r"^(.{20}) chrF +([0-9.]+)", printed, re.MULTILINE)
    }
    assert chrf["defaults"] > 80 > 40 > chrf["model alone"]
    assert {"1 pairs", "weight 0.2", "from similarity 0.5", "temperature 0.1", "reach 0.8"} <= chrf.keys()

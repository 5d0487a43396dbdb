"""The benchmark of lines and flags runs on a toy, and finds the damage that needs no knowledge of training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from clearhead.bundle import Bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.tokenizer import Tokenizer

BENCH = Path(__file__).parents[2] / "bench" / "lines.py"
SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank.", "Drei Kinder spielen im Sand."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench.", "Three children play in the sand."]


def test_the_tables_are_printed(tmp_path):
    tokenizer = Tokenizer.train(SOURCES + TARGETS, vocab_size=280)
    torch.manual_seed(1)
    shape = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, **shape)).eval()
    save_bundle(tmp_path / "model", Bundle(model, tokenizer, DecodeConfig(beam_size=1, extra_length=1)))
    for name, lines in (("de", SOURCES), ("en", TARGETS)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    files = ["--source", str(tmp_path / "de"), "--reference", str(tmp_path / "en")]
    done = subprocess.run(
        [sys.executable, str(BENCH), str(tmp_path / "model"), *files, "--joined", "1", "3", "--threads", "1"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
    assert ["sentences a line", "1", "3"] in rows
    assert {row[0] for row in rows} >= {"`--split never`", "`--split auto`", "translated one a line, then joined"}
    lines = {"as it is", "in upper case", "in small letters", "without its end mark", "with stray spaces"}
    assert {row[0] for row in rows} >= lines
    found = {row[1]: row[2] for row in rows if len(row) == 3}
    assert {found[kind] for kind in ("repetition", "copied", "unseen_script", "numbers", "placeholders")} == {"100.0%"}
    assert found["too_short"] == "0.0%"  # nothing is known of what is usual

"""The benchmark of the ways to decode runs on a toy."""

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

BENCH = Path(__file__).parents[2] / "bench" / "ways.py"
SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench."]


def test_the_tables_are_printed(tmp_path):
    tokenizer = Tokenizer.train(SOURCES + TARGETS, vocab_size=280)
    torch.manual_seed(1)
    shape = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, **shape)).eval()
    save_bundle(tmp_path / "model", Bundle(model, tokenizer, DecodeConfig(extra_length=1)))
    for name, lines in (("de", SOURCES), ("en", TARGETS)):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    names = {"--source": "de", "--reference": "en", "--train-source": "de", "--train-target": "en"}
    files = [part for flag, name in names.items() for part in (flag, str(tmp_path / name))]
    more = ["--ensemble", str(tmp_path / "model"), "--threads", "1"]
    done = subprocess.run(
        [sys.executable, str(BENCH), str(tmp_path / "model"), *files, *more],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = {cells[0].strip(): cells for line in done.stdout.splitlines() if (cells := line.strip("| ").split("|"))}
    assert {"`--beam 4`", "`--mbr 64`", "`--sample` (epsilon 0.02)", "0", "0.5"} <= rows.keys()
    assert all(float(rows[diversity][1]) > 0 for diversity in ("0", "1.5"))

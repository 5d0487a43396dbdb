"""Store a run of the present formats: `python tests/compat/store.py 0.1.0`, with the version that writes them first.

The run has 400 steps on numbers in words, without what nothing reads again (report, TensorBoard). `expected.json` says
how the same code went on to step 425 and what its model translated. `SHA256SUMS` holds every file of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from itertools import islice, product
from pathlib import Path

import torch

from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from clearhead.translation.translator import Translator

HERE = Path(__file__).parent
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SOURCES = ("drei null", "sieben acht neun", "eins", "Ein Hund, der 7 Sprachen kann.")

SETTINGS = {
    "out": "run",
    "preset": "tiny",
    "device": "cpu",
    "data": {"pairs": ["numbers.tsv"], "valid_size": 7},
    "tokenizer": {"vocab_size": 300},
    # Without dropout, whose masks are drawn otherwise from one version to the next.
    "model": {
        "d_model": 8,
        "d_ff": 16,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
    },
    "train": {
        "batch_tokens": 128,
        "max_steps": 400,
        "learning_rate": 1e-2,
        "warmup_steps": 20,
        "schedule": "constant",
        "precision": "fp32",
        "validate_every": 400,
        "checkpoint_every": 400,
        "average_last": 2,
        "keep_checkpoints": 1,
    },
    "decode": {"beam_size": 3, "extra_length": 5},
}


def store(name: str) -> None:
    """Write `tests/compat/NAME` anew."""
    torch.set_num_threads(1)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # relative names: no path of this machine comes into the files
        digits = islice(product(range(10), repeat=2), 0, None, 1)
        lines = (" ".join(GERMAN[d] for d in some) + "\t" + " ".join(ENGLISH[d] for d in some) for some in digits)
        Path("numbers.tsv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        train_from_values(SETTINGS)
        stored = HERE / name
        shutil.rmtree(stored, ignore_errors=True)
        unneeded = shutil.ignore_patterns("tensorboard", "report.html", ".lock")
        shutil.copytree("run", stored / "run", ignore=unneeded)

        translations = [
            {"source": t.source, "text": t.text, "score": t.score} for t in Translator.load("run").translate(SOURCES)
        ]
        train_from_values({**SETTINGS, "train": {**SETTINGS["train"], "max_steps": 425}})
        expected = {
            "translations": translations,
            "metrics": [m for m in read_metrics(Path("run/metrics.jsonl")) if m["step"] > 400],
        }
        os.chdir(here)
    (stored / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    paths = sorted(path for path in stored.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(stored)}\n" for path in paths]
    (stored / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


if __name__ == "__main__":
    store(sys.argv[1])

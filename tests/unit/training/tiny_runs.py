"""A small corpus of numbers in words, and settings that train a very small model on it in a second."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.config.nested import merge

GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FINISHED_SEED = 7
"""Seed of the finished run, whose last step is then its best."""
TINY = {"d_model": 16, "d_ff": 23, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


def write_numbers(path: Path, count: int = 200) -> Path:
    """Write distinct pairs such as `drei null<TAB>three zero`, two to five digits each."""
    choose = random.Random(20170612)
    numbers: dict[tuple[int, ...], None] = {}
    while len(numbers) < count:
        numbers[tuple(choose.randrange(10) for _ in range(choose.randrange(2, 6)))] = None
    lines = (" ".join(GERMAN[d] for d in digits) + "\t" + " ".join(ENGLISH[d] for d in digits) for digits in numbers)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def tiny_settings(directory: Path, *changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings of a run of 40 steps in `directory/run` on `directory/numbers.tsv`."""
    return merge(
        {
            "out": str(directory / "run"),
            "preset": "tiny",
            "device": "cpu",
            "golden": "none",
            "data": {"pairs": [str(directory / "numbers.tsv")], "valid_size": 11},
            "tokenizer": {"vocab_size": 300},
            "model": {**TINY, "dropout": 0.1},
            "train": {
                "batch_tokens": 128,
                "micro_batch_tokens": 64,
                "max_steps": 40,
                "learning_rate": 3e-3,
                "warmup_steps": 5,
                "schedule": "linear",
                "validate_every": 14,
                "validate_sentences": 5,
                "checkpoint_every": 10,
                "keep_checkpoints": 3,
                "average_last": 3,
            },
            "decode": {"beam_size": 2, "extra_length": 3},
        },
        *changes,
    )

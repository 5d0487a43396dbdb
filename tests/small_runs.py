"""A corpus of numbers in words, and settings that train a very small model on it in a second."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config.nested import merge
from clearhead.files.tensors import read_weights

GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FINISHED_SEED = 7
"""Seed of the finished run, whose last step is then its best."""
TINY = {"d_model": 16, "d_ff": 23, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}
QUICK = {"max_steps": 4, "validate_every": 4, "checkpoint_every": 2}
"""Settings of training that end after four steps."""


def numbers(count: int = 200) -> list[tuple[str, str]]:
    """Return distinct pairs such as `drei null`, `three zero`, two to five digits each."""
    choose = random.Random(20170612)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found[tuple(choose.randrange(10) for _ in range(choose.randrange(2, 6)))] = None
    return [(" ".join(GERMAN[d] for d in digits), " ".join(ENGLISH[d] for d in digits)) for digits in found]


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Write pairs as a .tsv file and return its path."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="\n")
    return path


def write_numbers(path: Path) -> Path:
    """Write the numbers as a .tsv file and return its path."""
    return write_tsv(path, numbers())


def write_sides(stem: Path, pairs: list[tuple[str, str]]) -> tuple[Path, Path]:
    """Write pairs line by line as STEM.de and STEM.en and return their paths."""
    paths = stem.with_name(f"{stem.name}.de"), stem.with_name(f"{stem.name}.en")
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return paths


def weights(directory: Path) -> dict[str, Tensor]:
    """Return the weights of a model or a checkpoint."""
    return read_weights(directory / "model.safetensors")[0]


def assert_same_weights(found: Path, expected: Path) -> None:
    """Require that two models or checkpoints have the same weights, bit for bit."""
    first, second = weights(found), weights(expected)
    assert first.keys() == second.keys()
    assert [name for name in second if not first[name].equal(second[name])] == []


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


def settings_from(model: Path, directory: Path, *changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of a run from a model, whose shape, vocabulary and decode settings it has."""
    values = tiny_settings(directory, {"from_model": str(model), "train": QUICK})
    del values["tokenizer"], values["preset"], values["decode"]
    return merge({**values, "model": {}}, *changes)


def train_arguments(values: Mapping[str, Any]) -> list[str]:
    """Write nested settings as the command line has them."""
    return ["train", "--out", values["out"], "--pairs", *values["data"]["pairs"], *train_flags(values)]


def train_flags(values: Mapping[str, Any]) -> list[str]:
    """Write all but the files of a run as the command line has it."""
    flags = {"preset": "--preset", "device": "--device", "golden": "--golden", "from_model": "--from"}
    named = [part for name, flag in flags.items() if name in values for part in (flag, values[name])]
    settings = [
        f"{section}.{key}={value!r}"
        for section in ("data", "tokenizer", "model", "train", "decode")
        for key, value in values.get(section, {}).items()
        if key != "pairs"
    ]
    return [*named, "--set", *settings]


QUICK_FLAGS = train_flags(tiny_settings(Path(), {"train": QUICK}))
"""Flags of `clearhead train` for a run of four steps."""

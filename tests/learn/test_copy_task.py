"""The whole path, from text to translator, learns a task that only attention to the right place solves: copying."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

import pytest

import clearhead as ch

NUM_VALID, NUM_TEST = 53, 307


@dataclass(frozen=True)
class Task:
    """What is copied, and how long it is learned."""

    symbols: str
    shortest: int
    longest: int
    num_train: int
    batch_tokens: int
    max_steps: int
    learning_rate: float


# A model copies long sequences only by their places; with few symbols, and few in a sequence, it learns so in seconds.
SHORT = Task("abcdefgh", 2, 4, num_train=1_500, batch_tokens=128, max_steps=200, learning_rate=8e-3)
LONG = Task(ascii_lowercase, 4, 8, num_train=6_000, batch_tokens=384, max_steps=500, learning_rate=5e-3)


def sequences(task: Task, count: int) -> list[str]:
    """Distinct random sequences such as `q b b x`; nothing but the source tells what comes next."""
    choose = random.Random(20170612)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(choose.choices(task.symbols, k=choose.randint(task.shortest, task.longest)))] = None
    return list(found)


def write_copies(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "task", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]
)
def test_copying_is_learned_for_sequences_never_seen(task, tmp_path):
    lines = sequences(task, task.num_train + NUM_VALID + NUM_TEST)
    train, valid, test = lines[: task.num_train], lines[task.num_train : -NUM_TEST], lines[-NUM_TEST:]
    config = ch.Config.from_dict(
        {
            "out": str(tmp_path / "run"),
            "preset": "tiny",
            "device": "cpu",
            "golden": "none",
            "data": {
                "pairs": [write_copies(tmp_path / "train.tsv", train)],
                "valid_pairs": [write_copies(tmp_path / "valid.tsv", valid)],
            },
            "tokenizer": {"vocab_size": 260 + len(task.symbols)},
            "model": {
                "d_model": 64,
                "d_ff": 128,
                "num_heads": 4,
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "dropout": 0.0,
            },
            "train": {
                "batch_tokens": task.batch_tokens,
                "max_steps": task.max_steps,
                "learning_rate": task.learning_rate,
                "warmup_steps": task.max_steps // 10,
                "schedule": "linear",
                "validate_every": task.max_steps // 2,
                "checkpoint_every": task.max_steps // 2,
                "average_last": 1,
            },
        }
    )
    result = ch.train(config)
    translations = ch.Translator.load(result.run, device="cpu").translate(test, beam_size=1)
    exact = sum(translation.text == line for translation, line in zip(translations, test, strict=True))
    assert exact >= 0.95 * NUM_TEST  # by chance none: nothing but attention to the right place finds one
    assert result.bleu > 95

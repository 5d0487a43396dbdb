"""The whole path, from text to translator, learns a task that only attention to the right place solves: copying."""

from __future__ import annotations

import random
from pathlib import Path

import clearhead as ch

SYMBOLS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
NUM_TRAIN, NUM_VALID, NUM_TEST = 6_000, 53, 307


def sequences(count: int) -> list[str]:
    """Distinct random sequences such as `q b b x`; nothing but the source tells what comes next."""
    choose = random.Random(20170612)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(choose.choices(SYMBOLS, k=choose.randrange(4, 9)))] = None
    return list(found)


def write_copies(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_copying_is_learned_for_sequences_never_seen(tmp_path):
    lines = sequences(NUM_TRAIN + NUM_VALID + NUM_TEST)
    train, valid, test = lines[:NUM_TRAIN], lines[NUM_TRAIN:-NUM_TEST], lines[-NUM_TEST:]
    config = ch.Config.from_dict(
        {
            "out": str(tmp_path / "run"),
            "preset": "tiny",
            "device": "cpu",
            "data": {
                "pairs": [write_copies(tmp_path / "train.tsv", train)],
                "valid_pairs": [write_copies(tmp_path / "valid.tsv", valid)],
            },
            "tokenizer": {"vocab_size": 283},
            "model": {
                "d_model": 64,
                "d_ff": 128,
                "num_heads": 4,
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                "dropout": 0.0,
            },
            "train": {
                "batch_tokens": 384,
                "max_steps": 500,
                "learning_rate": 5e-3,
                "warmup_steps": 50,
                "schedule": "linear",
                "validate_every": 250,
                "checkpoint_every": 250,
                "average_last": 1,
            },
        }
    )
    result = ch.train(config)
    translations = ch.Translator.load(result.run, device="cpu").translate(test, beam_size=1)
    exact = sum(translation.text == line for translation, line in zip(translations, test, strict=True))
    assert exact >= 0.95 * NUM_TEST  # by chance none: nothing but attention to the right place finds one
    assert result.bleu > 95

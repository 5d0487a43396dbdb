"""A corpus of numbers in words, and flags of `clearhead train` that learn a little of it in a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.cli.main import run

UNITS = ("null", "zero"), ("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four"), ("fünf", "five")
QUICK = [
    *("--preset", "tiny", "--device", "cpu", "--max-steps", "4"),
    *("--set", "model.d_model=16", "model.d_ff=23", "model.num_heads=2"),
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "tokenizer.vocab_size=290"),
    *("train.batch_tokens=128", "train.validate_every=4", "train.checkpoint_every=1", "train.validate_sentences=5"),
    *("decode.beam_size=2", "decode.extra_length=3"),
]


def numbers() -> list[tuple[str, str]]:
    """Return 216 distinct pairs such as `drei null eins`, `three zero one`."""
    return [(f"{a[0]} {b[0]} {c[0]}", f"{a[1]} {b[1]} {c[1]}") for a in UNITS for b in UNITS for c in UNITS]


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> str:
    """Write pairs as a .tsv file and return its path."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="\n")
    return str(path)


def clearhead(*arguments: object) -> int:
    """Run the command line as the console entry does, and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        run([str(argument) for argument in arguments])
    code = ended.value.code
    assert code is None or isinstance(code, int)
    return code or 0

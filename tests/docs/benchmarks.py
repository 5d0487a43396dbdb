"""Running a benchmark as a reader would, or in this process, and a model that is small enough for it."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from clearhead.bundle import Bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer

BENCH = Path(__file__).parents[2] / "bench"


def run_benchmark(name: str, *arguments: str, fails: bool = False) -> str:
    """Run `bench/NAME`, and return what it printed, or its complaint."""
    done = subprocess.run(
        [sys.executable, str(BENCH / name), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        timeout=600,
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def run_here(name: str, *arguments: str) -> str:
    """Run `bench/NAME` in this process, which has imported already what takes seconds; return what it printed."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.syspath_prepend(str(BENCH))
        patch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(BENCH / name), run_name="__main__")
    return printed.getvalue()


def write_toy(
    directory: Path,
    sources: Sequence[str],
    targets: Sequence[str],
    decode: DecodeConfig,
    seed: int = 1,
    *,
    width: int = 16,
) -> list[str]:
    """Write an untrained model, and a text in `de` and `en` beside it; return their paths."""
    tokenizer = Tokenizer.train([*sources, *targets], vocab_size=280)
    torch.manual_seed(seed)
    shape = {"d_model": width, "num_heads": 2, "d_ff": width, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, **shape)).eval()
    save_bundle(directory / "model", Bundle(model, tokenizer, decode))
    for name, lines in (("de", sources), ("en", targets)):
        (directory / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return [str(directory / name) for name in ("model", "de", "en")]

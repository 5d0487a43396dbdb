"""The comparison of a page with the compiled core runs on a toy."""

from __future__ import annotations

import shutil

import pytest
import torch
from benchmarks import run_benchmark

from browsers import BROWSERS
from clearhead.bundle import Bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from clearhead.translation.golden import make_golden
from clearhead.translation.translator import Translator

LINES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank."]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="there is no chromium or chrome on the PATH")
def test_page_and_core_are_compared(tmp_path):
    tokenizer = Tokenizer.train(LINES * 20, vocab_size=280)
    torch.manual_seed(1)
    shape = {"d_model": 64, "num_heads": 2, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(ModelConfig(vocab_size=tokenizer.vocab_size, **shape)).eval()
    bundle = Bundle(model, tokenizer, DecodeConfig(extra_length=3))
    save_bundle(tmp_path / "model", bundle, golden=make_golden(Translator(bundle)))
    (tmp_path / "de").write_text("\n".join(LINES), encoding="utf-8")
    printed = run_benchmark("web.py", str(tmp_path / "model"), "--source", str(tmp_path / "de"), "--rounds", "1")
    for beam in (1, 4):
        assert f"beam {beam}, batches: " in printed
        assert f"beam {beam}: 2 of 2 texts are the same; scores differ by at most " in printed

"""The comparison with other libraries' translations of an exported model runs on a toy."""

from __future__ import annotations

from benchmarks import run_here, write_toy

from clearhead.config import DecodeConfig

SOURCES = ["Ein Hund rennt über die Wiese.", "Zwei Männer sitzen auf der Bank."]
TARGETS = ["A dog runs across the meadow.", "Two men are sitting on the bench."]


def test_all_libraries_are_compared(tmp_path):
    model, source, _ = write_toy(tmp_path, SOURCES, TARGETS, DecodeConfig(extra_length=1, beam_size=2), seed=7)
    printed = run_here("exports.py", model, "--source", source, "--alpha", "0", "--threads", "1")
    assert "hf: 2 sentences have the same tokens, scores and texts in transformers" in printed
    assert "ctranslate2: 2 sentences: scores differ by" in printed
    assert "onnx: 2 sentences: with the cache and without, scores differ by" in printed
    assert "length penalty 0, onnx: 2 of 2 lines the same" in printed
    assert "length penalty 0, onnx int8: " in printed
    assert "length penalty 0, hf: " in printed  # an untrained model writes up to the length limits, which differ
    assert " of 2 lines the same" in printed

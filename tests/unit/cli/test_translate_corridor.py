"""The way from the command that translates to equation 1 is short."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.main import app
from clearhead.kernels.library import library

PACKAGE = str(Path(clearhead.__file__).parent)


def calls_to(names, arguments):
    """Return the calls of ours that lead from the command to each of some functions, whenever one is called."""
    found = set()

    def note(frame, event, argument):
        if event != "call" or frame.f_code.co_qualname not in names:
            return
        calls = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                calls.append(frame.f_code.co_qualname)
            frame = frame.f_back
        calls = calls[: calls.index("translate") + 1] if "translate" in calls else calls
        found.add(tuple(reversed(calls)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        app(arguments, standalone_mode=False)
    finally:
        sys.setprofile(before)
    return found


def test_from_the_command_to_equation_1_there_are_ten_calls(make_model_dir, write_lines, tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.decoding.native.engine.library", lambda: None)
    lines = write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    arguments = ["translate", str(make_model_dir()), str(lines), "-o", str(tmp_path / "out.txt")]
    # It hands queries, keys and values to PyTorch's attention.
    found = calls_to({"_PackedAttention.attend"}, arguments)
    assert any("_PackedEncoderLayer.__call__" in calls for calls in found)
    assert any("_PackedDecoderLayer.__call__" in calls for calls in found)
    for calls in found:
        assert calls[0] == "translate"
        assert len(calls) <= 10, calls


@pytest.mark.skipif(library() is None, reason="needs the compiled core, and a processor with AVX-512")
def test_from_the_command_to_the_compiled_core_there_are_nine_calls(make_model_dir, write_lines, tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.decoding.native.engine.num_threads", lambda: 1)
    lines = write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    model = make_model_dir(d_model=32, num_heads=2, d_k=16, d_v=16, d_ff=32)
    arguments = ["translate", str(model), str(lines), "-o", str(tmp_path / "out.txt")]
    found = calls_to({"NativeSlots.step", "NativeWeights._encode"}, arguments)
    assert {calls[-1] for calls in found} >= {"NativeSlots.step", "NativeWeights._encode"}
    for calls in found:
        assert calls[0] == "translate"
        assert len(calls) <= 9, calls

"""Few calls lead from the command to equation 1, and none of them builds anything twice."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import tomli_w

import clearhead
from clearhead.cli.train import train

PACKAGE = str(Path(clearhead.__file__).parent)


def test_from_the_command_to_equation_1_there_are_eleven_calls(settings, tmp_path):
    changes = {
        "train": {"max_steps": 1},
        "model": {"attention_dropout": 0.1},
    }  # with it the CPU takes equation 1 itself
    (tmp_path / "c.toml").write_text(tomli_w.dumps(settings(**changes)), encoding="utf-8")
    corridors, called = set(), Counter()

    def note(frame, event, argument):
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        called[frame.f_code.co_qualname] += 1
        if frame.f_code.co_qualname != "scaled_dot_product_attention":
            return
        names = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        corridors.add(tuple(reversed(names)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        train(tmp_path / "c.toml")
    finally:
        sys.setprofile(before)
    trained = [names for names in corridors if "Stepper.step" in names]
    assert trained
    for names in trained:
        assert len(names) <= 11
        assert names[:4] == ("train", "train_from_values", "Loop.train", "Stepper.step")
    once = ("draft", "prepare", "open_inputs", "Tokenizer.__init__", "BatchOrder.__init__", "validate")
    assert [name for name in once if called[name] != 1] == []
    assert called["Checkpoints.tensors"] == 0  # the best model is the last one, and at hand

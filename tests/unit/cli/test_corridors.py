"""The ways from the commands to equation 1 are short, and training builds nothing twice."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.main import app
from clearhead.config import Config
from clearhead.kernels.library import library
from clearhead.translation.translator import Translator

PACKAGE = str(Path(clearhead.__file__).parent)


@dataclass
class Calls:
    """Calls of our functions, by qualified name."""

    counts: Counter[str] = field(default_factory=Counter)
    ways: set[tuple[str, ...]] = field(default_factory=set)
    """The functions open, from the command inwards, whenever one of those watched is called."""
    rooms: set[tuple[str, ...]] = field(default_factory=set)
    """The rooms of the package that these functions are in, one after the other."""


@contextmanager
def watched(command: str, *names: str) -> Iterator[Calls]:
    calls = Calls()

    def note(frame, event, argument):
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        calls.counts[frame.f_code.co_qualname] += 1
        if frame.f_code.co_qualname not in names:
            return
        way = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                room = Path(frame.f_code.co_filename).relative_to(PACKAGE).parts[0]
                way.append((frame.f_code.co_qualname, room))
            frame = frame.f_back
        functions, rooms = zip(*reversed(way), strict=True)
        start = functions.index(command)
        calls.ways.add(functions[start:])
        calls.rooms.add(tuple(room for room, _ in groupby(rooms[start:])))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_from_train_to_equation_1_there_are_thirteen_calls(tmp_path, monkeypatch):
    configs, init = [], Config.__init__
    monkeypatch.setattr(Config, "__init__", lambda self, **values: configs.append(self) or init(self, **values))
    numbers = "".join(f"number {number} it is\tthe {number:,}th\n" for number in range(1_000, 1_060))
    (tmp_path / "numbers.tsv").write_text(numbers, encoding="utf-8")
    (tmp_path / "c.toml").write_text(
        f"""
        preset = "tiny"
        out = '{tmp_path / "run"}'
        data.pairs = ['{tmp_path / "numbers.tsv"}']
        golden = "none"
        model = {{ d_model = 20, num_heads = 2, d_ff = 23, attention_dropout = 0.1 }}
        train.max_steps = 1
        decode = {{ beam_size = 1, extra_length = 2 }}
        """,  # with dropout of the attention the CPU takes equation 1 itself
        encoding="utf-8",
    )
    with watched("train", "scaled_dot_product_attention") as calls:
        app(["train", str(tmp_path / "c.toml")], standalone_mode=False)
    # Not the few steps that are timed, nor what chooses a head for word alignments or is drawn in the report.
    trained = [way for way in calls.ways if "Loop.train" in way and "AttentionLog.add" not in way]
    assert trained
    for way in trained:
        assert len(way) <= 13, way
        assert way[:6] == (
            "train",
            "train_from_values",
            "Loop.train",
            "Steps.make",
            "Stepper.step",
            "Stepper._add_gradient",
        )
    once = ("gather", "make_plan", "prepare", "open_inputs", "BatchOrder.__init__", "validate")
    assert [name for name in once if calls.counts[name] != 1] == []
    assert len(configs) == 2  # before the data is read, and with the plan
    assert calls.counts["Layers._checked"] == 2
    assert calls.counts["completed"] == 1
    assert calls.counts["read_tensors"] == 1  # what is published is what the checkpoint holds


def test_from_translate_to_equation_1_there_are_twelve_calls(make_model_dir, write_lines, tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.decoding.native.engine.library", lambda: None)
    lines = write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    # It hands queries, keys and values to PyTorch's attention.
    with watched("translate", "_PackedAttention.attend") as calls:
        app(["translate", str(make_model_dir()), str(lines), "-o", str(tmp_path / "out.txt")], standalone_mode=False)
    assert any("_PackedEncoderLayer.__call__" in way for way in calls.ways)
    assert any("_PackedDecoderLayer.__call__" in way for way in calls.ways)
    for way in calls.ways:
        assert len(way) <= 12, way
        assert way[:3] == ("translate", "translate_lines", "Translator.translate")
    assert calls.counts["split_tag"] == 2  # once a line


def test_from_text_to_the_decoder_three_rooms_are_entered_and_none_twice(make_bundle, monkeypatch):
    monkeypatch.setattr("clearhead.decoding.native.engine.library", lambda: None)
    with watched("Translator.translate", "_PackedDecoderLayer.__call__") as calls:
        Translator(make_bundle()).translate(["Ein Hund.", "Zwei Hunde."])
    assert calls.rooms
    for rooms in calls.rooms:
        assert len(set(rooms)) <= 3, rooms
        assert len(rooms) - len(set(rooms)) == 0, rooms


@pytest.mark.skipif(library() is None, reason="needs the compiled core")
def test_from_translate_to_the_compiled_core_there_are_eleven_calls(make_model_dir, write_lines, tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.decoding.native.engine.num_threads", lambda: 1)
    lines = write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    model = make_model_dir(d_model=32, num_heads=2, d_k=16, d_v=16, d_ff=32)
    with watched("translate", "NativeSearch.advance", "NativeWeights._encode") as calls:
        app(["translate", str(model), str(lines), "-o", str(tmp_path / "out.txt")], standalone_mode=False)
    assert {way[-1] for way in calls.ways} == {"NativeSearch.advance", "NativeWeights._encode"}
    for way in calls.ways:
        assert len(way) <= 12, way

"""Checkpoints are read without running their content: every object of another library becomes a record.

Each hostile file would leave a mark if any of it were run; PyTorch's own `torch.load(weights_only=False)` would.
"""

from __future__ import annotations

import argparse
import functools
import os
import struct
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.errors import ModelError
from clearhead.interop.readers.checkpoint import Record, read_checkpoint, settings_in, tensors_in

MARK = "was_run"


def mark(*_arguments: object, **_named: object) -> dict[str, object]:
    Path(MARK).touch()
    return {}


class Calls:
    """Is pickled as the call of a function."""

    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


@pytest.fixture
def foreign_module(monkeypatch):
    """Return a function that makes a module of another library, which can be imported while a file is written."""

    def make(name: str, **members: object) -> types.ModuleType:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(".".join(parts[:count])))
        module = sys.modules[name]
        for member, value in members.items():
            value.__module__, value.__qualname__ = name, member
            setattr(module, member, value)
        return module

    return make


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("is_zip", [True, False])
def test_settings_and_tensors_come_out_and_objects_are_records(tmp_path, is_zip, foreign_module):
    class Field:
        def __init__(self):
            mark()

        def __setstate__(self, state):
            mark()

    foreign_module("onmt.utils", mark=mark)
    field = Field.__new__(Field)
    field.vocab = ["a", "b"]
    foreign_module("torchtext.data.field", Field=Field)
    values = {
        "args": argparse.Namespace(arch="transformer", layers=6, nested=argparse.Namespace(deep=1)),
        "model": {"w": torch.arange(6.0).view(2, 3).half(), "n": torch.tensor([3])},
        "vocab": {"src": field},
        "best": np.float64(1.5),
        "tokenize": functools.partial(mark, 1),
    }
    torch.save(values, "checkpoint.pt", _use_new_zipfile_serialization=is_zip)
    read = read_checkpoint(Path("checkpoint.pt"))
    assert not Path(MARK).exists()
    args = settings_in(read["args"])
    assert (args["arch"], args["layers"], settings_in(args["nested"])) == ("transformer", 6, {"deep": 1})
    assert settings_in(read["vocab"]["src"]) == {"vocab": ["a", "b"]}
    assert isinstance(read["best"], Record)
    assert settings_in(read["tokenize"]) is None
    tensors = tensors_in(read, "model", Path("checkpoint.pt"))
    assert tensors["w"].dtype == torch.float32
    assert tensors["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


HOSTILE = {
    "a command": lambda: Calls(os.system, f"touch {MARK}"),
    "a program": lambda: Calls(exec, f"open({MARK!r}, 'w')"),
    "an expression": lambda: Calls(eval, f"open({MARK!r}, 'w')"),
    "an attribute": lambda: Calls(getattr, argparse.ArgumentParser, "parse_args"),
    "a module of the system": lambda: Calls(__import__, "os"),
    "a part of a function": lambda: Calls(functools.reduce, os.system, [f"touch {MARK}"]),
    "what PyTorch knows": lambda: Calls(torch.load, MARK),
    "a hook of PyTorch": lambda: Calls(torch.hub._get_torch_home),
    "a state": lambda: Calls(argparse.Namespace, state={"x": Calls(os.system, f"touch {MARK}")}),
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_is_run_and_the_file_is_named(hostile, is_zip):
    value = {"model": {"w": torch.ones(2)}, "args": HOSTILE[hostile]()}
    torch.save(value, "checkpoint.pt", _use_new_zipfile_serialization=is_zip)
    with pytest.raises(ModelError, match=r"checkpoint\.pt holds more than tensors and settings") as raised:
        read_checkpoint(Path("checkpoint.pt"))
    assert "\n" not in str(raised.value)
    assert not Path(MARK).exists()


def test_what_would_run_is_named():
    torch.save({"x": Calls(exec, "pass"), "y": Calls(os.system, "true")}, "checkpoint.pt")
    with pytest.raises(ModelError, match=r"settings \(posix\.system\): it would run code when read, and is not"):
        read_checkpoint(Path("checkpoint.pt"))


def test_functions_of_toolkits_are_not_called_either(foreign_module):
    foreign_module("fairseq.tasks", mark=mark)
    torch.save({"args": Calls(mark, 1, 2, state={"a": 1}), "more": Calls(mark)}, "checkpoint.pt")
    read = read_checkpoint(Path("checkpoint.pt"))
    assert not Path(MARK).exists()
    assert settings_in(read["args"]) == {"a": 1}


def rebuild(change, tensor=None) -> None:
    """Write `checkpoint.pt` with another pickle inside, packed."""
    torch.save({"model": {"w": torch.ones(2) if tensor is None else tensor}}, "good.pt")
    with zipfile.ZipFile("good.pt") as good, zipfile.ZipFile("checkpoint.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for info in good.infolist():
            data = good.read(info)
            archive.writestr(info.filename, change(data) if info.filename.endswith("data.pkl") else data)


DAMAGES = {
    "nothing": lambda: Path("checkpoint.pt").touch(),
    "noise": lambda: Path("checkpoint.pt").write_bytes(bytes(range(256)) * 9),
    "half": lambda: Path("checkpoint.pt").write_bytes(Path("good.pt").read_bytes()[:700]),
    "no pickle": lambda: zipfile.ZipFile("checkpoint.pt", "w").close(),
    "an endless pickle": lambda: rebuild(lambda data: data + b"x" * 10_000_000),
    "an endless tensor": lambda: rebuild(lambda data: data, torch.zeros(999_999)),
    "a name that none is": lambda: rebuild(lambda _: b"\x80\x02cargparse\nName\x00space\n)\x81."),
    "letters that none are": lambda: rebuild(lambda _: b"\x80\x02cargparse\n\xff\xfe\n)\x81."),
    "a pickle that breaks off": lambda: rebuild(lambda data: data[:20]),
    "what protocol 2 has not": lambda: rebuild(lambda data: data[:-1] + b"\x94."),
    "a pipe": lambda: os.mkfifo("checkpoint.pt"),
    "a huge length": lambda: Path("checkpoint.pt").write_bytes(b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"a"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_said_in_one_line(damage):
    torch.save({"model": {"w": torch.ones(99)}}, "good.pt")
    DAMAGES[damage]()
    with pytest.raises(ModelError, match=r"checkpoint\.pt") as raised:
        read_checkpoint(Path("checkpoint.pt"))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_missing_file_and_other_values_are_said():
    with pytest.raises(ModelError, match=r"cannot read the checkpoint none\.pt: No such file"):
        read_checkpoint(Path("none.pt"))
    torch.save([1, 2], "list.pt")
    with pytest.raises(ModelError, match=r"list\.pt must hold values by name"):
        read_checkpoint(Path("list.pt"))
    for held, message in (
        ({}, "has no 'model' with tensors"),
        ({"model": [1]}, "x.pt: model must hold tensors by name"),
        ({"model": {"w": torch.ones(2).to_sparse()}}, "model must hold tensors by name"),
        ({"model": {"w": torch.ones(1).expand(3, 2)}}, r"x.pt: model: the tensor w is of shape \(3, 2\), and the file"),
        (
            {"model": {"w": torch.tensor([1.0, float("nan")])}},
            "x.pt: model: the tensor w has numbers that are not finite",
        ),
    ):
        with pytest.raises(ModelError, match=message):
            tensors_in(held, "model", Path("x.pt"))
    assert settings_in([1]) is None
    assert settings_in({1: 2}) is None

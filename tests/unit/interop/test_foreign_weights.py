"""Checkpoints are read without running their content: every object of another library becomes a record.

Each hostile file would leave a mark if any of it were run; PyTorch's own `torch.load(weights_only=False)` would.
"""

from __future__ import annotations

import argparse
import codecs
import collections
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
from clearhead.interop.readers.foreign_weights import (
    read_checkpoint,
    read_their_weights,
    require_tensors,
    settings_in,
    tensors_in,
)
from clearhead.interop.readers.pickles import Record

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
def test_read_checkpoint_returns_settings_tensors_and_records_of_objects(tmp_path, is_zip, foreign_module):
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
    "memory": lambda: Calls(bytearray, 5_000_000_000),
    "a tensor without numbers": lambda: Calls(torch.Tensor, 900_000_000),
    "a storage without numbers": lambda: Calls(torch.UntypedStorage, 5_000_000_000),
    "a size": lambda: Calls(torch.Size, [2]),
    "a slow codec": lambda: Calls(codecs.encode, "\u00fc\u0101" * 30_000, "punycode"),
    "a copied dictionary": lambda: Calls(collections.OrderedDict, [(1, 2)]),
    "a tensor as a set": lambda: Calls(set, torch.ones(1).expand(3)),
    "a state": lambda: Calls(argparse.Namespace, state={"x": Calls(os.system, f"touch {MARK}")}),
}


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_read_checkpoint_rejects_hostile_pickles_without_running_them(hostile, is_zip):
    value = {"model": {"w": torch.ones(2)}, "args": HOSTILE[hostile]()}
    torch.save(value, "checkpoint.pt", _use_new_zipfile_serialization=is_zip)
    with pytest.raises(ModelError, match=r"checkpoint\.pt holds more than tensors and settings") as raised:
        read_checkpoint(Path("checkpoint.pt"))
    assert "\n" not in str(raised.value)
    assert not Path(MARK).exists()


def test_read_checkpoint_names_the_functions_of_a_pickle():
    torch.save({"x": Calls(exec, "pass"), "y": Calls(os.system, "true")}, "checkpoint.pt")
    with pytest.raises(
        ModelError,
        match=r"settings \(__builtin__\.exec, posix\.system\): it could run code",
    ):
        read_checkpoint(Path("checkpoint.pt"))


def test_weights_of_transformers_are_read_as_carefully():
    torch.save({"w": torch.ones(2), "x": Calls(bytearray, 5_000_000_000)}, "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"holds more than tensors and settings \(__builtin__\.bytearray\)"):
        read_their_weights(Path())


@pytest.mark.parametrize("is_zip", [True, False])
def test_plain_containers_are_read_as_python_writes_them(is_zip):
    state = torch.nn.Linear(2, 3).state_dict()
    values = {
        "model": state,
        "words": collections.Counter("aab"),
        "seen": {1, 2},
        "type": torch.float16,
        "device": torch.device("cpu"),
        "scores": [np.float64(1.5), np.float32(2), np.float64(1.5)],
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    torch.save(values, "checkpoint.pt", _use_new_zipfile_serialization=is_zip)
    read = read_checkpoint(Path("checkpoint.pt"))
    assert (read["words"], read["seen"], read["type"]) == ({"a": 2, "b": 1}, {1, 2}, torch.float16)
    assert tensors_in(read, "model", Path("checkpoint.pt"))["weight"].tolist() == state["weight"].tolist()


def test_a_stored_text_or_dictionary_cannot_be_multiplied():
    """Each call of 10 bytes would copy the stored argument of any length."""
    text = b"X" + struct.pack("<I", 9) + b"a" * 9 + b"q\x00"
    latin1 = b"X" + struct.pack("<I", 6) + b"latin1q\x01"
    encode, ordered = b"c_codecs\nencode\n", b"ccollections\nOrderedDict\n"
    for program in (
        text + latin1 + encode + b"h\x00h\x01\x86R",
        b"]q\x00" + ordered + b"h\x00\x85R",
        b")q\x00" + ordered + b"q\x01" + b"h\x01h\x00R",
    ):
        rebuild(lambda _, program=program: b"\x80\x02" + program + b".")
        with pytest.raises(ModelError, match="holds more than tensors and settings"):
            read_checkpoint(Path("checkpoint.pt"))


def test_values_that_repeat_parts_without_end_are_refused():
    deep, doubled = [], ["a"]
    for _ in range(70):
        deep = [deep]
    for _ in range(40):
        doubled = [doubled, doubled]
    inside_itself: list[object] = []
    inside_itself.append(inside_itself)
    text = "a" * 500_000
    for value in (deep, doubled, inside_itself, [text] * 100, argparse.Namespace(x=doubled)):
        torch.save({"args": value}, "checkpoint.pt")
        with pytest.raises(
            ModelError, match=r"^checkpoint\.pt is damaged: its values are nested deeper than 64 levels"
        ):
            read_checkpoint(Path("checkpoint.pt"))


def test_two_pickles_in_an_archive_are_refused():
    torch.save({"w": torch.ones(2)}, "checkpoint.pt")
    with zipfile.ZipFile("checkpoint.pt", "a") as archive:
        archive.writestr("other/data.pkl", b"\x80\x02}.")
    with pytest.raises(ModelError, match=r"checkpoint\.pt is damaged: it holds 2 files data\.pkl, not 1"):
        read_checkpoint(Path("checkpoint.pt"))


def test_every_pickle_of_an_old_file_is_checked():
    torch.save({"w": torch.ones(2)}, "good.pt", _use_new_zipfile_serialization=False)
    data = Path("good.pt").read_bytes()
    keys = data.rindex(b"\x80\x02]")
    harmful = b"\x80\x02c__builtin__\nbytearray\nJ" + struct.pack("<i", 2**31 - 1) + b"\x85R."
    Path("checkpoint.pt").write_bytes(data[:keys] + harmful)
    with pytest.raises(ModelError, match=r"tensors and settings \(__builtin__\.bytearray\)"):
        read_checkpoint(Path("checkpoint.pt"))


def test_many_names_of_one_tensor_are_refused():
    half = torch.ones(1_000).half()
    assert len(require_tensors({str(n): half.view(10, 100) for n in range(4)}, "x.pt")) == 4
    with pytest.raises(ModelError, match=r"x\.pt is damaged: its tensors share their numbers more than 16 times"):
        require_tensors({str(n): half.view(10, 100) for n in range(17)}, "x.pt")


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
def test_damaged_checkpoint_is_one_line_error(damage):
    torch.save({"model": {"w": torch.ones(99)}}, "good.pt")
    DAMAGES[damage]()
    with pytest.raises(ModelError, match=r"checkpoint\.pt") as raised:
        read_checkpoint(Path("checkpoint.pt"))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_missing_checkpoints_and_values_other_than_tensors_are_rejected():
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

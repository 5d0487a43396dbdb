"""Arrays in safetensors files: the bytes that PyTorch's functions write, the same bounds and messages."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from clearhead.errors import ModelError
from clearhead.files import arrays
from clearhead.files.arrays import read_arrays, write_arrays
from clearhead.files.tensors import read_weights, write_weights

ARRAYS = {"b": np.arange(6, dtype=np.int32).reshape(2, 3).T, "a": np.array([0.5, -1.5], dtype=np.float32)}
METADATA = {"z": "1", "model": "é", "a": "2"}


def test_write_arrays_and_write_weights_write_the_same_files(tmp_path):
    write_arrays(tmp_path / "arrays", ARRAYS, METADATA)
    write_weights(tmp_path / "tensors", {name: torch.from_numpy(array) for name, array in ARRAYS.items()}, METADATA)
    assert (tmp_path / "arrays").read_bytes() == (tmp_path / "tensors").read_bytes()
    found, metadata = read_arrays(tmp_path / "tensors")
    assert metadata == METADATA
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    write_arrays(tmp_path / "arrays", ARRAYS, {})
    assert read_arrays(tmp_path / "arrays")[1] == {}


def damaged(path, damage):
    write_arrays(path, ARRAYS, METADATA)
    match damage:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "text":
            path.write_text("no arrays", encoding="utf-8")
        case "directory":
            path.unlink()
            path.mkdir()
        case "axes":
            write_arrays(path, {"a": np.zeros((1,) * 9, dtype=np.float32)}, {})


@pytest.mark.parametrize("damage", ["missing", "cut", "text", "directory", "axes"])
def test_read_arrays_raises_the_errors_of_read_weights(tmp_path, damage):
    path = tmp_path / "file"
    damaged(path, damage)
    with pytest.raises(ModelError) as expected:
        read_weights(path)
    with pytest.raises(ModelError, match=re.escape(str(expected.value))):
        read_arrays(path)


def test_types_that_numpy_lacks_are_named(tmp_path):
    write_weights(tmp_path / "file", {"a": torch.zeros(3).bfloat16()}, {})
    with pytest.raises(ModelError, match=r"cannot read the weights .*file: it holds BF16, a type that NumPy lacks"):
        read_arrays(tmp_path / "file")


def test_the_number_of_arrays_is_bounded(tmp_path, monkeypatch):
    write_arrays(tmp_path / "file", ARRAYS, {})
    monkeypatch.setattr(arrays, "_MOST_TENSORS", 1)
    with pytest.raises(ModelError, match="holds 2 tensors, but must hold at most 1"):
        read_arrays(tmp_path / "file")


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_arrays(path, ARRAYS, {})
    before = path.read_bytes()

    def refuse(*_, **__):
        raise arrays.SafetensorError("No space left on device")

    monkeypatch.setattr(arrays, "save_file", refuse)
    with pytest.raises(OSError, match="No space left"):
        write_arrays(path, {}, {})
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["file"]

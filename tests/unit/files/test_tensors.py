"""Headers of weights files are read in linear time, and bounded in their number of tensors and axes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from clearhead.errors import ModelError
from clearhead.files import arrays
from clearhead.files.arrays import present_names, read_arrays, read_headers
from clearhead.files.tensors import read_weights
from clearhead.interop.readers.foreign_weights import require_tensors


def write(path: Path, shapes: dict[str, list[int]]) -> Path:
    """Write a safetensors file whose tensors all hold the same bytes of one number, or none."""
    parts, end = {}, 0
    for name, shape in shapes.items():
        size = 0 if 0 in shape else 4
        parts[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(parts).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(end))
    return path


class Name(str):
    """A name that counts how often it is compared."""

    comparisons = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class File:
    """An open file with many names."""

    def __init__(self, number: int) -> None:
        self.number = number

    def keys(self) -> list[str]:
        return [Name(f"layers.{number}.weight") for number in range(self.number)]


def test_names_are_compared_a_constant_number_of_times_each():
    counted = []
    for number in (500, 1_000, 2_000):
        Name.comparisons = 0
        assert len(present_names(File(number))) == number
        counted.append(Name.comparisons)
    assert counted[2] < 10 * 2_000


@pytest.mark.parametrize("read", [read_headers, read_weights, read_arrays])
def test_the_number_of_tensors_and_axes_is_bounded(tmp_path, monkeypatch, read):
    path = write(tmp_path / "x.safetensors", {"a": [1] * 8, "b": [0]})
    assert len(read(path)[0] if read is read_weights else read(path)) == 2
    write(path, {"a": [1] * 9})
    with pytest.raises(ModelError, match=r"x\.safetensors: the tensor a has 9 axes, but must have at most 8"):
        read(path)
    write(path, {"a": [1] * 100_000})
    with pytest.raises(ModelError, match="has 100,000 axes"):
        read(path)
    monkeypatch.setattr(arrays, "_MOST_TENSORS", 2)
    write(path, {"a": [0], "b": [0], "c": [0]})
    with pytest.raises(ModelError, match=r"x\.safetensors holds 3 tensors, but must hold at most 2"):
        read(path)


def test_axes_of_pickled_tensors_are_bounded():
    with pytest.raises(ModelError, match="x: the tensor w has 9 axes, but must have at most 8"):
        require_tensors({"w": torch.ones([1] * 9)}, "x")

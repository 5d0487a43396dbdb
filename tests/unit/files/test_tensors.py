"""Weights files are bounded in their number of tensors and axes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from clearhead.errors import ModelError
from clearhead.files import arrays
from clearhead.files.arrays import read_arrays, read_headers
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

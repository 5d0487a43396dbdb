"""A recording has the tensors of each line in order, and the line's number."""

from __future__ import annotations

import torch

from clearhead.kernels.dropout import Dropout
from clearhead.model.attention import scaled_dot_product_attention
from clearhead.model.feed_forward import FeedForward
from clearhead.paper import recording
from clearhead.paper.places import code, line_of
from clearhead.paper.recording import Recording


def test_a_recording_has_what_a_line_computed():
    q, four, two = torch.zeros(1, 2), torch.ones(4, 2), torch.ones(2, 2)
    softmax = code("eq1.softmax")
    with Recording() as run:
        scaled_dot_product_attention(q, four, four)
        scaled_dot_product_attention(q, two, two)
    assert [run.tensor(softmax, call).tolist() for call in (0, 1)] == [[[0.25] * 4], [[0.5] * 2]]
    numbers = [call.number for call in run.calls if call.code == softmax]
    assert numbers == [line_of("eq1.softmax").number] * 2


def test_an_operation_of_the_kernels_is_recorded_at_the_line_that_uses_it():
    layer, x = FeedForward(d_model=2, d_ff=3).eval(), torch.ones(1, 1, 2)
    assert isinstance(layer.dropout, Dropout)
    with Recording() as run:
        layer(x)
    assert {call.code.file for call in run.calls} == {"model/feed_forward.py"}
    assert [call.code.function for call in run.calls] == ["linear", "relu", "linear"]


def test_a_package_whose_name_begins_alike_is_another_package(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "PACKAGE", tmp_path / "clear")
    places = {"clear": "def run(f):\n    return f()\n", "clear_more": "def add(x):\n    return x + 1\n"}
    found, x = {}, torch.zeros(2)
    for name, text in places.items():
        exec(compile(text, str(tmp_path / name / "model.py"), "exec"), found)
    with Recording() as run:
        found["run"](lambda: found["add"](x))
    assert [(call.code.file, call.number) for call in run.calls] == [("model.py", 2)]


def test_a_tensor_that_is_changed_in_place_later_is_kept_as_it_was():
    softmax = code("eq1.softmax")
    ones = torch.ones(1, 2)
    with Recording() as run:
        _, weights = scaled_dot_product_attention(ones, ones, ones)
    weights.zero_()
    assert run.tensor(softmax, 0).tolist() == [[1.0]]

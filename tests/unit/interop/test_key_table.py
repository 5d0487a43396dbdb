from __future__ import annotations

import pytest
import torch

from clearhead.errors import ModelError
from clearhead.interop.key_table import (
    AFTER_TWO_ROWS,
    ONE_ROW,
    SAME,
    STACKED,
    STACKED_TRANSPOSED,
    TRANSPOSED,
    Computed,
    KeyRow,
    KeyTable,
    LeftOut,
    numbered,
    pair,
)


@pytest.mark.parametrize(
    ("layout", "ours", "theirs"),
    [
        (SAME, [(3, 5)], (3, 5)),
        (TRANSPOSED, [(3, 5)], (5, 3)),
        (STACKED, [(3, 5), (3, 5), (3, 5)], (9, 5)),
        (STACKED, [(3,), (3,), (3,)], (9,)),
        (STACKED_TRANSPOSED, [(3, 5), (3, 5), (3, 5)], (5, 9)),
        (ONE_ROW, [(7,)], (1, 7)),
        (AFTER_TWO_ROWS, [(7, 5)], (9, 5)),
    ],
)
def test_a_layout_is_undone_by_its_inverse(layout, ours, theirs):
    table = KeyTable((KeyRow(tuple(f"part{number}" for number in range(len(ours))), "whole", layout),))
    tensors = {f"part{number}": torch.randn(shape) for number, shape in enumerate(ours)}
    written = table.to_theirs(tensors)
    assert written["whole"].shape == theirs
    read = table.from_theirs(written)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(read[name], tensor, rtol=0.0, atol=0.0)


def test_stacked_parts_are_split_in_order():
    table = KeyTable((KeyRow(("q", "k", "v"), "qkv", STACKED_TRANSPOSED),))
    read = table.from_theirs({"qkv": torch.arange(6.0)[None]})
    assert {name: tensor.flatten().tolist() for name, tensor in read.items()} == {"q": [0, 1], "k": [2, 3], "v": [4, 5]}


def test_parts_have_memory_of_their_own():
    whole = torch.zeros(9, 5)
    parts = KeyTable((KeyRow(("q", "k", "v"), "qkv", STACKED),)).from_theirs({"qkv": whole})
    parts["k"].fill_(1.0)
    assert whole.sum() == 0.0
    assert all(part.is_contiguous() and part.storage_offset() == 0 for part in parts.values())


def test_the_rows_of_a_layer_are_numbered():
    rows = numbered(pair("up", "fc1", TRANSPOSED), 2, ours="layers.{i}.", theirs="h.{i}.mlp.")
    assert [(row.ours, row.theirs, row.layout.name) for row in rows] == [
        (("layers.0.up.weight",), "h.0.mlp.fc1.weight", "transposed"),
        (("layers.0.up.bias",), "h.0.mlp.fc1.bias", "same"),
        (("layers.1.up.weight",), "h.1.mlp.fc1.weight", "transposed"),
        (("layers.1.up.bias",), "h.1.mlp.fc1.bias", "same"),
    ]


@pytest.fixture
def table():
    return KeyTable(
        (
            KeyRow(("embedding",), "model.shared", also=("model.tokens", "head")),
            KeyRow(("gain",), "model.gain"),
            KeyRow(("bias",), "bias", ONE_ROW, zeros=(1, 3)),
        ),
        (
            LeftOut("model.h.*.mask", "a constant"),
            LeftOut("model.positions", "computed", Computed(lambda rows: torch.arange(rows * 1.0)[:, None], 4)),
        ),
        prefix="model.",
    )


@pytest.fixture
def state():
    return {"model.shared": torch.randn(3, 2), "model.gain": torch.randn(5), "bias": torch.randn(1, 3)}


def test_every_problem_of_a_state_is_listed(table, state):
    del state["model.gain"]
    state |= {"model.extra": torch.zeros(7, 2), "head": torch.zeros(3, 2), "bias": torch.zeros(3)}
    with pytest.raises(ModelError) as error:
        table.from_theirs(state, origin="model.safetensors")
    assert str(error.value).splitlines() == [
        "model.safetensors does not fit this kind of model:",
        "  differs   head from model.shared, with which it should be one",
        "  missing   model.gain",
        "  shape     bias  (3,), not of 2 axes",
        "  unknown   model.extra  (7, 2)",
    ]


def test_a_stack_that_cannot_be_cut_is_refused():
    with pytest.raises(ModelError, match=r"shape     qkv  \(2, 5\), not 3 parts"):
        KeyTable((KeyRow(("q", "k", "v"), "qkv", STACKED),)).from_theirs({"qkv": torch.zeros(2, 5)})
    with pytest.raises(ModelError, match=r"shape     qkv  \(\), not of 1 or 2 axes"):
        KeyTable((KeyRow(("q", "k", "v"), "qkv", STACKED),)).from_theirs({"qkv": torch.tensor(1.0)})


def test_a_tensor_is_found_under_its_other_names(table, state):
    shared = state.pop("model.shared")
    torch.testing.assert_close(table.from_theirs({**state, "head": shared})["embedding"], shared)


def test_a_missing_bias_that_means_zero_is_zero(table, state):
    del state["bias"]
    assert table.from_theirs(state)["bias"].tolist() == [0.0, 0.0, 0.0]


def test_names_may_lack_the_prefix_of_the_model_within_a_head(table, state):
    bare = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    for name, tensor in table.from_theirs(state).items():
        torch.testing.assert_close(table.from_theirs(bare)[name], tensor)


def test_a_name_with_and_without_prefix_is_refused(table, state):
    with pytest.raises(ModelError, match=r"unknown   (model\.)?gain, beside"):
        table.from_theirs({**state, "gain": state["model.gain"] + 1.0})


def test_from_theirs_ignores_optional_keys(table, state):
    extra = {"model.h.11.mask": torch.ones(5, 5), "model.positions": torch.arange(3.0)[:, None]}
    assert table.from_theirs({**state, **extra}).keys() == {"embedding", "gain", "bias"}


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (torch.arange(1.0, 4.0)[:, None], r"differs   model\.positions from what this model computes there"),
        (torch.arange(8.0).view(4, 2), r"shape     model\.positions  \(4, 2\), not rows of \(1,\)"),
        (torch.tensor(3.0), r"shape     model\.positions  \(\), not rows of \(1,\)"),
    ],
)
def test_computed_tensors_that_disagree_are_refused(table, state, stored, problem):
    with pytest.raises(ModelError, match=problem):
        table.from_theirs({**state, "model.positions": stored})


def test_every_tensor_of_ours_needs_its_place(table):
    with pytest.raises(ModelError) as error:
        table.to_theirs({"embedding": torch.zeros(3, 2), "gain": torch.zeros(5), "segments": torch.zeros(2, 2)})
    assert str(error.value).splitlines()[1:] == ["  missing   bias", "  unknown   segments"]


def test_long_lists_are_cut():
    table = KeyTable(tuple(KeyRow((f"ours{number}",), f"theirs{number}") for number in range(11)))
    with pytest.raises(ModelError, match="and 3 more"):
        table.from_theirs({})

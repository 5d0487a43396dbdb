"""Nested settings: read from the command line, and merged."""

from __future__ import annotations

import pytest

from clearhead.config.nested import merge, parse_override
from clearhead.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("train.max_steps=500", {"train": {"max_steps": 500}}),
        ("train.max_minutes = 2.5", {"train": {"max_minutes": 2.5}}),
        ("train.compile=true", {"train": {"compile": True}}),
        ("tokenizer.kind=bpe", {"tokenizer": {"kind": "bpe"}}),
        ('tokenizer.kind="bpe"', {"tokenizer": {"kind": "bpe"}}),
        ("tokenizer.language_tags=['de', 'fr']", {"tokenizer": {"language_tags": ["de", "fr"]}}),
        ("data.source=a=b.txt", {"data": {"source": "a=b.txt"}}),
        ("preset=paper-base", {"preset": "paper-base"}),
    ],
)
def test_overrides_are_read_as_toml_or_else_as_text(text, values):
    assert parse_override(text) == values


@pytest.mark.parametrize("text", ["train.max_steps", "=3", " =3", ""])
def test_overrides_without_key_or_value_are_refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_override(text)
    assert str(caught.value) == (
        f"--set {text!r} must look like section.key=value, for example --set train.max_steps=1000"
    )


def test_merge_lays_later_values_over_earlier_ones_key_by_key():
    file = {"train": {"seed": 1, "patience": 3}, "preset": "tiny"}
    flags = {"train": {"seed": 2}, "decode": {"beam_size": 5}}
    assert merge(file, flags) == {
        "train": {"seed": 2, "patience": 3},
        "preset": "tiny",
        "decode": {"beam_size": 5},
    }
    assert file == {"train": {"seed": 1, "patience": 3}, "preset": "tiny"}  # what went in is untouched
    assert merge({"a": [1, 2]}, {"a": [3]}) == {"a": [3]}
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert merge() == {}


@pytest.mark.parametrize("text", [".".join(["a"] * 5_000) + "=3", "a.b.c=3"], ids=["many", "three"])
def test_a_key_of_more_than_two_names_is_refused(text):
    with pytest.raises(ConfigError, match=r"must look like section.key=value"):
        parse_override(text)


@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5_000], ids=["deep", "long"])
def test_parse_override_takes_invalid_toml_as_text(value):
    assert parse_override(f"train.seed={value}") == {"train": {"seed": value}}

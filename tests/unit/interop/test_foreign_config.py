"""YAML of other libraries: aliases are read, and cannot make a value exponentially larger than its file."""

from __future__ import annotations

import pytest

from clearhead.errors import ModelError
from clearhead.interop.readers.foreign_config import parse_yaml


def doubled(levels: int, form: str) -> str:
    """Return YAML whose last value is 9 to the power of `levels` times as large as the first."""
    lines = ["x0: &x0 [a]" if form == "list" else "x0: &x0 {a: 1}"]
    for level in range(1, levels):
        before = ", ".join([f"*x{level - 1}"] * 9)
        lines.append(
            f"x{level}: &x{level} " + (f"[{before}]" if form == "list" else f"{{<<: [{before}], b{level}: 1}}")
        )
    return "\n".join(lines)


@pytest.mark.parametrize("form", ["list", "merge"])
@pytest.mark.parametrize("as_texts", [True, False])
def test_aliases_cannot_multiply_a_file(form, as_texts):
    assert len(doubled(9, form)) < 700
    with pytest.raises(ModelError, match=r"^x\.yml is damaged: its values .* more than 16 times as large as the file"):
        parse_yaml(doubled(9, form), "x.yml", as_texts=as_texts)


def test_a_few_aliases_are_read():
    text = "a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: 2\n"
    assert parse_yaml(text, "x.yml") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: " + "[" * 70 + "]" * 70, "a: " + "[" * 5_000])
def test_depth_is_bounded(text):
    with pytest.raises(ModelError, match=r"^x\.yml is damaged: "):
        parse_yaml(text, "x.yml")


def test_a_number_that_cannot_be_printed_is_refused():
    with pytest.raises(ModelError, match=r"^x\.yml is damaged: a whole number has more than 100 digits"):
        parse_yaml("a: 0x" + "f" * 5_000, "x.yml")


def test_no_settings_are_refused():
    with pytest.raises(ModelError, match="must hold settings by name"):
        parse_yaml("", "x.yml")

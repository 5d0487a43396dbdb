"""Names of tests start with the names of the code, not with a question word."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

QUESTION_WORDS = re.compile(
    r"^ *def (test_(?:what|whatever|who|whoever|which|where|that|it|nothing|nobody|how)_\w*)", re.MULTILINE
)

NAMES_OF_CONCEPTS = {"test_what_attention_shows"}
"""Tests named after their concept of the paper, as docs/concepts.md refers to them."""


def riddles(text: str) -> list[str]:
    """Return the test functions of a file whose names start with a question word."""
    return [name for name in QUESTION_WORDS.findall(text) if name not in NAMES_OF_CONCEPTS]


def test_no_test_function_starts_with_a_question_word():
    files = {path.relative_to(TESTS): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}
    assert [f"{path}: {name}" for path, text in files.items() for name in riddles(text)] == []


def test_riddles_finds_functions_and_methods():
    text = "def test_it_ends(): ...\n\nclass TestA:\n    def test_who_waits(self): ...\n\ndef test_items(): ...\n"
    assert riddles(text) == ["test_it_ends", "test_who_waits"]

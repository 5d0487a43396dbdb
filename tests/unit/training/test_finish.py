"""The translation direction that a run's report begins with, and how it is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from clearhead.config import DataConfig
from clearhead.data.inputs import languages
from clearhead.training.finish import _direction


class Rows(list[tuple[str, str]]):
    """Pairs, as a store answers for them."""

    def source(self, row: int) -> str:
        return self[row][0]

    def target(self, row: int) -> str:
        return self[row][1]


def direction(rows: list[tuple[str, str]], *, tags: Any = (), report: Any = None, **files: Any) -> tuple[str, str]:
    config, tokenizer = DataConfig(**files), SimpleNamespace(language_tags=tags)
    data: Any = SimpleNamespace(
        valid=Rows(rows), report=report or {"languages": languages(config)}, tokenizer=tokenizer
    )
    return _direction(data, config)


SENTENCES = [
    (f"Der Hund läuft heute zum {number}. Mal über die Wiese.", f"The dog is running over the meadow, time {number}.")
    for number in range(40)
]


def test_direction_from_from_lang_and_to_lang_has_no_doubt():
    assert direction(SENTENCES, pairs=["a.tsv"], from_lang="en", to_lang="da") == ("English → Danish", "")
    assert direction(SENTENCES, pairs=["a.tsv"], from_lang="en", to_lang="da", swap=True)[0] == "Danish → English"


def test_direction_from_the_languages_of_a_tmx_file_has_no_doubt():
    assert direction(SENTENCES, pairs=["a.tmx"], report={"languages": ["da", "en"]}) == ("Danish → English", "")


def test_a_model_of_many_languages_is_named_by_their_number():
    report = {"languages": [None, None]}
    assert (
        direction(SENTENCES, pairs=["a.tsv"], tags=("de", "fr", "ja"), report=report)[0] == "3 languages → 3 languages"
    )
    report = {"languages": ["en", None]}
    assert direction(SENTENCES, pairs=["a.tsv"], tags=("de", "fr"), report=report) == ("English → 2 languages", "")


def test_languages_of_file_names_are_probable():
    found = direction(SENTENCES, source=["a.en"], target=["a.da.gz"])
    assert found == ("English → Danish", "probably, by the names of the files")


def test_languages_of_the_text_are_probable():
    pytest.importorskip("eldc")
    words, doubt = direction(SENTENCES, pairs=["a.tsv"])
    assert words == "German → English"
    assert doubt.startswith("probably, by the text")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("γειά σου", "привет")], "Greek script → Cyrillic script"),
        ([("1", "2")], "no letters → no letters"),
        ([], "no letters → no letters"),
    ],
)
def test_direction_of_too_little_text_names_scripts(rows, words):
    assert direction(rows, pairs=["a.tsv"]) == (words, "by script; data.from_lang and data.to_lang name the languages")

"""JSON lines: keys are columns; what is no object with two texts is a row without a pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_files import written

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, described, read_pairs
from clearhead.formats.tables.json_lines import write_json_lines


def read(tmp_path: Path, text: str, wanted: Wanted = Wanted()) -> list[tuple[str, str]]:
    pairs = read_pairs([written(tmp_path / "p.jsonl", text)], wanted)
    return [(pair.source, pair.target) for pair in pairs]


HUGGING_FACE = '{"id": "0", "translation": {"de": "ja", "en": "yes", "fr": "oui"}}\n'


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        (HUGGING_FACE, Wanted(("en", "de")), ("yes", "ja")),
        (HUGGING_FACE, Wanted(None, "fr", "de"), ("oui", "ja")),
        ('{"translation": {"de": "ja", "en": "yes"}}', Wanted(), ("ja", "yes")),
        ('{"translation": {"de": "ja", "en": "yes"}}', Wanted(None, "en", "de"), ("yes", "ja")),
        ('{"id": "7", "source": "yes", "target": "ja"}', Wanted(), ("yes", "ja")),
        ('{"id": 7, "x": "yes", "score": 0.5, "y": "ja"}', Wanted(), ("yes", "ja")),
        ('{"a": "no", "x": "yes", "y": "ja"}', Wanted(("y", "x")), ("ja", "yes")),
        ('{"a": "no", "x": "yes", "y": "ja"}', Wanted((3, 2)), ("ja", "yes")),
        ('{"source": "yes", "translation": "ja"}', Wanted(), ("yes", "ja")),
        ('\n{"en": "a\\r\\nb", "de": null}', Wanted(), ("a b", "")),
    ],
)
def test_keys_are_chosen_as_columns_are(tmp_path, text, wanted, expected):
    assert read(tmp_path, text, wanted)[-1] == expected


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        (HUGGING_FACE, Wanted(), r"p\.jsonl has 3 columns: 'de', 'en', 'fr'; say which two .* --columns en,fr"),
        (HUGGING_FACE, Wanted(("de", "sv")), r"p\.jsonl has no column 'sv'; it has 'de', 'en', 'fr'"),
        (HUGGING_FACE, Wanted(None, "de", "sv"), "no column of the language 'sv'; it has 'de', 'en', 'fr'"),
        ('{"a": "1", "b": "2", "c": "3"}', Wanted(), "has 3 columns: 'a', 'b', 'c'; say which two"),
        ('{"text": "1"}', Wanted(), "has 1 columns: 'text'; source and target are two"),
        ('{"text": "1", "label": 3}', Wanted(), "has 2 columns: 'text', 'label'; say which two"),
        ("{}", Wanted(), "has 0 columns"),
    ],
)
def test_keys_that_leave_it_open_or_are_not_there_are_refused_at_once(tmp_path, text, wanted, message):
    with pytest.raises(ConfigError, match=message):
        read_pairs([written(tmp_path / "p.jsonl", text)], wanted)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no json", "it is no JSON: Expecting value.* .the line begins 'no json'."),
        ('["a", "b"]', "it is no JSON object"),
        ('{"en": "a"}', "there is no 'de'"),
        ('{"en": "a", "de": 7}', "'de' is no text"),
        ('{"en": "a", "de": {"x": 1}}', "'de' is no text"),
        ('{"en": "a", "de": "b"', "it is no JSON: "),
        ('{"en": "a", "de": "b", "x": ' + "[" * 100_000 + "}", "it is no JSON: it is nested deeper than 32 levels"),
        ('{"en": "a", "de": "b", "x": ' + "9" * 10_000 + "}", "it is no JSON: "),
        ('{"en": "a", "de": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_invalid_json_line_is_a_row_with_a_defect(tmp_path, line, message):
    path = written(tmp_path / "p.ndjson", '{"en": "a", "de": "b"}\n' * 99 + line + "\n")
    pairs = list(read_pairs([path], tolerated=0.01))
    assert [pair.line for pair in pairs if pair.defect] == [100]
    with pytest.raises(DataError, match=rf"p\.ndjson, line 100: .*{message}"):
        list(read_pairs([path]))


def test_a_missing_translation_is_a_defect(tmp_path):
    path = written(tmp_path / "p.jsonl", HUGGING_FACE + '{"translation": null}\n{"de": "ja", "en": "yes"}\n')
    pairs = list(read_pairs([path], Wanted(("en", "de")), tolerated=1.0))
    assert [bool(pair.defect) for pair in pairs] == [False, True, True]
    assert pairs[1].defect is not None
    assert pairs[1].defect.startswith("there is no object under 'translation'")


def test_a_file_without_an_object_is_refused_and_an_empty_one_is_empty(tmp_path):
    with pytest.raises(DataError, match=r'p\.jsonl: none of the first 2 lines is a JSON object .*begins \'\[{"en"'):
        read(tmp_path, '[{"en": "a", "de": "b"},\n{"en": "a", "de": "b"}]')
    assert read(tmp_path, "") == []
    assert read(tmp_path, "\n \n") == [("", ""), ("", "")]


def test_described_names_json_lines_and_keys(tmp_path):
    path = written(tmp_path / "p.jsonl", HUGGING_FACE)
    told: list[str] = []
    read_pairs([path], Wanted(("en", "de")), on_open=lambda files: told.extend(described(files)))
    assert told == [f"{path}: JSON lines, under 'translation'; from 'en' to 'de'"]


sides = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=9)


@given(st.lists(st.tuples(sides, sides), max_size=5), st.sampled_from(["jsonl", "ndjson.gz", "jsonl.xz", "jsonl.zst"]))
def test_json_lines_pairs_round_trip(tmp_path_factory, texts, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    pairs = [SentencePair(*both, f"{path}:{line}") for line, both in enumerate(texts, start=1)]
    assert write_json_lines(path, pairs, ("en", "de")) == len(pairs)
    assert list(read_pairs([path], Wanted(None, "en", "de"))) == pairs


def test_lines_are_those_of_hugging_face(tmp_path):
    path = tmp_path / "p.jsonl"
    write_json_lines(str(path), [SentencePair('"a"', "ä\t", "x:1")], ("en", "de"))
    assert path.read_text(encoding="utf-8") == '{"translation": {"en": "\\"a\\"", "de": "ä\\t"}}\n'
    write_json_lines(str(path), [SentencePair("a", "b", "x:1")], ("en", "en"))
    assert json.loads(path.read_text()) == {"translation": {"source": "a", "target": "b"}}


@pytest.mark.parametrize(("text", "name"), [("a\nb", "line feed"), ("\r", "carriage return"), ("\ud800", "surrogate")])
def test_write_json_lines_rejects_line_ends_and_surrogates_and_writes_nothing(tmp_path, text, name):
    with pytest.raises(DataError, match=name):
        write_json_lines(str(tmp_path / "p.jsonl"), [SentencePair("a", text, "x:1")], ("en", "de"))
    assert list(tmp_path.iterdir()) == []

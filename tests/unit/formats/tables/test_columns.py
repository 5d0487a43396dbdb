"""Which columns hold a pair: what counts as a header, and what is taken where nothing is asked for."""

from __future__ import annotations

import pytest

from clearhead.errors import ConfigError
from clearhead.formats.pair import Wanted
from clearhead.formats.tables import columns
from clearhead.formats.tables.columns import choose_columns, is_header, language_named


@pytest.mark.parametrize(
    "row",
    [
        ["en", "de"],
        ["EN", "Deutsch"],
        ["eng", "deu"],
        ["english", "GERMAN", "notes on usage"],
        ["Englisch", "Französisch"],
        ["source", "target"],
        ["src_text", "tgt_text"],
        ["text-en", "text-fr"],
        ["sentence1", "sentence2"],
        ["pt_BR", "pt-PT"],
        ["", "zh-Hans", "en-US"],
        [" Front ", "Back"],
        ["日本語", "english sentence"],
    ],
)
def test_names_of_two_languages_or_sides_are_a_header(row):
    assert is_header(row)


@pytest.mark.parametrize(
    "row",
    [
        ["Go.", "Geh."],
        ["Hi", "Hallo"],
        ["English", "Deutsch ist schwer"],
        ["German", "Deutsch"],
        ["Text", "Text"],
        ["It is", "Es ist"],
        ["source of the river", "Quelle des Flusses"],
        ["1", "2"],
        ["", ""],
        ["en"],
    ],
)
def test_is_header_rejects_rows_of_text(row):
    assert not is_header(row)


def chosen(rows, wanted=None, **more):
    found = choose_columns("f", rows, Wanted(wanted), **more)
    return found.source, found.target, found.has_header


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([["Go.", "Geh.", "CC-BY"]], (0, 1, False)),
        ([["id", "de", "en"], ["7", "ja", "yes"]], (1, 2, True)),
        ([["de", "id"], ["eins", "1"]], (0, 1, True)),
        ([["1", "Go.", "2", "Geh."], ["3", "4", "5", "6"]], (1, 3, False)),
        ([["1", "Go.", "2", "Geh."], ["torn"], ["3", "4", "5", "6"]], (1, 3, False)),
        ([["1", "Go.", "x", "Geh."]], (0, 1, False)),
        ([["1", "eins", "2"]], (0, 1, False)),
        ([["en", "score", "de"], ["a", "0.5", "b"]], (0, 2, True)),
    ],
)
def test_columns_are_chosen_by_the_header_or_their_order(rows, columns):
    assert chosen(rows) == columns


def test_columns_are_chosen_by_given_numbers_and_names():
    assert chosen([["a", "b", "c"]], (3, 1)) == (2, 0, False)
    assert chosen([["id", "de", "en"]], (3, 2)) == (2, 1, True)
    assert chosen([["x", "y z"], ["1", "2"]], ("y z", "x")) == (1, 0, True)
    assert chosen([["1", "2"]], ("2", "1")) == (1, 0, True)  # names, for they are text
    assert chosen([["a", "b"]], ("de", 1), names=("en", "de")) == (1, 0, False)


def test_columns_without_text_are_passed_over():
    assert chosen([["g", "a", "b", "t"]], others=frozenset({0, 3})) == (1, 2, False)
    assert chosen([["g", "a", "t", "b"]], others=frozenset({0, 2})) == (1, 3, False)
    assert chosen([["a", "g", "t", "b"]], (2, 3), others=frozenset({1, 2})) == (1, 2, False)


@pytest.mark.parametrize("header", [["de", "en", "fr"], ["id", "en", "Übersetzung (alt)"]])
def test_a_header_that_leaves_it_open_is_refused(header):
    with pytest.raises(ConfigError, match=r"f has 3 columns: .*; say which two hold source and target"):
        choose_columns("f", [header, ["1" if header[0] == "id" else "a", "b", "c"]], Wanted())


def test_languages_that_are_asked_for_are_found_in_the_header():
    rows = [["id", "en-GB", "German", "fr"], ["7", "yes", "ja", "oui"]]
    found = choose_columns("f", rows, Wanted(from_lang="fr", to_lang="de"))
    assert (found.source, found.target, found.has_header) == (3, 2, True)
    assert choose_columns("f", rows, Wanted(from_lang="en", to_lang="fr")).source == 1
    with pytest.raises(ConfigError, match="f has no column of the language 'es'; it has 'en-GB', 'German', 'fr'"):
        choose_columns("f", rows, Wanted(from_lang="es", to_lang="de"))
    with pytest.raises(ConfigError, match="f has several columns of the language 'en'"):
        choose_columns("f", [["en-GB", "en-US", "de"]], Wanted(from_lang="de", to_lang="en"))


def test_one_language_that_is_asked_for_leaves_the_other_side():
    rows = [["id", "en", "de"], ["1", "a", "b"]]
    assert choose_columns("f", rows, Wanted(from_lang="de"))[:2] == (2, 1)
    assert choose_columns("f", rows, Wanted(to_lang="en"))[:2] == (2, 1)
    assert choose_columns("f", rows, Wanted(from_lang="en"))[:2] == (1, 2)
    with pytest.raises(ConfigError, match="f has no column of the language 'fr'; it has 'en', 'de'"):
        choose_columns("f", rows, Wanted(from_lang="fr"))
    with pytest.raises(ConfigError, match="give two different ones with --from-lang and --to-lang"):
        choose_columns("f", rows, Wanted(from_lang="de", to_lang="de"))
    with pytest.raises(ConfigError, match="the languages asked for are 'de', which leaves open two columns"):
        choose_columns("f", [["en", "de", "fr"]], Wanted(from_lang="de"))


def test_table_without_language_names_is_read_by_column_order_or_side_names():
    assert choose_columns("f", [["a", "b"]], Wanted(from_lang="de", to_lang="en")).sides() == ("column 1", "column 2")
    with_sides = choose_columns("f", [["x", "target", "source"]], Wanted(from_lang="de", to_lang="en"))
    assert with_sides.sides() == ("column 2 (target)", "column 3 (source)")


def test_the_list_of_all_languages_is_gone_through_once_for_all_cells(monkeypatch):
    class Languages(dict):
        times = 0

        def values(self):
            Languages.times += 1
            return super().values()

    languages = Languages(columns.codes_by_name())
    monkeypatch.setattr(columns, "codes_by_name", lambda: languages)
    columns._codes.cache_clear()
    assert not is_header(["x y"] * 100)
    assert [language_named("German") for _ in range(100)] == ["de"] * 100
    assert Languages.times == 1

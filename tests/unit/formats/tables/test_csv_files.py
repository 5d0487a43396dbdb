"""Comma-separated pairs: quoting after RFC 4180, the separator by content, and rows whose quotation marks are wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_files import written

from clearhead.errors import ConfigError, DataError
from clearhead.formats import SentencePair, Wanted, described, read_pairs
from clearhead.formats.tables.csv_files import write_csv


def read(tmp_path: Path, text: str, columns=None) -> list[tuple[str, str]]:
    path = written(tmp_path / "p.csv", text)
    return [(pair.source, pair.target) for pair in read_pairs([path], Wanted(columns))]


def test_the_example_of_the_rfc_is_read(tmp_path):
    text = '"aaa","b\r\nbb","ccc"\r\n"aaa","b""bb","c,cc"\r\nzzz,yyy,xxx\r\n'  # sections 2.5 to 2.7
    path = written(tmp_path / "p.csv", text)
    assert list(read_pairs([path], Wanted((2, 3)))) == [
        SentencePair("b bb", "ccc", f"{path}:1"),
        SentencePair('b"bb', "c,cc", f"{path}:3"),
        SentencePair("yyy", "xxx", f"{path}:4"),
    ]


def test_a_last_line_without_an_end_and_a_byte_order_mark_are_read(tmp_path):
    assert read(tmp_path, "\ufeffenglish,german\nyes,ja") == [("yes", "ja")]


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("Hello, you;Hallo, du\nno, not now;nein, nicht jetzt\n", "semicolon"),
        ("Hello; you,Hallo; du\nno; not now,nein; nicht jetzt\n", "comma"),
        ('"Hello; you";Hallo\n"a, b, c";d\n', "semicolon"),
        ("Hello, you\tHallo, du\nno\tnein\n", "tab"),
        ("english;german\nHello, you, there;Hallo\n", "semicolon"),
        ("german,english\nHallo;Hello;x\n", "comma"),
        ("a,b\n", "comma"),
        ('1,"a\tb\nc\td\ne\tf"\n2,g\n', "comma"),
        ("sep=|\na, b|c, d\ne, f|g, h\n", "pipe"),
    ],
)
def test_the_separator_is_the_one_that_makes_rows_alike(tmp_path, text, separator):
    told: list[str] = []
    read_pairs([written(tmp_path / "p.csv", text)], on_open=lambda files: told.extend(described(files)))
    assert f"p.csv: {separator}-separated" in told[0]


def test_a_column_that_is_asked_for_tells_the_separator(tmp_path):
    text = "Satz;Sentence, in English\nja;yes\nnein;no, nope\n"
    assert read(tmp_path, text, ("Satz", "Sentence, in English")) == [("ja", "yes"), ("nein", "no, nope")]


def test_sep_line_of_excel_is_not_a_row(tmp_path):
    path = written(tmp_path / "p.csv", "sep=;\nde;en\nja, doch;yes\n")
    assert list(read_pairs([path])) == [SentencePair("ja, doch", "yes", f"{path}:3")]


@pytest.mark.parametrize("first", ['sep="', "sep=\r;", "sep=", "sep=;;"])
def test_lines_resembling_the_sep_line_of_excel_are_rows(tmp_path, first):
    path = written(tmp_path / "p.csv", f"{first}\nja,yes\nnein,no\n")
    pairs = list(read_pairs([path], tolerated=0.5))
    assert [bool(pair.defect) for pair in pairs] == [True, False, False]


def test_space_before_a_quotation_mark_is_none_of_the_text(tmp_path):
    assert read(tmp_path, '"a", "b, c"\nd, e\n') == [("a", "b, c"), ("d", "e")]


def test_header_after_blank_lines_is_not_a_pair(tmp_path):
    path = written(tmp_path / "p.csv", "\nid,de,en\n1,ja,yes\n")
    assert list(read_pairs([path])) == [SentencePair("", "", f"{path}:1"), SentencePair("ja", "yes", f"{path}:3")]


WRONG = {
    "a quotation mark too many": ('a,b\n"open,c\nd,e\n"f, g",h\n', {2: "text follows a closing quotation mark"}),
    "an open one at the end": ('a,b\nc,d\n"open,e\nf,g\n', {3: "a quotation mark is not closed within 131,072"}),
    "an open one before much text": (
        '"open,e\n' + "f,gg\n" * 40_000,
        {1: "a quotation mark is not closed within 131,072 characters"},
    ),
    "text behind a closing one": ('a,b\n"yes" he said,ja\nc,d\n', {2: "text follows a closing quotation mark"}),
    "a comma without quotation marks": (
        "a,b\nHello, you,Hallo\nc,d\n",
        {2: "it has 3 columns and the others 2; a text with a comma in it must stand in quotation marks"},
    ),
    "a row that ends early": ("a,b\nalone\n\nc,d\n", {2: "there is no comma (the row begins 'alone')"}),
    "a carriage return": ("a,b\nx\ry,z\n", {2: "there is a carriage return outside quotation marks"}),
}


@pytest.mark.parametrize(("text", "defects"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_row_is_named_and_swallows_no_other(tmp_path, text, defects):
    path = written(tmp_path / "p.csv", text)
    found = list(read_pairs([path], tolerated=0.9))
    assert len(found) == text.count("\n")
    wrong = {pair.line: pair.defect for pair in found if pair.defect}
    assert wrong.keys() == defects.keys()
    assert all(defects[line] in wrong[line] for line in wrong)


def test_too_many_columns_are_found_where_only_the_header_says_how_many(tmp_path):
    path = written(tmp_path / "p.csv", "de,en\na,b,c\nd,e,f\n")
    assert all(pair.defect for pair in read_pairs([path], tolerated=1.0))


def test_columns_are_refused_by_number_and_by_name(tmp_path):
    text = "id,english,german,french\n1,yes,ja,oui\n"
    for columns, message in (
        (None, r"p\.csv has 4 columns: 'id', 'english', 'german', 'french'; say which two .* --columns german,french"),
        (("english", "germn"), r"has no column 'germn'; it has 'id', 'english', 'german', 'french' \(columns may also"),
        ((0, 2), r"column 0 is asked for, but .*p\.csv has 4 columns"),
        ((2, 5), r"column 5 is asked for, but .*p\.csv has 4 columns: 'id', 'english'"),
        ((2, "english"), r"columns 2,english: in .*p\.csv they are the same one"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(tmp_path, text, columns)
    with pytest.raises(ConfigError, match="has several columns 'en', number 1, 2; give the number"):
        read(tmp_path, "en,en\na,b\n", ("en", 2))
    assert read(tmp_path, text, ("french", 2)) == [("oui", "yes")]


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\ufeff"), max_size=9)
quoted = st.text(st.sampled_from('a",;\t \n\r"'), max_size=7)


@given(st.lists(st.tuples(cells | quoted, cells | quoted), min_size=1, max_size=7), st.sampled_from(",;"))
def test_csv_writer_output_is_read_with_line_ends_as_spaces(tmp_path_factory, rows, separator):
    path = tmp_path_factory.getbasetemp() / "p.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([("source", "target"), *rows])
    expected = [tuple(text.replace("\r\n", "\n").replace("\n", " ") for text in row) for row in rows]
    assert [(pair.source, pair.target) for pair in read_pairs([str(path)])] == expected


@given(
    st.lists(st.tuples(cells | quoted.map(lambda text: text.replace("\n", "")), cells), max_size=5),
    st.sampled_from([("en", "de"), ("de", "de"), ("qaa", "tlh")]),
    st.sampled_from(["csv", "csv.gz", "csv.xz", "csv.zst"]),
)
def test_csv_pairs_round_trip(tmp_path_factory, rows, languages, extension):
    path = str(tmp_path_factory.getbasetemp() / f"p.{extension}")
    pairs = [SentencePair(*both, f"{path}:{line}") for line, both in enumerate(rows, start=2)]
    assert write_csv(path, iter(pairs), languages) == len(pairs)
    assert list(read_pairs([path])) == pairs


def test_the_header_names_the_languages_or_else_the_sides(tmp_path):
    path = tmp_path / "p.csv"
    write_csv(str(path), [SentencePair('"Hi", she said', " a;b", "x:1")], ("en", "de"))
    assert path.read_bytes() == b'"en","de"\r\n"""Hi"", she said"," a;b"\r\n'
    write_csv(str(path), [], ("en", "en"))
    assert path.read_bytes() == b'"source","target"\r\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb", r"f\.po:7: the target holds a line feed, which a \.csv cannot keep"),
        ("\0", r"f\.po:7: the target holds a NUL character"),
        ("x" * 131_073, r"f\.po:7: a side has 131,073 characters, and a cell of a \.csv is read up to 131,072"),
    ],
)
def test_write_csv_rejects_texts_a_csv_cannot_keep_and_writes_nothing(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        write_csv(str(tmp_path / "p.csv"), [SentencePair("a", text, "f.po:7")], ("en", "de"))
    assert list(tmp_path.iterdir()) == []


def test_a_row_with_more_columns_than_a_spreadsheet_has_is_malformed(tmp_path):
    path = written(tmp_path / "p.csv", "a,b\n" + "x," * 16_384 + "\nc,d\n")
    with pytest.raises(DataError, match=r"p\.csv, line 2: the row has more than 16,384 columns"):
        list(read_pairs([path], Wanted((1, 2))))

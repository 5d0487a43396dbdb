from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import lines_executed

from clearhead.errors import ConfigError, DataError
from clearhead.formats.document import Filling

CELL = st.text('ab ",;\né犬', max_size=5).map(lambda cell: cell.strip(" "))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(CELL.map(lambda cell: f"k{cell}"), CELL, CELL), min_size=1, max_size=5),
    st.sampled_from([",", ";"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_a_column_of_a_csv_is_replaced_and_nothing_else(read, rows, separator, line_end, quoting):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator=line_end, quoting=quoting)
    writer.writerows([("one", "two"), *((key, text) for key, text, _ in rows)])
    document = read("a.csv", file.getvalue(), columns=["two"])
    assert [one.text for one in document.segments] == [text for _, text, _ in rows]
    found = document.filled([Filling(new) for _, _, new in rows]).decode()
    expected = [["one", "two"], *([key, new] for key, _, new in rows)]
    assert list(csv.reader(io.StringIO(found, newline=""), delimiter=separator)) == expected


def test_translations_replace_the_cells_of_a_single_column(read, fill, places):
    written = '\ufeffid;name;n\r\n1;"Ein ""Hund""";2\r\n2;Hund;3\r\n\r\n3; "Ein\nHund";4'
    document = read("a.csv", written, columns=["name"])
    assert places(document) == [(2, 'Ein "Hund"'), (3, "Hund"), (5, "Ein\nHund")]
    rows = ("row 2, column name", "row 3, column name", "row 5, column name")  # the fourth is blank
    assert tuple(one.shown_place for one in document.segments) == rows
    assert fill(document, {'Ein "Hund"': "A dog", "Hund": 'dog; "x"', "Ein\nHund": "A\ndog"}) == (
        '\ufeffid;name;n\r\n1;"A dog";2\r\n2;"dog; ""x""";3\r\n\r\n3; "A\ndog";4'
    )


def test_translations_of_one_column_fill_another(read, fill):
    written = "en,de,n\nDog,,1\nCat,Katze,2\nMouse\nBird,"
    document = read("a.csv", written, columns=["en", "de"])
    assert [(one.text, one.translation, one.is_finished) for one in document.segments] == [
        ("Dog", "", False),
        ("Cat", "Katze", True),
        ("Mouse", "", False),
        ("Bird", "", False),
    ]
    assert document.keeps_finished
    assert not read("a.csv", written, columns=["en"]).keeps_finished
    assert fill(document, {"Dog": "Hund", "Mouse": "Maus", "Bird": "Vogel, der"}) == (
        'en,de,n\nDog,Hund,1\nCat,Katze,2\nMouse,Maus\nBird,"Vogel, der"'
    )
    document = read("a.csv", "a,b,c\nDog\nCat,1,2\n", columns=[1, 3])
    on_two_lines = read("b.csv", '"the\nname";n\nHund;1\n', columns=["the\nname"])
    assert on_two_lines.segments[0].shown_place == "row 2, column the name"
    assert [one.shown_place for one in document.segments] == [f"row {row}, column 1" for row in (1, 2, 3)]
    assert fill(document, {"Dog": "Hund"}) == "a,b,c\nDog,,Hund\nCat,1,2\n"


def test_a_tsv_has_no_quotation_marks(read, fill, places):
    document = read("a.tsv", '"Ein Hund\tx\t"\n\nzwei\n', columns=[1])
    assert places(document) == [(1, '"Ein Hund'), (3, "zwei")]
    assert fill(document, {'"Ein Hund': '"A\tdog\r\n"', "zwei": "two"}) == '"A dog "\tx\t"\n\ntwo\n'


@pytest.mark.parametrize(
    ("name", "written", "columns", "texts"),
    [
        ("a.tsv", "en\tde\nDog\tHund\n", [1], ["Dog"]),  # two languages: a header
        ("a.tsv", "text\nDog\n", None, ["text", "Dog"]),
        ("a.csv", "text\nDog\n", ["text"], ["Dog"]),
        ("a.csv", "sep=;\nen;de\nDog;Hund\n", ["de"], ["Hund"]),
        ("a.csv", "#separator:semicolon\n#columns:Front;Back\nDog;Hund\n", ["Back"], ["Hund"]),
        ("a.csv", '"a,b"\n', None, ["a,b"]),
        ("a.csv", "Dog\n", None, ["Dog"]),
        ("a.csv", "", None, []),
        ("a.csv", "\n \n", None, []),
        ("a.csv", "Dog,,\nCat\n", [1], ["Dog", "Cat"]),
        ("a.csv", "a,b\nc,d,\n", [2], ["b", "d"]),
    ],
)
def test_separators_and_headers_of_table_documents_are_recognized(read, name, written, columns, texts):
    assert [one.text for one in read(name, written, columns=columns).segments] == texts


@pytest.mark.parametrize(
    ("written", "columns", "message"),
    [
        ('id,name\n1,"Ein Hund\n2,x\n', ["name"], "line 2: a quotation mark is not closed"),
        ('id,name\n1,"Ein" Hund\n', ["name"], "line 2: text follows a closing quotation mark"),
        ("id,name\n1,Ein, Hund\n", ["name"], "line 2: the row has 3 columns and the others 2; a text with a comma in"),
    ],
)
def test_a_damaged_row_is_refused_with_its_line(read, written, columns, message):
    with pytest.raises(DataError, match=f"a.csv, {message}"):
        read("a.csv", written, columns=columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, r"a.csv has 2 columns \('en', 'de'\); say which to translate, for example --columns en, or which one "),
        (["fr"], "a.csv has no column 'fr'; it has 'en', 'de'"),
        ([3], "column 3 is asked for, but .*a.csv has 2 columns"),
        ([0], "column 0 is asked for"),
        ([1, 1], "columns 1,1: name one or two different ones"),
        (["en", 1], "columns en,1: name one or two different ones"),
        ([1, 2, 2], "columns 1,2,2: name one or two different ones"),
        ([], "columns : name one or two different ones"),
    ],
)
def test_ambiguous_or_unknown_columns_are_rejected(read, columns, message):
    with pytest.raises(ConfigError, match=message):
        read("a.csv", "en,de\nDog,Hund\n", columns=columns)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.csv", ";"), ("a.tsv", "\t")])
def test_a_row_with_more_columns_than_a_spreadsheet_has_is_refused(read, name, separator):
    widest = separator.join(["x"] * 16_384)
    assert [one.text for one in read(name, f"{widest}\n{widest}\n", columns=[16_384]).segments] == ["x", "x"]
    with pytest.raises(DataError, match=rf"{name}, line 2: the row has more than 16,384 columns"):
        read(name, f"{widest}\n{widest}{separator}\n", columns=[1])


def test_of_many_columns_the_first_are_named(read):
    names = ",".join(["de", "en", *(f"c{number}" for number in range(30))])
    with pytest.raises(ConfigError, match=r"has 32 columns \('de', 'en', 'c0'.*, 'c17' and 12 more\); say which"):
        read("a.csv", names + "\n")


@pytest.mark.parametrize("cell", ["{}", '"{}"'])
def test_rows_take_no_work_for_the_cells_that_are_not_read(read, cell):
    def work(columns: int, rows: int) -> int:
        table = "".join(",".join(cell.format(f"x{place}") for place in range(columns)) + "\n" for _ in range(rows))

        def translated() -> None:
            document = read("a.csv", table, columns=[2, 3])
            assert len(document.segments) == rows
            document.filled([Filling("X") for _ in range(rows)])

        return lines_executed(translated)

    work(4, 250)  # what is computed once is not counted
    narrow, wide = (work(columns, 280) - work(columns, 240) for columns in (20, 40))  # rows beyond the head alone
    assert wide <= 1.1 * narrow
